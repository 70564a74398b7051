"""Chooses a server's lane, and contains the Python side of the native lane, which is a C thread.

A lane only repeats answers that Python code has stored in it, and returns a connection that sends anything else. So
Python makes all decisions of a server, and a server without a lane gives the same answers, more slowly.
"""

import asyncio
import ctypes
import os
import secrets
import select
import weakref
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from namesrv_stream.errors import ConfigError
from namesrv_stream.metrics import LATENCY_BOUNDS_NS
from namesrv_stream.remoting.frame import ResponseTemplate
from namesrv_stream.server.native.python_lane import LaneConnection, PythonLane
from namesrv_stream.settings import RemotingSettings

#: A result of ``lane_hand_over``.
HANDED_OVER: Final = -1

_FILE: Final = Path(__file__).with_name("libnative_lane.so")
_POINTER: Final = ctypes.c_void_p
_TEXT: Final = ctypes.c_char_p
_SIZE: Final = ctypes.c_size_t
_U64: Final = ctypes.c_uint64
_U64S: Final = ctypes.POINTER(_U64)


class Returned(ctypes.Structure):
    """The C type ``struct returned``, without the bytes that follow it in memory."""

    _fields_ = (("next", _POINTER), ("id", _U64), ("unread", _SIZE), ("unsent", _SIZE))

    id: int
    unread: int
    unsent: int


_RETURNED: Final = ctypes.POINTER(Returned)
#: Name of a function → types of its result and arguments.
_FUNCTIONS: Final = {
    "lane_start": (_POINTER, (_SIZE, _U64, _U64S, _SIZE)),
    "lane_stop": (None, (_POINTER,)),
    "lane_free": (None, (_POINTER,)),
    "lane_hand_over": (ctypes.c_ssize_t, (_POINTER, ctypes.c_int, _U64, _TEXT, _SIZE, _TEXT, _SIZE, _U64)),
    "lane_take_back": (ctypes.c_bool, (_POINTER, ctypes.c_int, _U64)),
    "lane_returned_fd": (ctypes.c_int, (_POINTER,)),
    "lane_next_returned": (_RETURNED, (_POINTER,)),
    "lane_free_returned": (None, (_RETURNED,)),
    "lane_know": (None, (_POINTER, _TEXT, _SIZE, _U64, _TEXT, _SIZE, _TEXT, _SIZE, ctypes.c_uint32, _U64)),
    "lane_find": (_SIZE, (_POINTER, _TEXT, _SIZE, _TEXT, _SIZE, _U64)),
    "lane_forget": (None, (_POINTER, _POINTER, _SIZE)),
    "lane_forget_all": (None, (_POINTER,)),
    "lane_active": (_SIZE, (_POINTER, _U64S, _SIZE)),
    "lane_counters": (None, (_POINTER, _U64S)),
}


def load_library() -> ctypes.PyDLL | None:
    """Load the library; None if this build does not contain it.

    The calls keep the interpreter lock. No call waits longer than the thread takes to serve one connection, except
    ``lane_stop``, which waits for all pending events.

    Raises:
        OSError: The file exists, but cannot be loaded.
        AttributeError: The file belongs to another release.
    """
    if not _FILE.exists():
        return None
    library = ctypes.PyDLL(str(_FILE), use_errno=True)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


#: If more topics change at once, all answers are dropped, because the time for a list of topics grows with it.
_FORGOTTEN_AT_ONCE: Final = 10_000
_HEADER_BYTES: Final = ctypes.sizeof(Returned)
_ACTIVE_AT_ONCE: Final = 1_024
#: Size of the buffer for one answer; every answer that the lane stores is smaller.
_MAX_FOUND_BYTES: Final = 256 * 1024
#: Connections taken back in one iteration of the event loop; a limit, because other sockets wait meanwhile.
_RETURNED_AT_ONCE: Final = 256


class NativeLane:
    """Hands connections over to the thread, and updates its answers. Used by one event loop.

    Raises:
        OSError: The thread cannot start.
    """

    def __init__(self, library: ctypes.PyDLL, max_answers_bytes: int, bounds_ns: Sequence[int]) -> None:
        """Start the thread; ``bounds_ns`` are the ascending upper bounds of the histogram of response times."""
        self._library = library
        bounds = (ctypes.c_uint64 * len(bounds_ns))(*bounds_ns)
        self._lane = library.lane_start(max_answers_bytes, secrets.randbits(64), bounds, len(bounds_ns))
        if not self._lane:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        # Not freed at the interpreter's exit, when running threads may still call the lane.
        self._end = weakref.finalize(self, library.lane_free, self._lane)
        self._end.atexit = False
        self._handed_over: dict[int, tuple[LaneConnection, int]] = {}  # with their file descriptors
        self._counters = (ctypes.c_uint64 * (len(bounds_ns) + 3))()
        self._active = (ctypes.c_uint64 * _ACTIVE_AT_ONCE)()
        self._found = ctypes.create_string_buffer(_MAX_FOUND_BYTES)

    @property
    def connections(self) -> int:
        """Number of connections that are handed over or being returned."""
        return len(self._handed_over)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to receive the connections that the thread returns."""
        loop.add_reader(self._library.lane_returned_fd(self._lane), self._receive_returned)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the thread. The caller must take back all connections; no further ones are handed over."""
        loop.remove_reader(self._library.lane_returned_fd(self._lane))
        self._library.lane_stop(self._lane)

    def hand_over(self, connection: LaneConnection, fd: int, frame: bytes, answer: bytes, view: int) -> bytes | None:
        """Send the answer to a frame and hand the connection over, if the lane has that answer for the view.

        ``view`` is the number of the client's address view, as in ``find`` and ``know``.

        Until the connection is returned or taken back, only the thread reads and writes its socket. Return None if it
        was handed over; otherwise the unsent rest of the answer.
        """
        key = connection.connection_id
        sent = self._library.lane_hand_over(self._lane, fd, key, frame, len(frame), answer, len(answer), view)
        if sent == HANDED_OVER:
            self._handed_over[key] = (connection, fd)
            return None
        return answer[sent:]

    def take_back(self, connection: LaneConnection) -> bool:
        """Take back a connection, if it is handed over, before the thread reads more; False if it is being returned."""
        key = connection.connection_id
        if key not in self._handed_over:
            return True
        _, fd = self._handed_over[key]
        is_back = bool(self._library.lane_take_back(self._lane, fd, key))
        if is_back:
            del self._handed_over[key]
        return is_back

    def release(self, connection: LaneConnection) -> None:
        """Forget a closed connection, which the lane need not return."""
        if not self.take_back(connection):
            self._handed_over.pop(connection.connection_id, None)

    def active(self) -> Iterator[LaneConnection]:
        """Yield the connections that had traffic since the last call."""
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

    def find(self, frame: bytes, view: int) -> bytes | None:
        """Return the stored response, with length prefix, to a frame without length prefix; None if there is none."""
        size = self._library.lane_find(self._lane, frame, len(frame), self._found, _MAX_FOUND_BYTES, view)
        return ctypes.string_at(self._found, size) if size else None

    def know(self, frame: bytes, topic: str, parts: ResponseTemplate, view: int) -> None:
        """Store a response, as ``parts`` of its encoding, to a frame for which ``has_template`` is true."""
        header_bytes, head, tail = parts
        answer = (head, len(head), tail, len(tail), header_bytes)
        self._library.lane_know(self._lane, frame, len(frame), hash(topic), *answer, view)

    def forget(self, topics: Collection[str] | None) -> None:
        """Drop the responses about these topics; None drops all.

        The library knows a topic by its hash. Those about another topic with the same hash are dropped as well.
        """
        if topics is None or len(topics) > _FORGOTTEN_AT_ONCE:
            self._library.lane_forget_all(self._lane)
        else:
            numbers = array("q", map(hash, topics))
            self._library.lane_forget(self._lane, *numbers.buffer_info())

    def answered(self) -> tuple[list[int], int]:
        """Return the number of answers by upper bound (last: above all bounds), and their total response time in ns."""
        self._library.lane_counters(self._lane, self._counters)
        *counts, total_ns, _ = self._counters
        return counts, total_ns

    @property
    def known_bytes(self) -> int:
        self._library.lane_counters(self._lane, self._counters)
        return self._counters[len(self._counters) - 1]


#: What answers the queries of connections that were handed over.
Lane = NativeLane | PythonLane


class LaneStatus(NamedTuple):
    """Whether the server uses the native lane; a fault means that this build has the library but cannot use it."""

    is_active: bool
    text: str
    is_fault: bool = False


def open_lane(settings: RemotingSettings) -> tuple[Lane | None, LaneStatus]:
    """Start the native lane if the settings allow it and this build has it, otherwise the Python lane if they allow it.

    Raises:
        ConfigError: The settings require the native lane, but it cannot start.
    """
    status = LaneStatus(False, "off: advanced.remoting.native_lane says so")
    if settings.native_lane == "off":
        return None, status
    if settings.native_lane == "python":
        return _python_lane(status)
    status = LaneStatus(False, "not in this build: namesrv-stream was built without its library")
    try:
        library = load_library()
        if library is not None:
            lane = NativeLane(library, settings.native_lane_answers_bytes, LATENCY_BOUNDS_NS)
            return lane, LaneStatus(True, "active")
    except (OSError, AttributeError) as error:
        status = LaneStatus(False, f"its library cannot be used: {error}", is_fault=True)
    if settings.native_lane == "on":
        raise ConfigError("this installation", "advanced.remoting.native_lane", status.text)
    return _python_lane(status)


def _python_lane(status: LaneStatus) -> tuple[PythonLane | None, LaneStatus]:
    """Return the Python lane (None where the kernel has no epoll), and the status of the native one."""
    if not hasattr(select, "epoll"):
        return None, status
    return PythonLane(LATENCY_BOUNDS_NS), status._replace(
        text=f"{status.text}; the Python lane answers instead, more slowly"
    )
