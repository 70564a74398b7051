"""The link of one broker to one name server, which restores a lost connection; and the counters of an agent.

States: no connection (in back-off) → connecting → connected → registered. Every new connection begins with a
registration, because only a registration binds a broker to a connection. A link sends one registration at a time, with
the topics at that moment; requests that arrive meanwhile share the next one. Links do not wait for each other, so a
slow or unreachable name server delays no registration at another.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from namesrv_stream.client import BackOff, ConnectionLost, RemotingConnection, RequestTimedOut
from namesrv_stream.logs import safe
from namesrv_stream.remoting.command import RemotingCommand, ResponseCode
from namesrv_stream.tools.agent.simulated_broker import AgentConfig

_LATENCIES_KEPT = 10_000  # the newest registrations; enough for a p99 of 100 of them
logger = logging.getLogger(__name__)
_FIRST_BACK_OFF_MS: Final = 100


@dataclass(slots=True)
class Tally:
    """Counters of an agent, since its start. A link is one pair of a broker and a name server.

    Attributes:
        links: All links.
        connected: Links that have a connection now.
        registered: Links that have a connection now over which their newest registration was accepted.
        registrations: Accepted registrations.
        refused: Registrations answered with an error.
        timed_out: Registrations that were not answered in time.
        connections_lost: Connections that the agent did not close itself.
        unregistered: Accepted unregistrations.
        latencies_ms: Latencies of the newest registrations, in milliseconds.
    """

    links: int = 0
    connected: int = 0
    registered: int = 0
    registrations: int = 0
    refused: int = 0
    timed_out: int = 0
    connections_lost: int = 0
    unregistered: int = 0
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES_KEPT))

    def latency_ms(self, quantile: float) -> float:
        """Return a quantile of the latencies of the newest registrations, in milliseconds; 0 before the first."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(int(len(ordered) * quantile), len(ordered) - 1)] if ordered else 0.0

    def line(self) -> str:
        """Return the counters as ``key=value``, for a log line."""
        return (
            f"connected={self.connected}/{self.links} registered={self.registered}/{self.links}"
            f" registrations={self.registrations} refused={self.refused} timed_out={self.timed_out}"
            f" connections_lost={self.connections_lost}"
            f" latency_p50_ms={self.latency_ms(0.5):.1f} latency_p99_ms={self.latency_ms(0.99):.1f}"
        )


class NameServerLink:
    """Keeps one broker registered at one name server while ``run`` runs."""

    def __init__(
        self,
        config: AgentConfig,
        broker_name: str,
        addr: str,
        make_request: Callable[[], RemotingCommand],
        tally: Tally,
        event_level: int,
    ) -> None:
        """Prepare the link.

        Args:
            config: The agent's options, among them the time limits and delays of a link.
            broker_name: Name of the broker in log lines.
            addr: Address of the name server, ``host:port``.
            make_request: Creates the registration to send now.
            tally: The counters to update.
            event_level: Log level of normal events.
        """
        self.addr = addr
        self._config = config
        self._broker_name = broker_name
        self._make_request = make_request
        self._tally = tally
        self._event_level = event_level
        self._back_off = BackOff(_FIRST_BACK_OFF_MS, config.max_back_off_ms)
        self._connection: RemotingConnection | None = None
        self._is_registered = False
        self._is_wanted = asyncio.Event()
        self._requested: list[asyncio.Future[bool]] = []  # resolved by the outcome of the next registration
        self._logged_problem = ""  # so that a server that stays away is logged once
        tally.links += 1

    @property
    def is_registered(self) -> bool:
        """Whether the newest registration was accepted over the present connection."""
        return self._is_registered

    def request_registration(self) -> asyncio.Future[bool]:
        """Register as soon as possible.

        Returns:
            A future of whether the next registration that is sent after this call is accepted.
        """
        requested: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._requested.append(requested)
        self._is_wanted.set()
        return requested

    async def run(self) -> None:
        """Connect, register on request, and reconnect, until cancelled, which leaves the connection open."""
        while True:
            try:
                connection = await RemotingConnection.connect(
                    self.addr, self._config.connect_timeout_ms, self._config.tls
                )
            except ConnectionLost as error:
                self._log_problem(f"cannot connect: {error.reason}")
                self._resolve(self._take_waiters(), False)
                await asyncio.sleep(self._back_off.next_delay_ms() / 1000)
                continue
            self._connection = connection
            self._tally.connected += 1
            try:
                await self._serve(connection)
            finally:
                self._tally.connected -= 1
                self._mark(False)
            await asyncio.wait([connection.closed])
            self._tally.connections_lost += 1
            self._log_problem(f"connection lost: {connection.closed.result()}")
            self._resolve(self._take_waiters(), False)
            await asyncio.sleep(self._back_off.next_delay_ms() / 1000)

    async def unregister(self, request: RemotingCommand) -> bool:
        """Unregister at this name server and close the connection; call it when ``run`` has ended.

        Returns:
            Whether the server no longer has the broker, as far as this link knows.
        """
        if self._connection is None:  # it never knew the broker
            return True
        timeout_ms = self._config.unregister_timeout_ms
        connection = self._connection
        try:
            if not connection.is_open:
                # The server may be back by now, or still have a registration although the connection is closed.
                connection = self._connection = await RemotingConnection.connect(
                    self.addr, timeout_ms, self._config.tls
                )
            response = await connection.invoke(request, timeout_ms)
        except (ConnectionLost, RequestTimedOut) as error:
            logger.warning(
                "cannot unregister broker=%s name_server=%s reason=%s", self._broker_name, self.addr, error.reason
            )
            return False
        finally:
            await connection.close()
        if response.code != ResponseCode.SUCCESS:
            self._log_refusal("unregistration", response)
            return False
        self._tally.unregistered += 1
        logger.log(self._event_level, "unregistered broker=%s name_server=%s", self._broker_name, self.addr)
        return True

    def abort(self) -> None:
        """Drop the connection, as a crash of the process would."""
        if self._connection is not None:
            self._connection.abort()

    async def _serve(self, connection: RemotingConnection) -> None:
        """Register at once and then on request, until the connection ends."""
        connection.closed.add_done_callback(lambda _: self._is_wanted.set())
        self._is_wanted.set()
        while True:
            await self._is_wanted.wait()
            if not connection.is_open:
                return
            self._is_wanted.clear()
            waiters = self._take_waiters()
            is_accepted = False
            try:
                is_accepted = await self._register(connection)
            finally:
                self._resolve(waiters, is_accepted)

    async def _register(self, connection: RemotingConnection) -> bool:
        loop = asyncio.get_running_loop()
        request = self._make_request()
        began_s = loop.time()
        try:
            response = await connection.invoke(request, self._config.register_timeout_ms)
        except ConnectionLost:
            return False
        except RequestTimedOut as error:
            self._tally.timed_out += 1
            self._mark(False)
            self._log_problem(f"registration: {error.reason}")
            # As RocketMQ's clientCloseSocketIfTimeout: a new connection shows whether the server is alive.
            connection.abort()
            return False
        latency_ms = (loop.time() - began_s) * 1000
        if response.code != ResponseCode.SUCCESS:
            self._tally.refused += 1
            self._mark(False)
            self._log_refusal("registration", response)
            return False
        self._back_off.reset()
        self._tally.registrations += 1
        self._tally.latencies_ms.append(latency_ms)
        is_news = not self._is_registered
        self._mark(True)
        self._logged_problem = ""
        logger.log(
            self._event_level if is_news else logging.DEBUG,
            "registered broker=%s name_server=%s took_ms=%.1f",
            self._broker_name,
            self.addr,
            latency_ms,
        )
        return True

    def _mark(self, is_registered: bool) -> None:
        self._tally.registered += int(is_registered) - int(self._is_registered)
        self._is_registered = is_registered

    def _take_waiters(self) -> list[asyncio.Future[bool]]:
        waiters, self._requested = self._requested, []
        return waiters

    def _resolve(self, waiters: list[asyncio.Future[bool]], is_accepted: bool) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(is_accepted)

    def _log_refusal(self, what: str, response: RemotingCommand) -> None:
        self._log_problem(f"{what} refused: code {response.code}: {safe(response.remark or 'without a remark')}")

    def _log_problem(self, trouble: str) -> None:
        if trouble == self._logged_problem:
            return
        self._logged_problem = trouble
        # Problems of a large fleet come by the thousand; its status line counts them.
        level = logging.WARNING if self._event_level > logging.DEBUG else logging.DEBUG
        logger.log(level, "%s broker=%s name_server=%s", trouble, self._broker_name, self.addr)
