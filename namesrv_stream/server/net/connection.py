"""One TCP connection of a broker, client or tool: its bytes become frames, and its requests are answered in order.

A connection has a ``Phase``, which only changes to a later one:

    OPEN      requests are read and answered
    LEAVING   it closes after the next answer, when no other request waits
    CLOSING   it closes once all answers are sent and no operator's change waits for the log; nothing is answered
    CLOSED    everything it held is dropped

It is read while it has no ``Pause``. Requests that wait, and the bytes behind them, stay in ``inbound``:

    SLOW_READER   the peer does not read its answers        until the transport's buffer is empty enough
    TURN          its requests, or the rest of a large one, wait for a turn (``server.turns``)
    LONG          one request takes long: another process decodes it, it waits for room in the publish queue, or its
                  answer is computed in pieces
    LANE          the lane reads the connection             until the lane returns it

During SLOW_READER and LONG, requests are not answered either. A frame that breaks the protocol closes only this
connection, after the answers to the valid frames before it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from time import perf_counter_ns
from typing import Final, cast

from namesrv_stream.addresses import join_addr, plain_host
from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.authorisation import BROKER_CODES, is_within
from namesrv_stream.processor.name_server import DecodedBody, Peer
from namesrv_stream.processor.register_body import RegistrationBody
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.route.events import BrokerHeartbeat
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.server.net.connections import STOPPING
from namesrv_stream.server.net.inbound import Inbound
from namesrv_stream.server.net.response_cache import is_route_query
from namesrv_stream.server.net.session import Services, Session
from namesrv_stream.server.turns import Queue

logger = logging.getLogger(__name__)


class Phase(Enum):
    """The phases of the table above."""

    OPEN = "open"
    LEAVING = "leaving"
    CLOSING = "closing"
    CLOSED = "closed"


class Pause(Enum):
    """The reasons of the table above for which a connection is not read."""

    SLOW_READER = "slow reader"
    TURN = "turn"
    LONG = "long request"
    LANE = "lane"


_UNANSWERED: Final = frozenset((Pause.SLOW_READER, Pause.LONG))
#: Pauses in which requests wait until something else happens.
_WAITING: Final = frozenset((Pause.SLOW_READER, Pause.LONG, Pause.TURN))
#: Pauses during which the peer waits for this server.
_DELAYED: Final = frozenset((Pause.LONG, Pause.TURN))

#: An incomplete request of more bytes waits for a turn to be read further. The longest query has some hundred bytes.
_LARGE_BYTES: Final = 16 * 1024
#: Answers are collected up to this size before they are written.
_GATHERED_BYTES: Final = 64 * 1024


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
        self._services, self._owner, self._turns = services, services.connections, services.turns
        self._listener = listener
        self._session = Session(services, self)
        self._phase = Phase.OPEN
        self._pauses: set[Pause] = set()
        self._is_read = True  # whether the transport reads
        self._reason = ""  # why this server closes the connection; "" while it does not
        self._again: tuple[RemotingCommand, DecodedBody | None] | None = None  # to be answered in a later turn
        self._large_bytes = 0
        self._cancel: Callable[[], object] | None = None  # cancels the decoding of a large request
        self._done = self._done_before = self._leaves_after = 0  # requests that were processed
        self._held_bytes = 0
        self._delayed_since_ms: int | None = None

    # ---- asyncio's callbacks ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        services, limits = self._services, self._owner.limits
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of asyncio's
        self._transport.set_write_buffer_limits(high=limits.write_buffer_bytes)
        self._inbound = Inbound(self._transport, services.tls, limits.max_frame_bytes)
        sock = transport.get_extra_info("socket")
        self._fd: int | None = None if sock is None else sock.fileno()
        if address := transport.get_extra_info("peername"):
            self.host, self.peer = plain_host(address[0]), join_addr(*address[:2])
        self._session.caller = Peer(self.host, False, self.host, self._listener)
        if not self._owner.opened(self):
            self.close("too many connections")

    def data_received(self, data: bytes) -> None:
        if self._phase not in (Phase.OPEN, Phase.LEAVING):
            return
        self.active_ms = self._services.gateway.observed_ms
        began_ns, inbound = perf_counter_ns(), self._inbound
        inbound.add(data)
        if inbound.proxied_for and not self._session.caller.is_proxied:
            self._session.caller = Peer(self.host, True, self._client_host(inbound.proxied_host), self._listener)
            self.peer = f"{self.peer} for {inbound.proxied_for}"
        self._transport = inbound.transport
        self._proceed(began_ns)

    def _client_host(self, proxied_host: str) -> str:
        """Return the address that chooses the address view: that of a trusted proxy's client, otherwise the peer's."""
        is_trusted = is_within(self.host, self._services.name_server.access.proxy_networks)
        return proxied_host if is_trusted and proxied_host else self.host

    def pause_writing(self) -> None:
        # Stop reading requests from a peer that does not read its answers. A write may call this method, too.
        self._pause(Pause.SLOW_READER)
        if not self._transport.is_closing():
            self._owner.stalled(self)

    def resume_writing(self) -> None:
        self._owner.flows(self)
        self._pauses.discard(Pause.SLOW_READER)
        self._proceed(perf_counter_ns())

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = Phase.CLOSED
        self._drop()
        self._owner.closed(self)
        # If this server closes a connection, that proves nothing about the brokers at the other end.
        registered, self._session.registered = self._session.registered, {}
        if registered and not self._reason:
            reason = f"connection {self.peer} closed by the peer{f': {exc}' if exc is not None else ''}"
            steps = self._services.gateway.disconnected(self.connection_id, registered, reason)
            self._turns.run(steps, Queue.VITAL)

    # ---- requests ----

    @property
    def _queue(self) -> Queue:
        """The queue in which waiting requests of this connection belong. All requests of a broker are vital."""
        is_vital = self._again or self._session.registered or self._inbound.next_code() in BROKER_CODES
        return Queue.VITAL if is_vital else Queue.OTHERS

    def work(self, until_ns: int) -> None:
        """Answer waiting requests in a turn, or read the rest of a large one."""
        self._pauses.discard(Pause.TURN)  # but the connection is not read before ``_continue``
        if self._phase is not Phase.CLOSED:
            self._answer(until_ns)
            self._continue(has_turn=True)

    def _answer(self, until_ns: int) -> None:
        """Answer requests up to a moment, or to one that takes long, unless the peer does not read."""
        answers: list[bytes] = []
        query, size, before, is_broken = b"", 0, self._done, False
        if self._again is not None:
            self._answer_again(*self._again)
        try:
            while self._pauses.isdisjoint(_UNANSWERED):
                frame = self._inbound.take()
                if frame is None:
                    break
                answer = self._session.answer(frame)
                if Pause.LONG in self._pauses:
                    break  # the answer follows
                self._done += 1
                if answer is not None:
                    query = frame
                    answers.append(answer)
                    size += len(answer)
                    if size >= _GATHERED_BYTES and self._inbound.has_frames:
                        self._write(b"".join(answers))
                        answers, size = [], 0
                if perf_counter_ns() >= until_ns:
                    break
        except RemotingError as error:
            # The error must not outlive this block: its traceback refers to this frame, so both would stay in memory.
            is_broken = True
            self._owner.broken(self, error)
            self._services.tls.broken(error)
        finally:
            if answers:
                is_lone = self._done == before + 1 and is_route_query(query) and not self._inbound.held_bytes
                self._write(b"".join(answers), query if is_lone else b"")
        if self._done > before:
            self._services.gateway.backlog.worked_on(self)
        if is_broken:
            self.close("protocol error")

    def decode(self, request: RemotingCommand, body: RegistrationBody) -> None:
        """Let another process decode the body of the current request, which is then answered in a turn."""
        self._begin_long(len(body.body))
        self._cancel = self._services.decoder.decode(body, partial(self._decoded, request))

    def _decoded(self, request: RemotingCommand, body: DecodedBody) -> None:
        self._cancel = None
        if self._phase in (Phase.OPEN, Phase.LEAVING):
            self._again = request, body
            self._wait(Queue.VITAL)

    def wait_for_room(self, request: RemotingCommand) -> None:
        """Answer the current request in a turn after there is room in the publish queue."""
        self._begin_long(len(request.body or b""))
        self._again = request, None
        self._turns.wait(self, Queue.LOGGED)

    def _begin_long(self, size: int) -> None:
        self._set_large(size)
        self._pause(Pause.LONG)
        self._services.gateway.backlog.wait(self, is_unread=False)

    def _answer_again(self, request: RemotingCommand, body: DecodedBody | None) -> None:
        self._again = None
        self._set_large(0)
        self._pauses.discard(Pause.LONG)
        answer = self._session.answer_again(request, body)
        if Pause.LONG not in self._pauses:  # after it had room, it may have to be decoded
            self._done += 1
        if answer is not None:
            self._write(answer)

    def _set_large(self, size: int) -> None:
        if size != self._large_bytes:
            self._owner.large(size - self._large_bytes)
            self._large_bytes = size

    def answer_later(self) -> None:
        """Answer no further requests until ``answered`` is called with the answer to the current one."""
        self._pause(Pause.LONG)
        if self.has_brokers:
            self._services.gateway.backlog.wait(self, is_unread=False)

    def answered(self, answer: bytes | None) -> None:
        if self._phase is not Phase.CLOSED:
            self._pauses.discard(Pause.LONG)
            self._done += 1
            if answer is not None:
                self._write(answer)
            self._proceed(perf_counter_ns())

    def _proceed(self, began_ns: int) -> None:
        """Answer what waits at once, if there is room for that since ``began_ns``; then ``_continue``."""
        turns, may_answer = self._turns, self._inbound.has_frames and self._pauses.isdisjoint(_WAITING)
        is_early = perf_counter_ns() < began_ns + turns.piece_ns  # copying the bytes of a large request takes long, too
        if may_answer and is_early and (turns.has_room(Queue.OTHERS) or turns.has_room(self._queue)):
            self._answer(began_ns + turns.piece_ns)
        self._continue()
        turns.spent(perf_counter_ns() - began_ns)

    def _continue(self, *, has_turn: bool = False) -> None:
        """Count what is held; then read on, or wait for a turn if requests or much of a large one remain."""
        if self._phase in (Phase.CLOSING, Phase.CLOSED):
            return
        self._hold()
        if not self._pauses.isdisjoint(_WAITING):
            return
        if self._inbound.has_frames:
            self._wait(self._queue)
        elif self._held_bytes > _LARGE_BYTES and not (has_turn or self._turns.has_room(Queue.READERS)):
            self._wait(Queue.READERS)
        elif self._phase is Phase.LEAVING and self._done > self._leaves_after and not self._held_bytes:
            self.close(STOPPING)
        else:
            self._read_on()

    def _hold(self) -> None:
        """Count the received bytes that wait: an incomplete request, and those that are not answered."""
        held_bytes = self._inbound.held_bytes + self._large_bytes
        if held_bytes or self._held_bytes:
            self._owner.holds(self, held_bytes, is_new=self._done != self._done_before)
        self._held_bytes, self._done_before = held_bytes, self._done

    # ---- reading ----

    def _wait(self, queue: Queue) -> None:
        self._pause(Pause.TURN)
        if queue is not Queue.OTHERS:
            self._services.gateway.backlog.wait(self, is_unread=queue is Queue.VITAL)
        self._turns.wait(self, queue)

    def _pause(self, reason: Pause) -> None:
        if reason in _DELAYED and self._delayed_since_ms is None:
            self._delayed_since_ms = self._services.gateway.observed_ms
        self._pauses.add(reason)
        if self._is_read and not self._transport.is_closing():
            self._is_read = False
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Read the connection, unless a pause remains."""
        if self._delayed_since_ms is not None:
            gateway = self._services.gateway
            gateway.backlog.read_again(self)
            # The frame timeout must not include the time during which this server did not read.
            self._owner.partial_frames.postpone(self, gateway.observed_ms - self._delayed_since_ms)
            self.active_ms, self._delayed_since_ms = gateway.observed_ms, None
        if not (self._pauses or self._is_read or self._transport.is_closing()):
            self._is_read = True
            self._transport.resume_reading()

    # ---- writing ----

    def _write(self, answers: bytes, lone_query: bytes = b"") -> None:
        """Write answers. After the answer to a lone route query, hand an idle connection without TLS to the lane."""
        lane = self._owner.lane
        if (
            lone_query
            and lane is not None
            and self._fd is not None
            and not self._pauses
            and not self._session.changes
            and self._phase is Phase.OPEN
            and self._inbound.is_plain
            and not self.unread_bytes
        ):
            unsent = lane.hand_over(self, self._fd, lone_query, answers, self._session.view_number)
            if unsent is None:
                self._pause(Pause.LANE)
                return
            answers = unsent
        if self._phase is not Phase.CLOSED:
            self._transport.write(answers)

    def settled(self, answer: bytes | None) -> None:
        """Write the answer, if any, to an operator's change that is in the log or failed."""
        if answer is not None:
            self._write(answer)
        if self._phase is Phase.CLOSING:
            self.close(self._reason)

    def returned(self, unread: bytes, unsent: bytes) -> None:
        """Continue after the lane returned the connection."""
        self.active_ms = self._services.gateway.observed_ms
        try:
            if unsent:
                self._write(unsent)
            self._pauses.discard(Pause.LANE)
            if self._phase is Phase.CLOSING:
                self.close(self._reason)
            elif unread:
                self.data_received(unread)
            else:
                self._read_on()
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
            self._phase, self._leaves_after = Phase.LEAVING, self._done
        if self._owner.take_back(self) and Pause.LANE in self._pauses:
            self._pauses.discard(Pause.LANE)
            self._read_on()

    def abort(self, reason: str) -> None:
        """Close at once, without waiting for unsent answers, which the peer may never read."""
        self._end(reason)
        self._owner.release(self)
        self._transport.abort()

    def broker_expired(self, key: LeaseKey) -> None:
        """Forget an expired broker. Close, unless other brokers are registered over this connection.

        The connection also stays open while a request waits, because a waiting request may register the broker again.

        Differs from RocketMQ, which always closes the connection. This removes all brokers of a BrokerContainer,
        because they share one connection.
        """
        self._session.registered.pop(key, None)
        if not (self._session.registered or self.is_waiting or self._held_bytes):
            logger.info("closing connection of expired brokers peer=%s", self.peer)
            self.close("expired")

    def _end(self, reason: str) -> None:
        self._reason = reason
        if self._phase is not Phase.CLOSED:
            self._phase = Phase.CLOSING
        self._drop()

    def _drop(self) -> None:
        """Drop everything that was received and is not answered."""
        self._inbound.end()
        self._again = None
        self._set_large(0)
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        backlog = self._services.gateway.backlog
        backlog.read_again(self)
        backlog.worked_on(self)

    # ---- state, for ``Connections`` and ``Backlog`` ----

    def heartbeats(self) -> Iterator[BrokerHeartbeat]:
        return self._session.heartbeats()

    @property
    def has_brokers(self) -> bool:
        return bool(self._session.registered)

    @property
    def is_waiting(self) -> bool:
        """Whether the server delays the peer: it does not read the connection because requests wait."""
        return not self._pauses.isdisjoint(_DELAYED)

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the peer has not read."""
        return self._transport.get_write_buffer_size()
