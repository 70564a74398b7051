"""One TCP connection of a broker, client or tool: bytes in, answers out.

A connection has a ``Phase``, and may have reasons for which it is not read (``reading.Pause``). A frame that breaks the
protocol closes this connection and nothing else; the sound frames before it are answered. What a peer asks behind a
large request waits until that is answered.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from enum import Enum
from functools import partial
from typing import Final, cast

from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.name_server import DecodedBody, Peer
from namesrv_stream.route.events import BrokerHeartbeat, Proof
from namesrv_stream.server.native.hand_over import HandOver
from namesrv_stream.server.net.inbound import Inbound, host_of
from namesrv_stream.server.net.large_requests import LARGE_BYTES
from namesrv_stream.server.net.reading import Pause, Reading
from namesrv_stream.server.net.response_cache import is_route_query
from namesrv_stream.server.net.services import ConnectionOwner, Services
from namesrv_stream.server.net.session import LargeRequest, Session

logger = logging.getLogger(__name__)

#: Why ``Connections`` closes a connection on which nothing moves.
IDLE: Final = "idle for too long"
#: Why it closes all.
STOPPING: Final = "the server stops"
#: Answers are gathered up to so many bytes before they are written.
_GATHERED_BYTES: Final = 64 * 1024


class Phase(Enum):
    """Where a connection is in its life; it only moves down this list."""

    OPEN = "open"
    LEAVING = "closes behind its next answer"
    BROKEN = "closes behind the answers to the frames before the broken one"
    CLOSING = "closes once what is written has gone out and no operator's change waits for the log"
    CLOSED = "closed"


_ENDED: Final = frozenset((Phase.CLOSING, Phase.CLOSED))


class RemotingConnection(asyncio.Protocol):
    """The server's side of one connection.

    Attributes:
        connection_id: Counted upwards from 1 since the server's start.
        active_ms: Observed time of the last traffic.
        host: Address of the other end.
        peer: For people: the other end's address and port, and those of the peer behind a proxy.
    """

    def __init__(self, connection_id: int, services: Services, owner: "ConnectionOwner[RemotingConnection]") -> None:
        self.connection_id = connection_id
        self.active_ms = services.gateway.observed_ms
        self.host = ""
        self.peer = "?"
        self._services = services
        self._owner = owner
        self._session = Session(services, connection_id, self)
        self._phase = Phase.OPEN
        self._waiting: deque[bytes] = deque()  # frames to be answered
        self._reason = ""  # why we close; "" as long as we do not

    # ---- asyncio's callbacks ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        services = self._services
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass of asyncio's
        self._transport.set_write_buffer_limits(high=services.limits.write_buffer_bytes)
        self._inbound = Inbound(self._transport, services.tls, services.limits.max_frame_bytes)
        self._reading = Reading(self, self._transport, services, self._owner)
        self._hand_over = HandOver(services.lane, self, self._transport)
        address = transport.get_extra_info("peername")
        self.host = host_of(address[0]) if address else ""
        self._session.caller = Peer(self.host, is_proxied=False)
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
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
            self._session.caller = Peer(self.host, is_proxied=True)
            self.peer = f"{self.peer} for {inbound.proxied_for}"
        self._transport = inbound.transport
        self._waiting.extend(frames)
        if error is None:
            self._reading.received(len(data), inbound.held_bytes, is_new=bool(frames))
        else:
            self._break(error)
        self._answer_waiting()

    def pause_writing(self) -> None:
        # A peer that does not read its answers is not asked for further questions. Called from within a write, too.
        self._reading.pause(Pause.SLOW_READER)
        if not self._transport.is_closing():
            self._owner.stalled(self)

    def resume_writing(self) -> None:
        self._owner.flows(self)
        self._reading.resume(Pause.SLOW_READER)
        self._answer_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = Phase.CLOSED
        self._waiting.clear()
        self._hand_over.release()
        self._owner.closed(self)
        self._reading.end()
        self._inbound.end()
        self._services.gateway.backlog.worked_on(self)
        # That this server closes a connection says nothing about the brokers at its other end.
        if self.has_brokers and not self._reason:
            how = "closed by the peer" if exc is None else f"closed by the peer: {exc}"
            registered, reason = self._session.registered, f"connection {self.peer} {how}"
            self._services.gateway.disconnected(self.connection_id, registered, reason)

    # ---- what ``Connections`` asks for ----

    def close(self, reason: str) -> None:
        """Close from our side, once what is written has gone out and no operator's change waits for the log."""
        self._end(reason)
        # While the lane is returning the connection, ``returned`` closes.
        if self._hand_over.take_back() and not self._session.changes:
            self._transport.close()

    def leave(self) -> None:
        """Close behind the next answer: its peer asks elsewhere from then on, and no request of its is under way.

        Differs from RocketMQ, whose graceful shutdown answers GO_AWAY to requests of 5.3.2 and later: such a client
        then connects to the same address again, which for a name server is the one that ends.
        """
        if self._phase is Phase.OPEN:
            self._phase = Phase.LEAVING
        if self._hand_over.take_back():
            self._reading.resume(Pause.NATIVE_LANE)

    def abort(self, reason: str) -> None:
        """Close from our side at once: its peer may never read what is written."""
        self._end(reason)
        self._hand_over.release()
        self._transport.abort()

    def broker_expired(self) -> None:
        """A broker that registered over this connection has expired: close, unless one of the others is heard over it.

        Differs from RocketMQ: it closes the connection whatever else came over it, and so ends all the brokers that
        share it (a BrokerContainer's) with one of them. Nor does it close while a request waits, which may register
        the broker again.
        """
        if not (self.is_waiting or self._waiting or self._reading.held_bytes or any(self.heartbeats())):
            logger.info("connection closed, its brokers have expired peer=%s", self.peer)
            self.close("expired")

    def heartbeats(self) -> Iterator[BrokerHeartbeat]:
        """The signs of life of the brokers that are heard over this connection."""
        origin = self._session.origin
        for key in self._session.registered:
            if self._services.gateway.view.is_held(key, origin.holder):
                yield BrokerHeartbeat(origin, *key, Proof.HEARTBEAT)

    @property
    def has_brokers(self) -> bool:
        """Whether brokers registered over this connection."""
        return bool(self._session.registered)

    @property
    def is_waiting(self) -> bool:
        """Whether the peer waits for us, who do not even read what it sends."""
        return self._reading.is_waiting

    @property
    def unread_bytes(self) -> int:
        """Answers that wait for the peer to read."""
        return self._transport.get_write_buffer_size()

    # ---- what the session, the native lane and ``LargeRequests`` tell ----

    def settled(self, answer: bytes | None) -> None:
        if answer is not None:
            self._write([answer])
        if self._phase is Phase.CLOSING:
            self.close(self._reason)

    def failed(self, code: int) -> None:
        self._owner.failed(self, code)

    def denied(self, reason: str) -> None:
        self._owner.denied(self, reason)

    def hold_reading(self, *, is_held: bool) -> None:
        change = self._reading.pause if is_held else self._reading.resume
        change(Pause.LARGE_FRAME)

    def returned(self, unread: bytes, unsent: bytes) -> None:
        self._hand_over.is_handed_over = False
        self.active_ms = self._services.gateway.observed_ms
        try:
            self._write([unsent] if unsent else [])
            self._reading.resume(Pause.NATIVE_LANE)
            if self._phase is Phase.CLOSING:
                self.close(self._reason)
            elif unread:
                self.data_received(unread)
        except Exception:
            self.abort("a fault of ours")
            raise

    # ---- requests ----

    def _answer_waiting(self, *, has_answered: bool = False) -> None:
        """Answer what waits, as far as the peer reads its answers, up to the first large request."""
        answers: list[bytes] = []
        frame, asked, size = b"", len(self._waiting), 0
        while self._waiting and self._phase not in _ENDED and self._reading.may_answer:
            frame = self._waiting.popleft()
            try:
                if len(frame) > LARGE_BYTES:
                    self._queue(self._session.large_request(frame), len(frame))
                    continue
                answer = self._session.answer(frame)
            except RemotingError as error:
                self._waiting.clear()
                self._break(error)
                break
            if answer is not None:
                answers.append(answer)
                size += len(answer)
                if size >= _GATHERED_BYTES and self._waiting:
                    self._write(answers)
                    answers, size = [], 0
        if len(answers) == asked == 1 and is_route_query(frame) and self._may_hand_over:
            if self._hand_over.answer(frame, answers[0]):
                self._reading.pause(Pause.NATIVE_LANE)
        else:
            self._write(answers)
        if asked and not self._reading.is_waiting:
            self._services.gateway.backlog.worked_on(self)  # what a tick waited for was no large request
        self._close_if_done(has_answered=has_answered or bool(asked))

    def _queue(self, large: LargeRequest | None, size: int) -> None:
        if large is not None:
            self._reading.pause(Pause.LARGE_REQUEST)
            self._services.large_requests.add(size, partial(self._answer_large, large), large.body)

    def _answer_large(self, large: LargeRequest, decoded: DecodedBody | None) -> None:
        """Answer a large request in its turn, and then what waits behind it."""
        try:
            if self._phase not in _ENDED:  # who has gone is not answered, and nothing that it said is done
                answer = self._session.answer_large(large, decoded)
                self._write([] if answer is None else [answer])
        finally:
            try:
                self._services.gateway.backlog.worked_on(self)
            finally:
                self._reading.resume(Pause.LARGE_REQUEST)
        self._answer_waiting(has_answered=True)

    @property
    def _may_hand_over(self) -> bool:
        """Whether nothing else goes on here, so that the native lane may have the connection."""
        is_idle = self._reading.is_free and not (self._waiting or self._session.changes)
        return is_idle and self._phase is Phase.OPEN and self._inbound.is_plain

    def _write(self, answers: list[bytes]) -> None:
        if answers and self._phase is not Phase.CLOSED:
            self._transport.write(b"".join(answers) if len(answers) > 1 else answers[0])

    # ---- the end ----

    def _break(self, error: RemotingError) -> None:
        if self._phase in (Phase.OPEN, Phase.LEAVING):  # of a second error nothing is said
            self._phase = Phase.BROKEN
            self._owner.broken(self, error)
            self._services.tls.broken(error)

    def _close_if_done(self, *, has_answered: bool) -> None:
        """Close a broken connection, and one that leaves, if nothing of it is left to be answered."""
        if self._waiting or self._reading.has_large_request:
            return
        if self._phase is Phase.BROKEN:
            self.close("protocol error")
        elif self._phase is Phase.LEAVING and has_answered and not self._reading.held_bytes:
            self.close(STOPPING)

    def _end(self, reason: str) -> None:
        self._reason = reason
        if self._phase is not Phase.CLOSED:
            self._phase = Phase.CLOSING
        if not self._reading.has_large_request:
            self._services.gateway.backlog.worked_on(self)
