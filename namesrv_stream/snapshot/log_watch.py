"""Waits for the next file of a table's log without looking for it again and again.

The kernel tells of files that come into a folder of this machine (inotify). A thread that looked each few milliseconds
would have to have the interpreter each time, and the event loop would wake it with each of its turns: a quarter of the
cost of a route query (docs/performance.md). Where nobody tells, in an object store or what another machine puts into a
folder that several mount, the wait simply ends after its time, which is to be a fraction of a second.
"""

import select
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from inotify_simple import INotify, flags

from namesrv_stream.location import Location

_CAME: Final = flags.CREATE | flags.MOVED_TO
_WENT: Final = flags.DELETE_SELF | flags.MOVE_SELF | flags.IGNORED | flags.UNMOUNT


class LogWatch:
    """Waits for one thread.

    Args:
        folder: What to watch; need not exist yet, and may be replaced.
        interval_s: How long a wait takes where nothing is told.
    """

    def __init__(self, folder: Location, interval_s: float) -> None:
        self._folder = folder
        self._interval_ms = interval_s * 1000
        self._poll = select.poll()
        self._told: INotify | None = None
        self._is_watched = False
        if isinstance(folder, Path):
            with suppress(OSError):  # this user has as many as it may have
                self._told = INotify(nonblocking=True)
                self._poll.register(self._told, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._told is not None:
            self._told.close()

    def begin(self) -> None:
        """Watch the folder that is there now: what comes into it from here on ends the next wait, if not an earlier."""
        if self._told is not None and not self._is_watched:
            with suppress(OSError):  # not there yet
                self._told.add_watch(self._folder, _CAME | _WENT)
                self._is_watched = True

    def wait(self) -> None:
        """Until a file has come or the interval is over."""
        self._poll.poll(self._interval_ms)
        if self._told is not None:
            self._is_watched &= not any(event.mask & _WENT for event in self._told.read(timeout=0))
