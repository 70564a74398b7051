"""The native lane: connections on which only known route queries come are handed over to a thread without interpreter.

The lane takes part in nothing else. A connection that needs anything else is returned, so that everything that a server
decides is decided in one place, and a server without the lane gives the same answers, more slowly.
"""

import asyncio
import ctypes
import os
import secrets
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from namesrv_stream.errors import ConfigError
from namesrv_stream.remoting.request_template import ResponseTemplate
from namesrv_stream.server.metrics.requests import BOUNDS_NS
from namesrv_stream.server.native.library import HANDED_OVER, Returned, load_library
from namesrv_stream.settings import RemotingSettings

_TOPIC: Final = b'"topic":"'
_HEADER_BYTES: Final = ctypes.sizeof(Returned)
_ACTIVE_AT_ONCE: Final = 1_024
#: More than any answer that the lane knows has.
_MAX_FOUND_BYTES: Final = 256 * 1024
#: In one turn of the event loop, which other sockets wait for.
_RETURNED_AT_ONCE: Final = 256


class LaneConnection(Protocol):
    """A connection that can be handed over.

    Attributes:
        connection_id: Not 0, and never used twice.
        active_ms: Observed time of the last traffic.
    """

    connection_id: int
    active_ms: int

    def returned(self, unread: bytes, unsent: bytes) -> None:
        """The lane has returned it, with what it read and did not answer, and what is left to send of its answers."""


class LaneStatus(NamedTuple):
    """Whether a server has the lane.

    Attributes:
        text: That, or why not, for people.
        is_fault: This build has the library, and it cannot be used.
    """

    is_active: bool
    text: str
    is_fault: bool = False


def open_lane(settings: RemotingSettings) -> "tuple[NativeLane | None, LaneStatus]":
    """The lane, where the settings want it and this build has it.

    Raises:
        ConfigError: The settings require it, and there is none.
    """
    if settings.native_lane == "off":
        return None, LaneStatus(False, "off: advanced.remoting.native_lane says so")
    status = LaneStatus(False, "not in this build: namesrv-stream was built without its library")
    try:
        library = load_library()
        if library is not None:
            lane = NativeLane(library, settings.native_lane_answers_bytes, BOUNDS_NS)
            return lane, LaneStatus(True, "active")
    except (OSError, AttributeError) as error:
        status = LaneStatus(False, f"its library cannot be used: {error}", is_fault=True)
    if settings.native_lane == "on":
        raise ConfigError("this installation", "advanced.remoting.native_lane", status.text)
    return None, status


class NativeLane:
    """Hands connections over, and keeps the answers that the thread knows; belongs to one event loop.

    Args:
        library: The compiled code.
        max_answers_bytes: Of the answers that the thread knows.
        bounds_ns: Of the histogram of response times, ascending.

    Raises:
        OSError: Its thread cannot start.
    """

    def __init__(self, library: ctypes.PyDLL, max_answers_bytes: int, bounds_ns: Sequence[int]) -> None:
        self._library = library
        bounds = (ctypes.c_uint64 * len(bounds_ns))(*bounds_ns)
        self._lane = library.lane_start(max_answers_bytes, secrets.randbits(64), bounds, len(bounds_ns))
        if not self._lane:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        # Not at the interpreter's exit: whatever still runs then may call the lane.
        self._end = weakref.finalize(self, library.lane_free, self._lane)
        self._end.atexit = False
        self._handed_over: dict[int, tuple[LaneConnection, int]] = {}  # with their file descriptors
        self._counters = (ctypes.c_uint64 * (len(bounds_ns) + 3))()
        self._active = (ctypes.c_uint64 * _ACTIVE_AT_ONCE)()
        self._found = ctypes.create_string_buffer(_MAX_FOUND_BYTES)

    @property
    def connections(self) -> int:
        """How many are handed over, those that are being returned included."""
        return len(self._handed_over)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Receive what the thread returns."""
        loop.add_reader(self._library.lane_returned_fd(self._lane), self._receive_returned)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the thread: nothing is handed over afterwards, and what was handed over has to be taken back."""
        loop.remove_reader(self._library.lane_returned_fd(self._lane))
        self._library.lane_stop(self._lane)

    # ---- connections ----

    def hand_over(self, connection: LaneConnection, fd: int, frame: bytes, answer: bytes) -> bytes | None:
        """Send the answer to a frame and hand the connection over, if the lane knows that answer.

        Until the connection is returned or taken back, nobody else reads or writes its socket.

        Returns:
            None where it was handed over; else what is left to send of the answer.
        """
        key = connection.connection_id
        sent = self._library.lane_hand_over(self._lane, fd, key, frame, len(frame), answer, len(answer))
        if sent == HANDED_OVER:
            self._handed_over[key] = (connection, fd)
            return None
        return answer[sent:]

    def take_back(self, connection: LaneConnection) -> bool:
        """Take a connection back before the thread reads more of it.

        Returns:
            False where it is not handed over, or is being returned.
        """
        key = connection.connection_id
        if key not in self._handed_over:
            return False
        _, fd = self._handed_over[key]
        is_back = bool(self._library.lane_take_back(self._lane, fd, key))
        if is_back:
            del self._handed_over[key]
        return is_back

    def release(self, connection: LaneConnection) -> None:
        """The connection has ended: it need not be returned."""
        if not self.take_back(connection):
            self._handed_over.pop(connection.connection_id, None)

    def active(self) -> Iterator[LaneConnection]:
        """The connections that had traffic since the last call."""
        count = _ACTIVE_AT_ONCE
        while count == _ACTIVE_AT_ONCE:
            count = self._library.lane_active(self._lane, self._active, _ACTIVE_AT_ONCE)
            for key in self._active[:count]:
                if key in self._handed_over:
                    yield self._handed_over[key][0]

    def _receive_returned(self) -> None:
        for _ in range(_RETURNED_AT_ONCE):
            pointer = self._library.lane_next_returned(self._lane)
            if not pointer:
                return
            returned = pointer.contents
            at = ctypes.addressof(returned) + _HEADER_BYTES
            key, unread = returned.id, ctypes.string_at(at, returned.unread)
            unsent = ctypes.string_at(at + returned.unread, returned.unsent)
            self._library.lane_free_returned(pointer)
            connection, _ = self._handed_over.pop(key, (None, -1))
            if connection is not None:
                connection.returned(unread, unsent)

    # ---- answers ----

    def find(self, frame: bytes) -> bytes | None:
        """As ``RouteCache``."""
        size = self._library.lane_find(self._lane, frame, len(frame), self._found, _MAX_FOUND_BYTES)
        return ctypes.string_at(self._found, size) if size else None

    def know(self, frame: bytes, topic: str, parts: ResponseTemplate) -> None:
        """As ``RouteCache``."""
        begin = frame.find(_TOPIC) + len(_TOPIC)
        if frame[begin : frame.find(b'"', begin)] != topic.encode("utf-8", "surrogatepass"):
            return  # ``cut_query`` would take another text for the topic
        header_bytes, head, tail = parts
        self._library.lane_know(self._lane, frame, len(frame), head, len(head), tail, len(tail), header_bytes)

    def forget(self, topics: Collection[str] | None) -> None:
        """As ``RouteCache``."""
        if topics is None:
            self._library.lane_forget_all(self._lane)
        else:
            names = "\0".join([*topics, ""]).encode("utf-8", "surrogatepass")
            self._library.lane_forget(self._lane, names, len(names))

    # ---- counters ----

    def answered(self) -> tuple[list[int], int]:
        """The number of answers by bound, those above the last bound at the end; their nanoseconds in total."""
        self._library.lane_counters(self._lane, self._counters)
        *counts, total_ns, _ = self._counters
        return counts, total_ns

    @property
    def known_bytes(self) -> int:
        """Of the answers that the thread knows."""
        self._library.lane_counters(self._lane, self._counters)
        return self._counters[len(self._counters) - 1]


class HandOver:
    """Of one plain connection.

    Attributes:
        is_handed_over: The lane reads and writes the socket, or is returning it: nothing is read or written here.

    Args:
        lane: Where the connection is handed over to; None where there is none.
        connection: The connection.
        transport: Its transport.
    """

    def __init__(self, lane: NativeLane | None, connection: LaneConnection, transport: asyncio.Transport) -> None:
        self.is_handed_over = False
        self._lane = lane
        self._connection = connection
        self._transport = transport
        sock = transport.get_extra_info("socket")
        self._fd: int | None = None if sock is None else sock.fileno()

    def answer(self, frame: bytes, answer: bytes) -> bool:
        """Answer a query that came on its own, and hand the connection over if the lane can answer the next ones.

        Returns:
            Whether it was handed over.
        """
        transport = self._transport
        if self._lane is not None and self._fd is not None and not transport.get_write_buffer_size():
            rest = self._lane.hand_over(self._connection, self._fd, frame, answer)
            if rest is None:
                self.is_handed_over = True
                return True
            answer = rest
        transport.write(answer)
        return False

    def take_back(self) -> bool:
        """Take the connection back; False while the lane is returning it."""
        if self.is_handed_over and self._lane is not None:
            self.is_handed_over = not self._lane.take_back(self._connection)
        return not self.is_handed_over

    def release(self) -> None:
        """The connection has ended, or ends at once: the lane forgets it."""
        if self.is_handed_over and self._lane is not None:
            self.is_handed_over = False
            self._lane.release(self._connection)
