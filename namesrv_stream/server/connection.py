"""One TCP connection of a broker, client or tool: bytes in, answers out.

Answers to what one read brought go out in few writes; a peer that does not read them gets no further ones, however
many it asked for. A dear request, such as a registration of many topics, takes its turn among those of all connections,
one in a turn of the event loop, so that other peers' questions wait for one at most; what its peer asks behind it is
read when it is answered. A frame that breaks the protocol closes this connection and nothing else; the sound frames
before it are answered. No answer is ever written to a oneway request. The answer to an operator's change waits until
the change is in the log; others may overtake it, and a connection that we close ourselves stays until it is given.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Generator, Iterator
from time import perf_counter_ns
from typing import Final, cast

from namesrv_stream.clock import Clock
from namesrv_stream.errors import NamesrvStreamError, RemotingError, RequestError, SystemBusy, TlsBroken
from namesrv_stream.processor.dispatch import process_in_steps
from namesrv_stream.processor.name_server import Accepted, Answer, Call, NameServer, Peer
from namesrv_stream.processor.prepared import PreparedAnswers
from namesrv_stream.processor.response import error_response
from namesrv_stream.processor.steps import at_once
from namesrv_stream.remoting.codes import ResponseCode
from namesrv_stream.remoting.command import RemotingCommand, response_to
from namesrv_stream.remoting.frame import FrameBuffer, decode_frame, encode_frame
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered, Origin, Proof
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.server.connection_owner import ConnectionOwner
from namesrv_stream.server.gateway import Gateway
from namesrv_stream.server.opening import Opening, host_of
from namesrv_stream.server.request_figures import RequestFigures
from namesrv_stream.server.tls import ServerTls, TlsTransport
from namesrv_stream.server.turns import Turns
from namesrv_stream.settings import RemotingSettings

logger = logging.getLogger(__name__)

#: Why ``Connections`` closes one on which nothing moves.
IDLE: Final = "idle for too long"
#: Why it closes all.
STOPPING: Final = "the server stops"
#: Answers are gathered up to so many bytes before they are written.
_GATHERED_BYTES: Final = 64 * 1024
#: Longer requests are dear. The longest question has some hundred bytes; 2,000 topics take 20 kB if they are deflated.
_DEAR_BYTES: Final = 16 * 1024
#: First byte of a TLS handshake record; that of a frame is 0.
_TLS_HANDSHAKE: Final = 0x16


class RemotingConnection(asyncio.Protocol):
    """The server's side of one connection.

    Attributes:
        connection_id: Counted upwards from 1 since the server's start.
        active_ms: Observed time of the last traffic.
        host: Address of the other end.
        peer: For people: the other end's address and port, and those of the peer behind a proxy.
    """

    def __init__(
        self,
        connection_id: int,
        server: NameServer,
        prepared: PreparedAnswers,
        gateway: Gateway,
        owner: "ConnectionOwner[RemotingConnection]",
        clock: Clock,
        limits: RemotingSettings,
        tls: ServerTls,
        origin: Origin,
        figures: RequestFigures,
        turns: Turns,
    ) -> None:
        self.connection_id = connection_id
        self.active_ms = gateway.observed_ms
        self.host = ""
        self.peer = "?"
        self._server = server
        self._prepared = prepared
        self._gateway = gateway
        self._owner = owner
        self._clock = clock
        self._figures = figures
        self._turns = turns
        self._origin = origin._replace(connection_id=connection_id)
        self._buffer = FrameBuffer(limits.max_frame_bytes)
        self._feed = self._feed_first
        self._opening = Opening()
        self._tls = tls
        self._records: TlsTransport | None = None
        self._held_below = 0  # bytes that are not complete enough for the buffer
        self._held_bytes = 0  # all that the owner was told of
        self._caller = Peer("", False)
        self._transport: asyncio.Transport | None = None
        self._limits = limits
        self._waiting: deque[bytes] = deque()  # frames to answer once the peer reads again
        self._is_paused = False
        self._is_in_turn = False  # a dear request; what waits is behind it
        self._is_broken = False  # no byte behind ``_waiting`` means anything
        self._is_closing = False
        self._is_leaving = False  # the next answer is the last
        self._changes = 0  # of an operator, whose answers wait for the log
        self._registered: dict[LeaseKey, None] = {}
        self._end = "closed by the peer"

    # ---- asyncio's callbacks ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self.host = host_of(address[0]) if address else ""
        self._caller = Peer(self.host, False)
        if not self._owner.opened(self):
            self.close("too many connections")

    def data_received(self, data: bytes) -> None:
        if self._is_closing or self._is_broken:
            return
        self.active_ms = self._gateway.observed_ms
        try:
            frames = self._feed(data)
            self._waiting.extend(frames)
            held = self._held_below + self._buffer.pending_bytes
            if held or self._held_bytes:
                self._held_bytes = held
                self._owner.holds(self, held, is_new=bool(frames))
        except RemotingError as error:
            self._waiting.extend(self._buffer.frames_before_error)
            self._break(error)
        self._work()

    def pause_writing(self) -> None:
        # Called from within a write, too. A peer that does not read its answers is not asked for further questions.
        self._is_paused = True
        self._pause_reading()
        if self._transport is not None and not self._transport.is_closing():
            self._owner.stalled(self)

    def resume_writing(self) -> None:
        self._is_paused = False
        self._owner.flows(self)
        self._work()
        self._resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._waiting.clear()
        self._owner.closed(self)
        reason = self._end if exc is None else f"{self._end}: {exc}"
        if self._registered:
            self._gateway.disconnected(self.connection_id, self._registered, f"connection {self.peer} {reason}")
        self._transport = None

    # ---- ours ----

    def close(self, reason: str) -> None:
        """Close from our side, once what is written has gone out and no operator's change waits for the log."""
        self._end = reason
        self._is_closing = True
        if self._transport is not None and not self._changes:
            self._transport.close()

    def leave(self) -> None:
        """Close behind the next answer: its peer asks elsewhere from then on, and no request of its is under way.

        Differs from RocketMQ, whose graceful shutdown answers GO_AWAY to requests of 5.3.2 and later: such a client
        then connects to the same address again, which for a name server is the one that ends.
        """
        self._is_leaving = True

    def abort(self, reason: str) -> None:
        """Close from our side at once: its peer may never read what is written."""
        self._end = reason
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def broker_expired(self) -> None:
        """A broker that registered over this connection has expired: close, unless one of the others is heard over it.

        Differs from RocketMQ: it closes the connection whatever else came over it, and so ends all the brokers that
        share it (a BrokerContainer's) with one of them.
        """
        if not any(self._gateway.view.is_held(key, self._origin.holder) for key in self._registered):
            logger.info("connection closed, its brokers have expired peer=%s", self.peer)
            self.close("expired")

    @property
    def unread_bytes(self) -> int:
        """Answers that wait for the peer to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _feed_first(self, data: bytes) -> list[bytes]:
        """The frames in ``data``, as long as the connection has not got beyond its first bytes."""
        data = self._opening.feed(data)
        self._held_below = self._opening.held_bytes
        if self._opening.proxied_for and not self._caller.is_proxied:
            self._caller = self._caller._replace(is_proxied=True)
            self.peer += f" for {self._opening.proxied_for}"
        if not data:
            return []
        if data[0] == _TLS_HANDSHAKE and self._transport is not None:
            self._transport = self._records = self._tls.accept(self._transport)
            self._feed = self._feed_records
        else:
            self._tls.refuse_plain()
            self._feed = self._buffer.feed
        return self._feed(data)

    def _feed_records(self, data: bytes) -> list[bytes]:
        """The frames that TLS records hold."""
        assert self._records is not None
        was_established = self._records.is_established
        try:
            return self._buffer.feed(self._records.received(data))
        except TlsBroken as error:
            self._waiting.extend(self._buffer.feed(error.sound))
            raise
        finally:
            self._held_below = self._records.held_bytes
            if self._records.is_established and not was_established:
                self._tls.established()

    def _work(self) -> None:
        """Answer what waits, as far as the peer reads."""
        written: list[bytes] = []
        size = routes = 0
        has_asked = bool(self._waiting)
        began_ns = perf_counter_ns()
        while self._waiting and not (self._is_paused or self._is_closing or self._is_in_turn):
            frame = self._waiting.popleft()
            if len(frame) > _DEAR_BYTES:
                self._write(written)
                written, size = [], 0
                self._is_in_turn = True
                self._turns.add(self._answer_in_turn(frame, began_ns))
                continue
            try:
                answer = self._prepared.answer(frame)
                if answer is None:
                    answer = at_once(self._answering(frame, began_ns))
                else:
                    routes += 1
            except RemotingError as error:
                self._waiting.clear()
                self._break(error)
                break
            if answer is not None:
                written.append(answer)
                size += len(answer)
                if size >= _GATHERED_BYTES:
                    self._write(written)
                    written, size = [], 0
        self._write(written)
        if routes:
            self._figures.routes_answered(routes, perf_counter_ns() - began_ns)
        if self._is_in_turn:
            self._pause_reading()  # what came meanwhile would have to be kept
            return
        if self._waiting or self._is_closing:
            return
        if self._is_broken:
            self.close("protocol error")
        elif self._is_leaving and has_asked and not self._held_bytes:
            self.close(STOPPING)

    def _answer_in_turn(self, frame: bytes, began_ns: int) -> Iterator[None]:
        """Answer a dear request, in its turn among all connections' ones, and then what waits behind it."""
        try:
            answer = None if self._is_closing else (yield from self._answering(frame, began_ns))
            if answer is not None:
                self._write([answer])
        except RemotingError as error:
            self._waiting.clear()
            self._break(error)
        finally:
            self._is_in_turn = False
        self._work()
        self._resume_reading()

    def _break(self, error: RemotingError) -> None:
        if not self._is_broken:  # a second error of the same peer: the first one is told
            self._is_broken = True
            self._owner.broken(self, error)
            self._tls.broken(error)

    def _answering(self, frame: bytes, began_ns: int) -> Generator[None, None, bytes | None]:
        request = decode_frame(frame)
        if request.is_response:
            return None  # we ask nobody, so this answers nothing
        try:
            call = Call(request, self._origin, self._clock.monotonic_ms(), self._caller)
            answer = yield from process_in_steps(self._server, call)
            response = None if self._is_closing else self._act(request, answer, began_ns)
            if response is None:
                return None  # later, or the peer went meanwhile
        except Exception:
            # A fault of ours is no reason to close, which would count as the death of the peer's brokers.
            self._owner.failed(self, request.code)
            response = response_to(request, ResponseCode.SYSTEM_ERROR, "the request failed unexpectedly")
        self._prepared.keep(frame, request, response)  # unless it is oneway
        encoded = None if request.is_oneway else _encoded(request, response)
        self._figures.answered(request.code, response.code, perf_counter_ns() - began_ns)
        return encoded

    def _act(self, request: RemotingCommand, answer: Answer, began_ns: int) -> RemotingCommand | None:
        """Do what was accepted; the response, or None where it waits for the log."""
        if answer.accepted:
            if answer.is_logged_first:
                return self._change(request, answer, began_ns)
            self._remember(answer.accepted)
            self._gateway.accept(answer.accepted)
        if answer.options:
            self._gateway.view.reconfigure(answer.options)
        return answer.response

    def _change(self, request: RemotingCommand, answer: Answer, began_ns: int) -> RemotingCommand | None:
        """Hand an operator's change to the log; an answer only where it takes none."""

        def settled(error: NamesrvStreamError | None) -> None:
            self._changes -= 1
            if error is None and answer.options:
                self._gateway.view.reconfigure(answer.options)
            response = error_response(request, error) if error else answer.response
            if not request.is_oneway:
                self._write([_encoded(request, response)])
            self._figures.answered(request.code, response.code, perf_counter_ns() - began_ns)
            if self._is_closing:
                self.close(self._end)

        try:
            if self._changes >= self._limits.max_requests_in_flight:
                raise SystemBusy(f"{self._changes} changes of this connection wait for the log already")
            self._gateway.change(answer.accepted, settled)
        except RequestError as error:
            return error_response(request, error)
        self._changes += 1
        return None

    def _remember(self, accepted: tuple[Accepted, ...]) -> None:
        for event, _ in accepted:
            if isinstance(event, BrokerRegistered):
                self._registered[LeaseKey(event.registration.broker_name, event.registration.live_key)] = None
            elif isinstance(event, BrokerHeartbeat) and event.proof is Proof.REGISTRATION:
                self._registered[LeaseKey(event.broker_name, event.live_key)] = None

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if not (self._is_paused or self._is_in_turn):
            self._transport.resume_reading()

    def _write(self, written: list[bytes]) -> None:
        if written and self._transport is not None:
            self._transport.write(b"".join(written) if len(written) > 1 else written[0])


def _encoded(request: RemotingCommand, response: RemotingCommand) -> bytes:
    try:
        return encode_frame(response)
    except ValueError as error:
        remark = f"the answer cannot be written: {error}"
        return encode_frame(response_to(request, ResponseCode.SYSTEM_ERROR, remark))
