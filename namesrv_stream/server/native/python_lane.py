"""The lane in Python, for servers without the C library: answers known route queries ahead of uvloop's transports.

One ``epoll``, which the event loop watches, covers all connections that were handed over. So one callback
serves many connections, with one ``read`` and one ``write`` for each. There is no thread. As in the C lane, a
connection is returned when it sends anything but a complete query with a known answer.
"""

import asyncio
import os
import select
from collections.abc import Iterator, Sequence
from struct import Struct
from time import perf_counter_ns
from typing import Final, Protocol

from namesrv_stream.metrics import Histogram
from namesrv_stream.server.native.known_answers import MAX_BYTES, KnownAnswers

#: Approximate number of reads and answers in one iteration of the event loop: a limit, because everything else on the
#: loop waits meanwhile.
_AT_ONCE: Final = 500
#: Connections that are read before that limit is checked.
_READ_AT_ONCE: Final = 8
#: One read of a connection.
_READ_BYTES: Final = 4 * 1024
_LENGTH: Final = Struct(">I")


class LaneConnection(Protocol):
    """A connection that can be handed over. Its ``connection_id`` is not 0, and is never used twice."""

    connection_id: int
    active_ms: int

    def returned(self, unread: bytes, unsent: bytes) -> None:
        """Continue after the lane returned the connection, with ``unread`` request bytes and ``unsent`` answers."""


class PythonLane(KnownAnswers):
    """Answers queries on connections handed over to it. Its methods do the same as those of ``NativeLane``."""

    def __init__(self, bounds_ns: Sequence[int], max_bytes: int = MAX_BYTES) -> None:
        super().__init__(max_bytes)
        self._epoll = select.epoll()
        self._loop: asyncio.AbstractEventLoop | None = None  # None before the start and after the end
        self._fds: dict[int, int] = {}  # by connection id, including those that are being returned
        self._handed_over: dict[int, tuple[LaneConnection, int]] = {}  # by file descriptor, with the number of the view
        self._active: set[LaneConnection] = set()
        self._answered = Histogram(bounds_ns)

    @property
    def connections(self) -> int:
        return len(self._fds)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._epoll.fileno(), self._serve, loop)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = None
        loop.remove_reader(self._epoll.fileno())

    def hand_over(self, connection: LaneConnection, fd: int, frame: bytes, answer: bytes, view: int) -> bytes | None:
        if self._loop is None or self.match(frame, view) is None:
            return answer
        unsent = _write(fd, answer)
        if unsent:
            return unsent
        self._epoll.register(fd, select.EPOLLIN)
        self._fds[connection.connection_id] = fd
        self._handed_over[fd] = connection, view
        return None

    def take_back(self, connection: LaneConnection) -> bool:
        fd = self._fds.get(connection.connection_id)
        if fd in self._handed_over:
            del self._fds[connection.connection_id]
            self._unwatch(fd)
            return True
        return fd is None

    def release(self, connection: LaneConnection) -> None:
        if not self.take_back(connection):
            self._fds.pop(connection.connection_id, None)

    def active(self) -> Iterator[LaneConnection]:
        active, self._active = self._active, set()
        return iter(active)

    def answered(self) -> tuple[Sequence[int], float]:
        return self._answered.counts, self._answered.total

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        began_ns, reads, answered = perf_counter_ns(), 0, 0
        while reads + answered < _AT_ONCE:
            ready = self._epoll.poll(0, _READ_AT_ONCE)  # the kernel returns the others first the next time
            reads += len(ready)
            answered += sum(self._serve_one(loop, fd) for fd, _ in ready)
            if len(ready) < _READ_AT_ONCE:
                break
        if answered:
            self._answered.add((perf_counter_ns() - began_ns) / answered, answered)

    def _serve_one(self, loop: asyncio.AbstractEventLoop, fd: int) -> int:
        """Read a connection once, and answer its complete queries with known answers. Return their number."""
        connection, view = self._handed_over[fd]
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        begin, answered, unsent = 0, 0, b""
        while begin + _LENGTH.size <= len(data) and not unsent:
            end = begin + _LENGTH.size + _LENGTH.unpack_from(data, begin)[0]
            known = self.match(data[begin + _LENGTH.size : end], view) if end <= len(data) else None
            if known is None:
                break
            begin, unsent = end, _write(fd, known[0])
            answered += 1
        if answered:
            self._active.add(connection)
        if unsent or begin < len(data) or not data:  # no data: the transport finds out whether the peer has closed
            self._unwatch(fd)
            loop.call_soon(self._return, connection, data[begin:], unsent)
        return answered

    def _return(self, connection: LaneConnection, unread: bytes, unsent: bytes) -> None:
        if self._fds.pop(connection.connection_id, None) is not None:  # it was not released meanwhile
            connection.returned(unread, unsent)

    def _unwatch(self, fd: int) -> None:
        self._epoll.unregister(fd)
        del self._handed_over[fd]


def _write(fd: int, data: bytes) -> bytes:
    """Write to a socket, and return the bytes that the kernel did not accept; the transport detects the reason."""
    try:
        return data[os.write(fd, data) :]
    except OSError:
        return data
