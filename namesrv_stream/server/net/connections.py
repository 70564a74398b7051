"""All connections of a server: counts them, limits their number and memory, and closes those that make no progress."""

import asyncio
import contextlib
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from ipaddress import IPv6Address, IPv6Network
from itertools import count
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from namesrv_stream.errors import RemotingError
from namesrv_stream.logs import safe
from namesrv_stream.metrics import Counters
from namesrv_stream.processor.register_body import RegistrationBody
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.route.events import BrokerHeartbeat
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.steps import finish
from namesrv_stream.server.native.lane import Lane
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.turns import Queue, Turns
from namesrv_stream.settings import RemotingSettings

H = TypeVar("H", bound=Hashable)


class _Held(NamedTuple):
    since_ms: int
    size: int


class PartialFrames(Generic[H]):
    """The bytes of incomplete frames, preambles and TLS handshakes by holder (a connection), the oldest first.

    Normal peers complete a frame within milliseconds. Above the limit in bytes, the oldest holder is therefore removed
    first; holders for which ``is_spared`` is true come last.

    Attributes:
        size: Total number of bytes.
    """

    def __init__(self, limit: int, is_spared: Callable[[H], bool] = lambda _: False) -> None:
        self.size = 0
        self._limit = limit
        self._is_spared = is_spared
        self._held: dict[H, _Held] = {}

    def hold(self, holder: H, size: int, now_ms: int, *, is_new: bool) -> list[H]:
        """Set the bytes of ``holder``, which begin a new frame if ``is_new``; ``now_ms`` is observed time.

        Remove and return the holders that exceed the limit, of which ``holder`` may be one.
        """
        before = self._held.get(holder)
        if before is not None and (is_new or not size):
            self.forget(holder)
            before = None
        if size:
            self._held[holder] = _Held(before.since_ms if before else now_ms, size)
            self.size += size - (before.size if before else 0)
        gone = []
        while self.size > self._limit:
            one = next((h for h in self._held if not self._is_spared(h)), None) or next(iter(self._held))
            self.forget(one)
            gone.append(one)
        return gone

    def forget(self, holder: H) -> None:
        held = self._held.pop(holder, None)
        if held is not None:
            self.size -= held.size

    def postpone(self, holder: H, by_ms: int) -> None:
        """Exclude ``by_ms``, for which the server did not read from the holder, from the age of the holder's bytes."""
        held = self._held.get(holder)
        if held is not None:
            self._held[holder] = held._replace(since_ms=held.since_ms + by_ms)

    def older_than(self, since_ms: int) -> list[H]:
        return [holder for holder, held in self._held.items() if held.since_ms < since_ms]


logger = logging.getLogger(__name__)

#: Reasons why connections are closed.
STOPPING: Final = "the server stops"
_IDLE: Final = "idle for too long"
_LATE: Final = "its request was not complete in time"
_CROWDED: Final = "incomplete requests of all connections exceed the limit, and its own is the oldest"
_NOT_READING: Final = "it did not read its answers"
_UNREAD: Final = "unread answers of all connections exceed the limit, and its own are the largest"
#: One part in so many of all connections is for addresses from which a broker has registered within two days. (An
#: unchanged registration may be answered from a cache, but not longer than for a day.)
_RESERVED_PART: Final = 10
_RESERVED_MS: Final = 2 * 86_400_000
#: Name of the counter for connection events.
CONNECTION_EVENTS: Final = "rocketmq_namesrv_connection_events_total"


class Connection(Hashable, Protocol):
    """The interface of ``RemotingConnection`` that other components of the server use."""

    connection_id: int
    active_ms: int
    host: str
    peer: str

    @property
    def has_brokers(self) -> bool: ...
    @property
    def is_waiting(self) -> bool: ...
    @property
    def unread_bytes(self) -> int: ...

    def heartbeats(self) -> Iterator[BrokerHeartbeat]: ...
    def returned(self, unread: bytes, unsent: bytes) -> None: ...
    def settled(self, answer: bytes | None) -> None: ...
    def decode(self, request: RemotingCommand, body: RegistrationBody) -> None: ...
    def wait_for_room(self, request: RemotingCommand) -> None: ...
    def answer_later(self) -> None: ...
    def answered(self, answer: bytes | None) -> None: ...
    def broker_expired(self, key: LeaseKey) -> None: ...
    def leave(self) -> None: ...
    def close(self, reason: str) -> None: ...
    def abort(self, reason: str) -> None: ...


class Connections:
    """The open connections by id, and the limits for each of them and for all together."""

    def __init__(
        self, limits: RemotingSettings, peer_log: PeerLog, counters: Counters, turns: Turns, lane: Lane | None = None
    ) -> None:
        self.limits = limits
        self._turns = turns
        self._is_checking = False
        self._large_bytes = 0
        self._counters = counters
        self._peer_log = peer_log
        self.lane = lane
        self._open: dict[int, Connection] = {}
        self._ids = count(1)
        self._addresses = AddressCounts()
        self._of_brokers: OrderedDict[str, int] = OrderedDict()  # address → observed time of the last registration
        self._stalled: dict[Connection, int] = {}  # stalled since this observed time, oldest first
        self.partial_frames: PartialFrames[Connection] = PartialFrames(
            limits.partial_frames_bytes, is_spared=lambda connection: connection.has_brokers
        )
        self._all_left = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open.values())

    def next_id(self) -> int:
        return next(self._ids)

    # ---- called by connections ----

    def opened(self, connection: Connection) -> bool:
        """Add a connection; return whether it may stay open."""
        self._open[connection.connection_id] = connection
        limits, of_address = self.limits, self._addresses.enter(connection.host)
        limit = limits.max_connections
        registered_ms = self._of_brokers.get(peer_of(connection.host))
        if registered_ms is None or connection.active_ms - registered_ms > _RESERVED_MS:
            limit -= limit // _RESERVED_PART
        if len(self._open) > limit:
            text = "connection refused, too many are open peer=%s limit=%d"
            self._warn(text, connection.peer, limit)
            self._count("rejected")
            return False
        if of_address > limits.max_connections_per_address:
            text = "connection refused, too many from its address peer=%s limit=%d"
            self._warn(text, connection.peer, limits.max_connections_per_address)
            self._count("rejected_address")
            return False
        self._count("admitted")
        return True

    def closed(self, connection: Connection) -> None:
        if self._open.pop(connection.connection_id, None) is not None:
            self._addresses.leave(connection.host)
        self.release(connection)
        self._stalled.pop(connection, None)
        self.partial_frames.forget(connection)
        if not self._open:
            self._all_left.set()

    def registered(self, connection: Connection) -> None:
        """Keep room for connections of this address, from which a broker has registered."""
        address = peer_of(connection.host)
        self._of_brokers[address] = connection.active_ms
        self._of_brokers.move_to_end(address)
        if len(self._of_brokers) > self.limits.max_connections:
            self._of_brokers.popitem(last=False)

    def broken(self, connection: Connection, error: RemotingError) -> None:
        self._count("broken")
        text = "connection closed, its peer broke the protocol peer=%s reason=%s"
        self._warn(text, connection.peer, safe(str(error)), kind=type(error).__name__)

    def failed(self, connection: Connection, code: int) -> None:
        """Log that a request failed with an internal error, which is the exception that is being handled."""
        text = "request failed unexpectedly peer=%s code=%d"
        self._peer_log.log(logger, logging.ERROR, text, connection.peer, code, kind=str(code), is_fault=True)

    def denied(self, connection: Connection, reason: str) -> None:
        self._warn("request refused peer=%s reason=%s", connection.peer, safe(reason))

    def holds(self, connection: Connection, size: int, *, is_new: bool) -> None:
        """Set the incomplete bytes of a connection to ``size``; ``is_new`` if the frame or preamble has just begun."""
        for gone in self.partial_frames.hold(connection, size, connection.active_ms, is_new=is_new):
            self._abort(gone, _CROWDED, "crowded")
        self._hold_readers()

    def large(self, added_bytes: int) -> None:
        """Count the bytes of requests that another process decodes, or that wait for room in the publish queue."""
        self._large_bytes += added_bytes
        self._hold_readers()

    def _hold_readers(self) -> None:
        """Read no further parts of large requests if half of the limit is used, until complete ones are answered."""
        is_half_used = self.partial_frames.size >= self.limits.partial_frames_bytes // 2
        self._turns.hold(Queue.READERS, is_held=is_half_used and self._large_bytes > 0)

    def stalled(self, connection: Connection) -> None:
        """Record that the peer does not read its answers, until ``flows`` is called."""
        self._stalled.setdefault(connection, connection.active_ms)
        # Only stalled connections: more than ``write_buffer_bytes`` wait on each of them, so they are few.
        finish(self._bound_unread(list(self._stalled)))

    def flows(self, connection: Connection) -> None:
        self._stalled.pop(connection, None)

    def take_back(self, connection: Connection) -> bool:
        """Take a connection back from the lane, if it is there; False while the lane is returning it."""
        return self.lane is None or self.lane.take_back(connection)

    def release(self, connection: Connection) -> None:
        """End the hand-over of a connection that is closed, or closes at once."""
        if self.lane is not None:
            self.lane.release(connection)

    # ---- called by the server ----

    def beat(self, observed_ms: int) -> None:
        """Close connections without progress, by observed time: a stall of the server itself closes none."""
        for connection in self.partial_frames.older_than(observed_ms - self.limits.frame_timeout_ms):
            if not connection.is_waiting:
                self._abort(connection, _LATE, "late")
        for connection, since_ms in list(self._stalled.items()):
            if observed_ms - since_ms > self.limits.slow_reader_ms:
                self._abort(connection, _NOT_READING, "slow_reader")
        if not self._is_checking:
            self._is_checking = True
            self._turns.run(self._check(observed_ms), Queue.OTHERS)

    def _check(self, observed_ms: int) -> Iterator[None]:
        """Close idle connections, and those with the most unread bytes if the limit is exceeded, step by step."""
        for lent in self.lane.active() if self.lane is not None else ():
            lent.active_ms = observed_ms
            yield
        unread, rest = [], list(self._open.values())
        while rest:
            connection = rest.pop()  # so that those which are closed meanwhile are not freed at once
            if not connection.is_waiting and observed_ms - connection.active_ms > self.limits.idle_timeout_ms:
                self._count("idle")
                connection.abort(_IDLE)  # unsent answers are lost
            elif connection.unread_bytes:
                unread.append(connection)
            yield
        yield from self._bound_unread(unread)
        self._is_checking = False

    def broker_expired(self, connection_id: int, key: LeaseKey) -> None:
        """Close a connection after one of its brokers expired, unless other brokers are registered over it."""
        connection = self._open.get(connection_id)
        if connection is not None:
            connection.broker_expired(key)

    async def close_all(self, timeout_s: float) -> None:
        """Close every connection after its next answer, or after ``timeout_s`` if it sends no request.

        The server must not accept new connections any more. An active peer loses no request this way: the connection
        closes when the peer has just received its answer.
        """
        for connection in list(self._open.values()):
            connection.leave()
        if self._open:
            self._all_left.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_left.wait(), timeout_s)
        for connection in list(self._open.values()):
            connection.close(STOPPING)

    def unread_bytes(self) -> int:
        return sum(connection.unread_bytes for connection in self._open.values())

    def _bound_unread(self, connections: list[Connection]) -> Iterator[None]:
        """Close the connections with the most unread bytes while the limit is exceeded, one in each step."""
        sizes = [(size, connection) for connection in connections if (size := connection.unread_bytes)]
        over = sum(size for size, _ in sizes) - self.limits.unread_answers_bytes
        if over <= 0:
            return
        # Connections without brokers are closed first, those with the most unread bytes before others.
        for size, connection in sorted(sizes, key=lambda pair: (pair[1].has_brokers, -pair[0])):
            self._abort(connection, _UNREAD, "unread")
            over -= size
            if over <= 0:
                return
            yield

    def _count(self, event: str) -> None:
        self._counters.count(CONNECTION_EVENTS, event)

    def _warn(self, text: str, *args: object, kind: str = "") -> None:
        self._peer_log.log(logger, logging.WARNING, text, *args, kind=kind)

    def _abort(self, connection: Connection, reason: str, name: str) -> None:
        self._warn("connection closed, %s peer=%s", reason, connection.peer, kind=name)
        self._count(name)
        self._stalled.pop(connection, None)
        self.partial_frames.forget(connection)
        connection.abort(reason)


_IPV6_PREFIX = 64  # one host owns at least such a network (RFC 4291 §2.5.1), and can use any address in it


class AddressCounts:
    """Counts open connections by peer; an IPv6 peer is its /64 network."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def enter(self, host: str) -> int:
        """Count one more connection from ``host``; return how many there are."""
        peer = peer_of(host)
        self._counts[peer] += 1
        return self._counts[peer]

    def leave(self, host: str) -> None:
        peer = peer_of(host)
        self._counts[peer] -= 1
        if self._counts[peer] <= 0:
            del self._counts[peer]


def peer_of(host: str) -> str:
    """Return the peer that limits count: the address, of IPv6 its /64 network."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or IPv6Network((address, _IPV6_PREFIX), strict=False))
