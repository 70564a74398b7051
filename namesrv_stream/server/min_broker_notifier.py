"""Notifies brokers that the smallest brokerId of their group changed (NOTIFY_MIN_BROKER_ID_CHANGE, 905).

A server opens no other connections to brokers. The addresses come from registrations, so any peer that may register
chooses them, as with the Java server. Therefore the feature is off by default, and frames go only to ``host:port``,
never to this server itself. Peers that do not read cost only a limited number of small frames.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from namesrv_stream.addresses import plain_host, split_addr
from namesrv_stream.client import ConnectionLost, RemotingConnection, RequestTooLarge
from namesrv_stream.errors import ConfigError
from namesrv_stream.logs import safe
from namesrv_stream.remoting.command import MQ_VERSION, LanguageCode, RemotingCommand, RequestCode
from namesrv_stream.remoting.headers import NotifyMinBrokerIdChangeRequestHeader
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.topic_route import MinBrokerIdChange, min_broker_id_change

logger = logging.getLogger(__name__)

#: Timeout to connect, and to send one frame. Source: rocketmq 5.3.3, NettyClientConfig.connectTimeoutMillis; the 300 ms
#: of RouteInfoManager.notifyMinBrokerIdChanged limit the wait for a permit to send, which is not needed here.
_TIMEOUT_MS: Final = 3_000
#: A connection without a frame for this time is closed; brokers close idle ones after 120 s.
_IDLE_MS: Final = 60_000
#: Maximum number of brokers that are notified at the same time; every broker has its own connection.
_MAX_RECIPIENTS: Final = 1_024
#: Maximum number of waiting frames for one broker; the newest remain. Each may name another broker that went offline.
_MAX_WAITING: Final = 16


@dataclass(slots=True, eq=False)
class _Recipient:
    """A broker to notify: frames wait in ``outbox``; a new frame or the end of the connection sets ``stirred``."""

    addr: str
    outbox: deque[RemotingCommand] = field(default_factory=lambda: deque(maxlen=_MAX_WAITING))
    stirred: asyncio.Event = field(default_factory=asyncio.Event)


class MinBrokerNotifier:
    """Sends the notifications. Used by one event loop.

    ``group_changed`` may be called before, during and after ``run``, and never blocks or fails. An undelivered
    notification is lost, as with the Java server. Brokers with acting master also query the server every second.
    """

    def __init__(
        self,
        is_enabled: Callable[[], bool],
        own_port: int,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        timeout_ms: int = _TIMEOUT_MS,
        idle_ms: int = _IDLE_MS,
    ) -> None:
        """Create a notifier, which sends nothing before ``run``.

        Args:
            is_enabled: Whether to notify (``notifyMinBrokerIdChanged``); called at every change.
            own_port: This server's remoting port, to which nothing is sent.
            tls: Returns the TLS context; called in a thread for every connection. None for plain connections.
            timeout_ms: Limit for connecting, and for sending one frame.
            idle_ms: A connection without a frame for this time is closed.
        """
        self._is_enabled = is_enabled
        self._own_port = own_port
        self._tls = tls
        self._timeout_ms = timeout_ms
        self._idle_ms = idle_ms
        self._recipients: dict[str, _Recipient] = {}  # by advertised address
        self._arrived: asyncio.Queue[_Recipient] = asyncio.Queue()
        self._unreachable: set[str] = set()  # already logged

    @property
    def recipients(self) -> list[str]:
        """Advertised addresses of the brokers that are being notified or still connected."""
        return list(self._recipients)

    def group_changed(self, before: BrokerGroup, after: BrokerGroup) -> None:
        if not self._is_enabled():
            return
        change = min_broker_id_change(before, after)
        if change is None:
            return
        text = (
            "smallest brokerId changed name=%s min_broker_id=%d min_broker_addr=%s offline_broker_addr=%s recipients=%d"
        )
        addrs = safe(change.min_broker_addr), safe(change.offline_broker_addr or "")
        logger.info(text, safe(change.broker_name), change.min_broker_id, *addrs, len(change.recipients))
        request = notification(change)
        for addr in change.recipients:
            self._post(addr, request)

    async def run(self) -> None:
        """Deliver until cancelled; then connections close, and waiting notifications are lost."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                recipient = await self._arrived.get()
                tasks.create_task(self._attend(recipient), name=f"notify {safe(recipient.addr)}")

    def _post(self, addr: str, request: RemotingCommand) -> None:
        recipient = self._recipients.get(addr)
        if recipient is None:
            try:
                split_addr(addr)
            except ValueError:
                self._warn_once(addr, "not host:port")
                return
            if len(self._recipients) >= _MAX_RECIPIENTS:
                self._warn_once(addr, f"{_MAX_RECIPIENTS} others are being notified")
                return
            recipient = self._recipients[addr] = _Recipient(addr)
            self._arrived.put_nowait(recipient)
        recipient.outbox.append(request)
        recipient.stirred.set()

    async def _attend(self, recipient: _Recipient) -> None:
        """Deliver to one broker while frames wait, over one connection after another."""
        try:
            while recipient.outbox:
                await self._deliver(recipient)
        except (ConnectionLost, RequestTooLarge, ConfigError, OSError) as error:
            self._warn_once(recipient.addr, str(error))
        except Exception:
            # The exception must not propagate: the task group would stop the name server.
            logger.exception("notifying a broker failed addr=%s", safe(recipient.addr))
        finally:
            del self._recipients[recipient.addr]

    async def _deliver(self, recipient: _Recipient) -> None:
        """Deliver over one connection until it closes or is idle for too long."""
        tls = None if self._tls is None else await asyncio.to_thread(self._tls)
        connection = await _BrokerConnection.connect(recipient.addr, self._timeout_ms, tls)
        connection.closed.add_done_callback(lambda _: recipient.stirred.set())
        try:
            if connection.leads_here(self._own_port):
                raise ConnectionLost(recipient.addr, "it is this server itself")
            while True:
                # Frames to a peer that has closed are sent, too, and lost: keeping them would cause endless reconnects.
                while recipient.outbox:
                    await self._send(connection, recipient.outbox.popleft())
                self._unreachable.discard(recipient.addr)
                recipient.stirred.clear()
                if connection.is_open:
                    async with asyncio.timeout(self._idle_ms / 1000):
                        await recipient.stirred.wait()
                if not connection.is_open:
                    return
        except TimeoutError:
            logger.debug("connection to a broker is idle addr=%s", safe(recipient.addr))
        finally:
            connection.abort()

    async def _send(self, connection: RemotingConnection, request: RemotingCommand) -> None:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await connection.invoke_oneway(request)
        except TimeoutError:
            raise ConnectionLost(connection.addr, f"it has accepted no data for {self._timeout_ms} ms") from None

    def _warn_once(self, addr: str, reason: str) -> None:
        if addr in self._unreachable:
            return
        if len(self._unreachable) >= _MAX_RECIPIENTS:
            self._unreachable.clear()
        self._unreachable.add(addr)
        logger.warning("a broker was not notified addr=%s reason=%s", safe(addr), safe(reason))


def notification(change: MinBrokerIdChange) -> RemotingCommand:
    """Return the request for all recipients of a change; ``brokerName`` stays unset, as in Java."""
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=change.min_broker_id,
        min_broker_addr=change.min_broker_addr,
        offline_broker_addr=change.offline_broker_addr,
        ha_broker_addr=change.ha_broker_addr,
    )
    code, fields = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header.to_ext_fields()
    return RemotingCommand(code, language=LanguageCode.PYTHON, version=MQ_VERSION, ext_fields=fields)


class _BrokerConnection(RemotingConnection):
    """A connection to a broker that can detect whether it leads to this server."""

    def leads_here(self, port: int) -> bool:
        """Return whether the other end is ``port`` of this machine, under any name or address."""
        if self._transport is None:
            return False
        here, there = (self._transport.get_extra_info(end) for end in ("sockname", "peername"))
        if not here or not there or there[1] != port:
            return False
        # All of 127.0.0.0/8 is this machine, but the local end is 127.0.0.1.
        return bool(here[0] == there[0]) or ip_address(plain_host(there[0])).is_loopback
