"""One TCP connection of a broker, client or tool. ``inbound`` splits its bytes into frames, ``requests`` answers them.

A connection has a ``Phase``, and may have reasons not to be read (``requests.Pause``). A frame that breaks the protocol
closes only this connection, after the answers to the valid frames before it.
"""

import asyncio
import logging
from collections.abc import Iterator
from enum import Enum
from typing import cast

from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.authorisation import is_within
from namesrv_stream.processor.name_server import Peer
from namesrv_stream.route.events import BrokerHeartbeat
from namesrv_stream.server.net.connections import STOPPING
from namesrv_stream.server.net.inbound import Inbound, host_of
from namesrv_stream.server.net.requests import Pause, Reading, Requests
from namesrv_stream.server.net.response_cache import is_route_query
from namesrv_stream.server.net.session import Services, Session

logger = logging.getLogger(__name__)


class Phase(Enum):
    """The state of a connection's life cycle; it only changes to a later one in this list."""

    OPEN = "open"
    LEAVING = "closes after its next answer"
    BROKEN = "closes after the answers to the frames before the broken one"
    CLOSING = "closes once everything written is sent and no operator's change waits for the log"
    CLOSED = "closed"


class RemotingConnection(asyncio.Protocol):
    """The server's side of one connection; ``peer`` is the address of the other end and, behind a proxy, of its client.

    Attributes:
        connection_id: Number of the connection, counted from 1 since the server's start.
        active_ms: Observed time of the last traffic.
    """

    def __init__(self, connection_id: int, services: Services, listener: str = "") -> None:
        """``listener`` is the name of the additional listener that accepted the connection; "" for the main one."""
        self.connection_id = connection_id
        self.active_ms = services.gateway.observed_ms
        self.host, self.peer = "", "?"
        self._services, self._owner, self._listener = services, services.connections, listener
        self._session = Session(services, self)
        self._phase = Phase.OPEN
        self._reason = ""  # why this server closes the connection; "" while it does not

    # ---- asyncio's callbacks ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        services, limits = self._services, self._owner.limits
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of asyncio's
        self._transport.set_write_buffer_limits(high=limits.write_buffer_bytes)
        self._inbound = Inbound(self._transport, services.tls, limits.max_frame_bytes)
        self._reading = Reading(self, self._transport, services)
        self._requests = Requests(self._session, self._reading, services, self._write, self._answer_waiting)
        sock = transport.get_extra_info("socket")
        self._fd: int | None = None if sock is None else sock.fileno()
        if address := transport.get_extra_info("peername"):
            self.host, self.peer = host_of(address[0]), f"{address[0]}:{address[1]}"
        self._session.caller = Peer(self.host, False, self.host, self._listener)
        if not self._owner.opened(self):
            self.close("too many connections")

    def data_received(self, data: bytes) -> None:
        inbound = self._inbound
        if self._phase not in (Phase.OPEN, Phase.LEAVING):
            return
        self.active_ms = self._services.gateway.observed_ms
        error: RemotingError | None = None
        try:
            frames = inbound.feed(data)
        except RemotingError as broken:
            frames, error = inbound.frames_before_error, broken
        if inbound.proxied_for and not self._session.caller.is_proxied:
            self._session.caller = Peer(self.host, True, self._client_host(inbound.proxied_host), self._listener)
            self.peer = f"{self.peer} for {inbound.proxied_for}"
        self._transport = inbound.transport
        self._requests.add(frames)
        if error is None:
            self._reading.received(len(data), inbound.held_bytes, is_new=bool(frames))
        else:
            self._break(error)
        self._answer_waiting()

    def _client_host(self, proxied_host: str) -> str:
        """Return the address that chooses the address view: that of a trusted proxy's client, otherwise the peer's."""
        is_trusted = is_within(self.host, self._services.name_server.access.proxy_networks)
        return proxied_host if is_trusted and proxied_host else self.host

    def pause_writing(self) -> None:
        # Stop reading requests from a peer that does not read its answers. A write may call this method, too.
        self._reading.pause(Pause.SLOW_READER)
        if not self._transport.is_closing():
            self._owner.stalled(self)

    def resume_writing(self) -> None:
        self._owner.flows(self)
        self._reading.resume(Pause.SLOW_READER)
        self._answer_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = Phase.CLOSED
        self._requests.end()
        self._owner.closed(self)
        self._reading.end()
        self._inbound.end()
        self._services.gateway.backlog.worked_on(self)
        # If this server closes a connection, that proves nothing about the brokers at the other end.
        if self.has_brokers and not self._reason:
            reason = f"connection {self.peer} closed by the peer{f': {exc}' if exc is not None else ''}"
            self._services.gateway.disconnected(self.connection_id, self._session.registered, reason)

    def _answer_waiting(self) -> None:
        try:
            if self._requests.answer() and not self._reading.is_waiting:
                self._services.gateway.backlog.worked_on(self)  # the tick did not wait for a large request
        except RemotingError as error:
            self._break(error)
        if not self._requests.is_empty:
            return
        if self._phase is Phase.BROKEN:
            self.close("protocol error")
        elif self._phase is Phase.LEAVING and self._requests.has_answered and not self._reading.held_bytes:
            self.close(STOPPING)

    def _write(self, answers: bytes, request: bytes) -> None:
        """Write answers. If a route query was the only request, hand an idle connection without TLS to the lane."""
        lane = self._owner.lane
        if (
            lane is not None
            and self._fd is not None
            and is_route_query(request)
            and self._reading.is_free
            and self._requests.is_empty
            and not self._session.changes
            and self._phase is Phase.OPEN
            and self._inbound.is_plain
            and not self.unread_bytes
        ):
            unsent = lane.hand_over(self, self._fd, request, answers, self._session.view_number)
            if unsent is None:
                self._reading.pause(Pause.LANE)
                return
            answers = unsent
        if self._phase is not Phase.CLOSED:
            self._transport.write(answers)

    def settled(self, answer: bytes | None) -> None:
        """Write the answer, if any, to an operator's change that is in the log or failed."""
        if answer is not None:
            self._write(answer, b"")
        if self._phase is Phase.CLOSING:
            self.close(self._reason)

    def returned(self, unread: bytes, unsent: bytes) -> None:
        """Continue after the lane returned the connection."""
        self.active_ms = self._services.gateway.observed_ms
        try:
            if unsent:
                self._write(unsent, b"")
            self._reading.resume(Pause.LANE)
            if self._phase is Phase.CLOSING:
                self.close(self._reason)
            elif unread:
                self.data_received(unread)
        except Exception:
            self.abort("internal error")
            raise

    # ---- closing ----

    def close(self, reason: str) -> None:
        """Close once all answers are sent and no operator's change waits for the log."""
        self._end(reason)
        # While the lane is returning the connection, ``returned`` closes it.
        if self._owner.take_back(self) and not self._session.changes:
            self._transport.close()

    def leave(self) -> None:
        """Close after the next answer: then no request is in flight, and the peer uses another server.

        Differs from RocketMQ, which answers GO_AWAY to 5.3.2 and later. Such peers reconnect to the address that shuts
        down.
        """
        if self._phase is Phase.OPEN:
            self._phase = Phase.LEAVING
            self._requests.has_answered = False
        if self._owner.take_back(self):
            self._reading.resume(Pause.LANE)

    def abort(self, reason: str) -> None:
        """Close at once, without waiting for unsent answers, which the peer may never read."""
        self._end(reason)
        self._owner.release(self)
        self._transport.abort()

    def broker_expired(self) -> None:
        """Close after a broker of this connection expired, unless other brokers are registered over it.

        The connection also stays open while a request waits, because a waiting request may register the broker again.

        Differs from RocketMQ, which always closes the connection. This removes all brokers of a BrokerContainer,
        because they share one connection.
        """
        waits = self.is_waiting or not self._requests.is_empty or self._reading.held_bytes
        if not waits and not any(self.heartbeats()):
            logger.info("closing connection of expired brokers peer=%s", self.peer)
            self.close("expired")

    def _break(self, error: RemotingError) -> None:
        if self._phase in (Phase.OPEN, Phase.LEAVING):  # only the first error is logged and counted
            self._phase = Phase.BROKEN
            self._owner.broken(self, error)
            self._services.tls.broken(error)

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._requests.end()
        if self._phase is not Phase.CLOSED:
            self._phase = Phase.CLOSING
        if not self._reading.has_large_request:
            self._services.gateway.backlog.worked_on(self)

    # ---- state, for ``Connections`` and ``Backlog`` ----

    def heartbeats(self) -> Iterator[BrokerHeartbeat]:
        return self._session.heartbeats()

    @property
    def has_brokers(self) -> bool:
        return bool(self._session.registered)

    @property
    def is_waiting(self) -> bool:
        return self._reading.is_waiting

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the peer has not read."""
        return self._transport.get_write_buffer_size()
