"""Tells brokers that the smallest brokerId of their group changed (NOTIFY_MIN_BROKER_ID_CHANGE, 905).

The only connections that a server opens to brokers. Where they go is text out of registrations, so whoever may
register chooses it, as with Java's: the feature is off by default, a frame goes to ``host:port`` only, never to this
server itself, and neither a deaf peer nor many of them cost more than a bounded number of small frames.
"""

import asyncio
import logging
import re
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from namesrv_stream.client import ConnectionLost, RemotingConnection, RequestTooLarge
from namesrv_stream.errors import ConfigError
from namesrv_stream.logs import safe
from namesrv_stream.remoting.codes import MQ_VERSION, LanguageCode, RequestCode
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.headers import NotifyMinBrokerIdChangeRequestHeader
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.min_broker_id import MinBrokerIdChange, min_broker_id_change

logger = logging.getLogger(__name__)

#: To connect, and to hand over one frame. Source: rocketmq 5.3.3, NettyClientConfig.connectTimeoutMillis; the 300 ms
#: of RouteInfoManager.notifyMinBrokerIdChanged bound the wait for a permit to send, which is not needed here.
_TIMEOUT_MS: Final = 3_000
#: A connection without a frame for so long is closed; brokers close idle ones after 120 s.
_IDLE_MS: Final = 60_000
#: Brokers told at the same time, each over a connection of its own.
_MAX_RECIPIENTS: Final = 1_024
#: Frames that wait for one broker, the newest. More than one, for each may name another broker that went offline.
_MAX_WAITING: Final = 16
#: A host name or an address, in brackets if it is IPv6, and a port.
_ADDR: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")


@dataclass(slots=True, eq=False)
class _Recipient:
    """A broker that is being told: frames wait in ``outbox``; ``stirred`` is set with each one, and at a close."""

    addr: str
    outbox: deque[RemotingCommand] = field(default_factory=lambda: deque(maxlen=_MAX_WAITING))
    stirred: asyncio.Event = field(default_factory=asyncio.Event)


class MinBrokerNotifier:
    """Sends the notifications; belongs to one event loop.

    ``group_changed`` may be called before, during and after ``run``, and never blocks or fails. What cannot be
    delivered is lost, as with Java: brokers with acting master also ask each second.
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
        """Sends nothing yet.

        Args:
            is_enabled: Whether to notify, asked at each change (``notifyMinBrokerIdChanged``).
            own_port: Port at which this server listens for remoting.
            tls: How to speak TLS, asked for each connection on a thread; None for plain.
            timeout_ms: Milliseconds to connect, and to hand over one frame.
            idle_ms: Milliseconds after which an unused connection is closed.
        """
        self._is_enabled = is_enabled
        self._own_port = own_port
        self._tls = tls
        self._timeout_ms = timeout_ms
        self._idle_ms = idle_ms
        self._recipients: dict[str, _Recipient] = {}  # by advertised address
        self._arrived: asyncio.Queue[_Recipient] = asyncio.Queue()
        self._unreachable: set[str] = set()  # told in the log

    @property
    def recipients(self) -> list[str]:
        """Advertised addresses of the brokers that are being told, or are connected since."""
        return list(self._recipients)

    def group_changed(self, before: BrokerGroup, after: BrokerGroup) -> None:
        """The members of a group changed: tell those whom it concerns, if enabled."""
        if not self._is_enabled():
            return
        change = min_broker_id_change(before, after)
        if change is None:
            return
        logger.info(
            "min broker changed name=%s min_broker_id=%d min_broker_addr=%s offline_broker_addr=%s recipients=%d",
            safe(change.broker_name),
            change.min_broker_id,
            safe(change.min_broker_addr),
            safe(change.offline_broker_addr or ""),
            len(change.recipients),
        )
        request = notification(change)
        for addr in change.recipients:
            self._post(addr, request)

    async def run(self) -> None:
        """Deliver until cancelled; connections are closed then, and what still waits is lost."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                recipient = await self._arrived.get()
                tasks.create_task(self._attend(recipient), name=f"notify {safe(recipient.addr)}")

    def _post(self, addr: str, request: RemotingCommand) -> None:
        recipient = self._recipients.get(addr)
        if recipient is None:
            if not _ADDR.fullmatch(addr):
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
        """Deliver to one broker while there is anything to deliver, over one connection after another."""
        try:
            while recipient.outbox:
                await self._deliver(recipient)
        except (ConnectionLost, RequestTooLarge, ConfigError, OSError) as error:
            self._warn_once(recipient.addr, str(error))
        except Exception:
            # Not worth a name server: the task group would end it.
            logger.exception("notifying a broker failed addr=%s", safe(recipient.addr))
        finally:
            del self._recipients[recipient.addr]

    async def _deliver(self, recipient: _Recipient) -> None:
        """Deliver over one connection, until it closes or is not needed any more."""
        tls = None if self._tls is None else await asyncio.to_thread(self._tls)
        connection = await _BrokerConnection.connect(recipient.addr, self._timeout_ms, tls)
        connection.closed.add_done_callback(lambda _: recipient.stirred.set())
        try:
            if connection.leads_here(self._own_port):
                raise ConnectionLost(recipient.addr, "it is this server itself")
            while True:
                # Sent even if the peer has closed by now, and lost then: one that always does must not hold us here.
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
            raise ConnectionLost(connection.addr, f"it takes nothing for {self._timeout_ms} ms") from None

    def _warn_once(self, addr: str, reason: str) -> None:
        if addr in self._unreachable:
            return
        if len(self._unreachable) >= _MAX_RECIPIENTS:
            self._unreachable.clear()
        self._unreachable.add(addr)
        logger.warning("a broker was not notified addr=%s reason=%s", safe(addr), safe(reason))


def notification(change: MinBrokerIdChange) -> RemotingCommand:
    """The request to all recipients of a change; ``brokerName`` stays unset, as in Java."""
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=change.min_broker_id,
        min_broker_addr=change.min_broker_addr,
        offline_broker_addr=change.offline_broker_addr,
        ha_broker_addr=change.ha_broker_addr,
    )
    return RemotingCommand(
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        language=LanguageCode.PYTHON,
        version=MQ_VERSION,
        ext_fields=header.to_ext_fields(),
    )


class _BrokerConnection(RemotingConnection):
    """A connection to a broker, that knows where it ended up."""

    def leads_here(self, port: int) -> bool:
        """Whether the other end is ``port`` of this machine, by whatever name or address it was called."""
        if self._transport is None:
            return False
        here, there = (self._transport.get_extra_info(end) for end in ("sockname", "peername"))
        if not here or not there or there[1] != port:
            return False
        # All of 127.0.0.0/8 is this machine, and is called from 127.0.0.1.
        return bool(here[0] == there[0]) or ip_address(there[0]).is_loopback
