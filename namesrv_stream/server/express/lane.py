"""The express lane: connections on which only known route queries come are lent to a thread that needs no interpreter.

It takes part in nothing else. Whatever it cannot answer comes back with its connection, so that all that a server does
is done in one place, and a server without this lane answers the same, more slowly.
"""

import asyncio
import ctypes
import logging
import os
import secrets
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Protocol

from namesrv_stream.errors import ConfigError
from namesrv_stream.processor.known_answers import AnswerParts
from namesrv_stream.server.express.library import LENT, GivenBack, load_library
from namesrv_stream.server.request_figures import BOUNDS_NS
from namesrv_stream.settings import RemotingSettings

logger = logging.getLogger(__name__)

_HEADER_BYTES: Final = ctypes.sizeof(GivenBack)
_ACTIVE_AT_ONCE: Final = 1_024
#: More than any answer that is known has.
_MAX_FOUND_BYTES: Final = 256 * 1024
#: In a turn of the event loop, as of sockets.
_GIVEN_BACK_AT_ONCE: Final = 256


class Lendable(Protocol):
    """A connection.

    Attributes:
        connection_id: Never 0, and never that of another.
        active_ms: Observed time of the last traffic.
    """

    connection_id: int
    active_ms: int

    def given_back(self, unread: bytes, unsent: bytes) -> None:
        """It is the server's own again: what was read and not answered, and what is left to send of answers."""


def express_lane(settings: RemotingSettings) -> "ExpressLane | None":
    """The lane, where it is wanted and can be.

    Raises:
        ConfigError: It must be, and cannot.
    """
    if settings.express_lane == "off":
        return None
    library, reason = None, "its C was not compiled when namesrv-stream was installed"
    try:
        library = load_library()
    except (OSError, AttributeError) as error:
        reason = str(error)
        logger.warning("no express lane reason=%s", reason)
    if library is not None:
        return ExpressLane(library, settings.express_answers_bytes, BOUNDS_NS)
    if settings.express_lane == "on":
        raise ConfigError("this installation", "remoting.express_lane", reason)
    return None


class ExpressLane:
    """Lends connections, and tells the thread what is known; belongs to one event loop.

    Args:
        library: The compiled code.
        max_answers_bytes: Of the answers that the thread knows.
        bounds_ns: Of the histogram of how long its answers took.

    Raises:
        ConfigError: There is no memory for it.
    """

    def __init__(self, library: ctypes.PyDLL, max_answers_bytes: int, bounds_ns: Sequence[int]) -> None:
        self._library = library
        bounds = (ctypes.c_uint64 * len(bounds_ns))(*bounds_ns)
        self._lane = library.express_start(max_answers_bytes, secrets.randbits(64), bounds, len(bounds_ns))
        if not self._lane:
            raise ConfigError("the system", "remoting.express_lane", os.strerror(ctypes.get_errno()))
        # Whoever is still there may ask behind the end.
        self._end = weakref.finalize(self, library.express_free, self._lane)
        self._end.atexit = False
        self._lent: dict[int, tuple[Lendable, int]] = {}
        self._figures = (ctypes.c_uint64 * (len(bounds_ns) + 3))()
        self._active = (ctypes.c_uint64 * _ACTIVE_AT_ONCE)()
        self._found = ctypes.create_string_buffer(_MAX_FOUND_BYTES)

    @property
    def lent(self) -> int:
        """How many connections are."""
        return len(self._lent)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take back what the thread gives back."""
        loop.add_reader(self._library.express_given_back_fd(self._lane), self._take_given_back)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the thread: nothing is lent any more, and what is lent is to be taken back."""
        loop.remove_reader(self._library.express_given_back_fd(self._lane))
        self._library.express_stop(self._lane)

    # ---- connections ----

    def lend(self, connection: Lendable, fd: int, frame: bytes, answer: bytes) -> bytes | None:
        """Send the answer to a frame, if it is known, and lend the connection: nobody else reads and writes its socket.

        Returns:
            None, or what is left of the answer where it is not known or did not go out at once: it is not lent then.
        """
        key = connection.connection_id
        sent = self._library.express_lend(self._lane, fd, key, frame, len(frame), answer, len(answer))
        if sent == LENT:
            self._lent[key] = (connection, fd)
            return None
        return answer[sent:]

    def take_back(self, connection: Lendable) -> bool:
        """Have a connection back, with nothing read of it. False where it is not lent, or is being given back."""
        key = connection.connection_id
        if key not in self._lent or not self._library.express_take_back(self._lane, self._lent[key][1], key):
            return False
        del self._lent[key]
        return True

    def forsake(self, connection: Lendable) -> None:
        """It has gone: nobody wants it back."""
        if not self.take_back(connection):
            self._lent.pop(connection.connection_id, None)

    def active(self) -> Iterator[Lendable]:
        """Those on which something moved since this was last asked."""
        count = _ACTIVE_AT_ONCE
        while count == _ACTIVE_AT_ONCE:
            count = self._library.express_active(self._lane, self._active, _ACTIVE_AT_ONCE)
            for key in self._active[:count]:
                if key in self._lent:
                    yield self._lent[key][0]

    def _take_given_back(self) -> None:
        for _ in range(_GIVEN_BACK_AT_ONCE):
            given = self._library.express_given_back(self._lane)
            if not given:
                return
            told = given.contents
            at = ctypes.addressof(told) + _HEADER_BYTES
            key, unread = told.id, ctypes.string_at(at, told.unread)
            unsent = ctypes.string_at(at + told.unread, told.unsent)
            self._library.express_forget_given_back(given)
            connection, _ = self._lent.pop(key, (None, -1))
            if connection is not None:
                connection.given_back(unread, unsent)

    # ---- answers ----

    def find(self, frame: bytes) -> bytes | None:
        """As ``KnownAnswers``."""
        size = self._library.express_find(self._lane, frame, len(frame), self._found, _MAX_FOUND_BYTES)
        return ctypes.string_at(self._found, size) if size else None

    def know(self, frame: bytes, topic: str, parts: AnswerParts) -> None:
        """As ``KnownAnswers``."""
        header_bytes, head, tail = parts
        self._library.express_know(self._lane, frame, len(frame), head, len(head), tail, len(tail), header_bytes)

    def forget(self, topics: Collection[str] | None) -> None:
        """As ``KnownAnswers``."""
        if topics is None:
            self._library.express_forget_all(self._lane)
        else:
            names = "\0".join([*topics, ""]).encode("utf-8", "surrogatepass")
            self._library.express_forget(self._lane, names, len(names))

    # ---- figures ----

    def answered(self) -> tuple[list[int], int]:
        """Answers by how long they took, those above the last bound behind; nanoseconds of all."""
        self._library.express_figures(self._lane, self._figures)
        *counts, total_ns, _ = self._figures
        return counts, total_ns

    @property
    def known_bytes(self) -> int:
        """Of answers that the thread knows."""
        self._library.express_figures(self._lane, self._figures)
        return self._figures[len(self._figures) - 1]
