"""One TCP connection of a broker, client or tool: bytes in, answers out.

Answers to what one read brought go out in few writes; a peer that does not read them gets no further ones, however
many it asked for. A dear request, such as a registration of many topics, takes its turn among those of all connections,
one in a turn of the event loop, so that other peers' questions wait for one at most; what its peer asks behind it is
read when it is answered. While too much of that waits, a peer that is sending one is not read on, and has all the time
for it. A frame that breaks the protocol closes this connection and nothing else; the sound frames before it are
answered. A connection that we close ourselves stays until an operator's changes are answered, which wait for the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Final, cast

from namesrv_stream.clock import Clock
from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.name_server import NameServer, Peer
from namesrv_stream.processor.prepared import PreparedAnswers
from namesrv_stream.remoting.frame import Frame
from namesrv_stream.route.events import BrokerHeartbeat, Origin, Proof
from namesrv_stream.server.answering import DEAR_BYTES, Answering
from namesrv_stream.server.connection_owner import ConnectionOwner
from namesrv_stream.server.gateway import Gateway
from namesrv_stream.server.incoming import Incoming
from namesrv_stream.server.long_frame import LongFrameProtocol
from namesrv_stream.server.native.hand_over import HandOver
from namesrv_stream.server.native.lane import NativeLane
from namesrv_stream.server.opening import host_of
from namesrv_stream.server.pace import ReadingPace
from namesrv_stream.server.request_figures import RequestFigures
from namesrv_stream.server.tls import ServerTls
from namesrv_stream.server.turns import Turns
from namesrv_stream.settings import RemotingSettings

logger = logging.getLogger(__name__)

#: Why ``Connections`` closes one on which nothing moves.
IDLE: Final = "idle for too long"
#: Why it closes all.
STOPPING: Final = "the server stops"
#: Answers are gathered up to so many bytes before they are written.
_GATHERED_BYTES: Final = 64 * 1024
#: How RocketMQ's clients begin a frame's header, behind two lengths; other beginnings take the general way.
_ROUTE_QUERY: Final = b'{"code":105,'


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
        pace: ReadingPace,
        native_lane: NativeLane | None,
    ) -> None:
        self.connection_id = connection_id
        self.active_ms = gateway.observed_ms
        self.host = ""
        self.peer = "?"
        self._prepared = prepared
        self._gateway = gateway
        self._owner = owner
        self._figures = figures
        self._turns = turns
        self._pace = pace
        self._native_lane = native_lane
        self._origin = origin._replace(connection_id=connection_id)
        self._answering = Answering(
            *(server, prepared, gateway, clock, figures, self._origin, limits.max_requests_in_flight),
            on_settled=self._settled,
            on_fault=lambda code: owner.failed(self, code),
            on_refused=lambda reason: owner.denied(self, reason),
        )
        self._tls = tls
        self._incoming: Incoming | None = None  # both are there while there is a connection
        self._transport: asyncio.Transport | None = None
        self._hand_over: HandOver | None = None
        self._held_bytes = 0  # that the owner was told of
        self._limits = limits
        self._waiting: deque[Frame] = deque()  # frames to answer once the peer reads again
        self._is_plain = False  # what is read is what the peer says: neither TLS nor a preamble before it
        self._is_paused = False
        self._is_in_turn = False  # a dear request; what waits is behind it
        self._is_held_back = False  # what it begins to send is dear, and too much of that waits already
        self._is_paced = False  # others' long frames are read first
        self._is_broken = False  # no byte behind ``_waiting`` means anything
        self._is_closing = False
        self._is_leaving = False  # the next answer is the last
        self._end = ""  # why we close it; "" as long as we do not

    # ---- asyncio's callbacks ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._incoming = Incoming(self._transport, self._tls, self._limits.max_frame_bytes)
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        self._hand_over = HandOver(self._native_lane, self, self._transport)
        address = transport.get_extra_info("peername")
        self.host = host_of(address[0]) if address else ""
        self._know(Peer(self.host, False), f"{address[0]}:{address[1]}" if address else "?")
        if not self._owner.opened(self):
            self.close("too many connections")

    def data_received(self, data: bytes) -> None:
        if not (self._is_plain and data.startswith(_ROUTE_QUERY, 8) and self._answer_alone(data)):
            self._receive(data)

    def _answer_alone(self, data: bytes) -> bool:
        """Answer what one read brought, if that is one query with a prepared answer: most are."""
        if (
            self._hand_over is None
            or self._held_bytes
            or self._waiting
            or self._is_in_turn
            or self._is_paused
            or self._is_closing
            or self._is_leaving
            or self._is_broken
            or self._answering.changes  # which are answered whenever the log has them
            or int.from_bytes(data[:4], "big") != len(data) - 4
            or len(data) > DEAR_BYTES
        ):
            return False
        began_ns = perf_counter_ns()
        frame = data[4:]
        answer = self._prepared.answer(frame)
        if answer is None:
            return False
        self.active_ms = self._gateway.observed_ms
        self._hand_over.answer(frame, answer)
        self._figures.routes_answered(1, perf_counter_ns() - began_ns)
        return True

    def _receive(self, data: bytes) -> None:
        incoming = self._incoming
        if self._is_closing or self._is_broken or incoming is None:
            return
        error: RemotingError | None = None
        try:
            frames = incoming.feed(data)
        except RemotingError as broken:
            frames, error = incoming.frames_before_error, broken
        self._transport = incoming.transport
        self._is_plain = incoming.is_plain
        if incoming.proxied_for and not self._answering.caller.is_proxied:
            self._know(self._answering.caller._replace(is_proxied=True), f"{self.peer} for {incoming.proxied_for}")
        self._take_in(incoming, frames, len(data), error)

    def _room(self) -> memoryview:
        assert self._incoming is not None
        return self._incoming.room()

    def _filled(self, size: int) -> None:
        if self._incoming is not None and not self._is_closing:
            self._take_in(self._incoming, self._incoming.filled(size), size)
        else:
            self._read_in_place(is_wanted=False)  # but by ``data_received``, which drops what comes

    def _take_in(self, incoming: Incoming, frames: list[Frame], size: int, error: RemotingError | None = None) -> None:
        """Work on what so many bytes have brought."""
        self.active_ms = self._gateway.observed_ms
        self._waiting.extend(frames)
        is_in_place = self._is_plain and incoming.held_bytes > DEAR_BYTES
        if is_in_place:
            incoming.room()  # now, so that all of what is held is told to the owner
        held = incoming.held_bytes
        if max(held, self._held_bytes, size) > DEAR_BYTES:
            self._pace.read(self, size, is_amid=held > DEAR_BYTES)
        if error is not None:
            self._break(error)
        elif held or self._held_bytes:
            self._held_bytes = held
            self._owner.holds(self, held, is_new=bool(frames))
        self._work()
        if self._held_bytes > DEAR_BYTES and self._turns.is_full and not self._is_held_back:
            self._is_held_back = True
            self._gateway.backlog.wait(self)
            self._turns.when_free(self._listen)
            self._read_or_pause()
        if self._is_plain:
            self._read_in_place(is_wanted=is_in_place)

    def _read_in_place(self, *, is_wanted: bool) -> None:
        """Whether what a plain peer sends next belongs to a long frame of which some has come, and to no other."""
        transport = self._transport
        if transport is None or transport.is_closing() or is_wanted is (transport.get_protocol() is not self):
            return
        transport.set_protocol(LongFrameProtocol(self, self._room, self._filled) if is_wanted else self)

    def pause_writing(self) -> None:
        # Called from within a write, too. A peer that does not read its answers is not asked for further questions.
        self._is_paused = True
        self._read_or_pause()
        if self._transport is not None and not self._transport.is_closing():
            self._owner.stalled(self)

    def resume_writing(self) -> None:
        self._is_paused = False
        self._owner.flows(self)
        self._work()
        self._read_or_pause()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._waiting.clear()
        self._pace.forget(self)
        if self._hand_over is not None:
            self._hand_over.release()
        self._owner.closed(self)
        self._gateway.backlog.read_again(self)
        self._gateway.backlog.worked_on(self)
        # That this server closes a connection says nothing about the brokers at its other end.
        if self.has_brokers and not self._end:
            reason = "closed by the peer" if exc is None else f"closed by the peer: {exc}"
            self._gateway.disconnected(
                self.connection_id, self._answering.registered, f"connection {self.peer} {reason}"
            )
        self._transport = self._incoming = self._hand_over = None

    # ---- ours ----

    def close(self, reason: str) -> None:
        """Close from our side, once what is written has gone out and no operator's change waits for the log."""
        self._end = reason
        self._is_closing = True
        if self._hand_over is not None:
            self._hand_over.take_back()
        if self._transport is not None and not self._is_handed_over and not self._answering.changes:
            self._transport.close()

    def leave(self) -> None:
        """Close behind the next answer: its peer asks elsewhere from then on, and no request of its is under way.

        Differs from RocketMQ, whose graceful shutdown answers GO_AWAY to requests of 5.3.2 and later: such a client
        then connects to the same address again, which for a name server is the one that ends.
        """
        self._is_leaving = True
        if self._hand_over is not None:
            self._hand_over.take_back()
        self._read_or_pause()

    def abort(self, reason: str) -> None:
        """Close from our side at once: its peer may never read what is written."""
        self._end = reason
        self._is_closing = True
        if self._hand_over is not None:
            self._hand_over.release()
        if self._transport is not None:
            self._transport.abort()

    def broker_expired(self) -> None:
        """A broker that registered over this connection has expired: close, unless one of the others is heard over it.

        Differs from RocketMQ: it closes the connection whatever else came over it, and so ends all the brokers that
        share it (a BrokerContainer's) with one of them. Nor does it close while a request waits, which may register
        the broker again.
        """
        if self.is_waiting or self._waiting or self._held_bytes:
            return
        if not any(self._gateway.view.is_held(key, self._origin.holder) for key in self._answering.registered):
            logger.info("connection closed, its brokers have expired peer=%s", self.peer)
            self.close("expired")

    def returned(self, unread: bytes, unsent: bytes) -> None:
        """The native lane has what it does not answer, or the end, and perhaps a part of an answer that is left."""
        if self._hand_over is None:
            return
        self._hand_over.is_handed_over = False
        self.active_ms = self._gateway.observed_ms
        try:
            if unsent:
                self._write([unsent])
            if self._is_closing:
                self.close(self._end)
            elif unread:
                self.data_received(unread)
        except Exception:
            self.abort("a fault of ours")
            raise
        self._read_or_pause()

    def hold_back(self, *, is_held: bool) -> None:
        """Read no further, or do, as ``ReadingPace`` asks; the time that the peer has for a frame runs on."""
        self._is_paced = is_held
        if is_held:
            self._gateway.backlog.wait(self)
        self._read_or_pause()

    def heartbeats(self) -> Iterator[BrokerHeartbeat]:
        """The signs of life of the brokers that are heard over this connection."""
        for key in self._answering.registered:
            if self._gateway.view.is_held(key, self._origin.holder):
                yield BrokerHeartbeat(self._origin, *key, Proof.HEARTBEAT)

    @property
    def has_brokers(self) -> bool:
        """Whether brokers registered over this connection."""
        return bool(self._answering.registered)

    @property
    def _is_handed_over(self) -> bool:
        return self._hand_over is not None and self._hand_over.is_handed_over

    @property
    def is_waiting(self) -> bool:
        """Whether the peer waits for us, who do not even read what it sends."""
        return self._is_in_turn or self._is_held_back

    @property
    def unread_bytes(self) -> int:
        """Answers that wait for the peer to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _know(self, caller: Peer, name: str) -> None:
        self.peer = name
        self._answering.caller = caller

    def _work(self, *, has_answered: bool = False) -> None:
        """Answer what waits, as far as the peer reads; behind a dear request if that ``has_answered``."""
        written: list[bytes] = []
        size = routes = 0
        has_asked = has_answered or bool(self._waiting)
        began_ns = perf_counter_ns()
        while self._waiting and not (self._is_paused or self._is_closing or self._is_in_turn):
            frame = self._waiting.popleft()
            if len(frame) > DEAR_BYTES:
                self._write(written)
                written, size = [], 0
                self._is_in_turn = True
                self._gateway.backlog.wait(self)
                self._turns.add(self._answer_in_turn(frame, began_ns), len(frame))
                continue
            frame = bytes(frame)  # what it is, unless it came in parts
            try:
                answer = self._answering.said_again(frame, began_ns)
                if answer is None:
                    answer = self._prepared.answer(frame)
                    if answer is None:
                        answer = self._answering.at_once(frame, began_ns)
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
        took_ns = perf_counter_ns() - began_ns
        if routes:
            self._figures.routes_answered(routes, took_ns)
        self._answering.count_said_again(took_ns)
        if self._is_in_turn:
            self._read_or_pause()  # what came meanwhile would have to be kept
            return
        if self._waiting or self._is_closing:
            return
        if self._is_broken:
            self.close("protocol error")
        elif self._is_leaving and has_asked and not self._held_bytes:
            self.close(STOPPING)

    def _answer_in_turn(self, frame: Frame, began_ns: int) -> Iterator[None]:
        """Answer a dear request, in its turn among all connections' ones, and then what waits behind it."""
        steps = self._answering.in_steps(frame, began_ns)
        try:
            while not self._is_closing:  # who went is not answered, and nothing that it said was done
                next(steps)
                yield
        except StopIteration as end:
            self._write([] if end.value is None else [end.value])
        except RemotingError as error:
            self._waiting.clear()
            self._break(error)
        finally:
            self._is_in_turn = False
            self._gateway.backlog.worked_on(self)
        self._work(has_answered=True)
        self._listen()

    def _listen(self) -> None:
        """Read again, if nothing else is against it: the time that the peer has for a frame begins anew."""
        self._is_held_back = False
        self.active_ms = self._gateway.observed_ms
        if self._held_bytes and not self._is_closing:
            self._owner.holds(self, self._held_bytes, is_new=True)
        self._read_or_pause()

    def _break(self, error: RemotingError) -> None:
        if not self._is_broken:  # a second error of the same peer: the first one is told
            self._is_broken = True
            self._owner.broken(self, error)
            self._tls.broken(error)

    def _settled(self, answer: bytes | None) -> None:
        """An operator's change is in the log, or will not be."""
        if answer is not None:
            self._write([answer])
        if self._is_closing:
            self.close(self._end)

    def _read_or_pause(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        is_waiting = self._is_paced or self.is_waiting
        if not is_waiting:
            self._gateway.backlog.read_again(self)
        if self._is_paused or self._is_handed_over or is_waiting:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _write(self, written: list[bytes]) -> None:
        if written and self._transport is not None:
            self._transport.write(b"".join(written) if len(written) > 1 else written[0])
