"""Waits for the next file of a table's log without looking for it again and again.

The kernel tells of files that come into a folder of this machine (inotify). A thread that looked each few milliseconds
would have to have the interpreter each time, and the event loop would wake it with each of its turns: a quarter of the
cost of a route query. Where nobody tells, in an object store or what another machine puts into a folder that several
mount, the wait simply ends after its time, which is to be a fraction of a second.
"""

import logging
import os
import select
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from inotify_simple import INotify, flags

from namesrv_stream.location import Location

_LOG = logging.getLogger(__name__)
_CAME: Final = flags.CREATE | flags.MOVED_TO


class LogWatch:
    """Waits for one thread; a context manager, which ends it.

    Args:
        folder: What to watch; need not exist yet, and another may be put in its place.
        interval_s: How long a wait takes where nothing is told.
    """

    def __init__(self, folder: Location, interval_s: float) -> None:
        self._folder = folder
        self._interval_ms = interval_s * 1000
        self._poll = select.poll()
        self._lock = threading.Lock()
        self._wake: int | None = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.POLLIN)
        self._told: INotify | None = None
        self._watched: tuple[int, int] | None = None  # device and inode
        if isinstance(folder, Path):
            try:
                self._told = INotify(nonblocking=True)
                self._poll.register(self._told, select.POLLIN)
            except (OSError, AttributeError) as error:  # this user has as many as it may have; no Linux
                _LOG.warning("nobody tells of commits, they are looked for each %d ms: %s", self._interval_ms, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._told is not None:
            self._told.close()
        with self._lock:
            wake, self._wake = self._wake, None
            if wake is not None:
                os.close(wake)

    def begin(self) -> None:
        """Watch the folder that is there now: what comes into it from here on ends the next wait, if not an earlier."""
        if self._told is None:
            return
        with suppress(OSError):  # not there yet
            found = os.stat(str(self._folder))
            if (found.st_dev, found.st_ino) != self._watched:
                self._told.add_watch(self._folder, _CAME)
                self._watched = (found.st_dev, found.st_ino)

    def wait(self) -> None:
        """Until a file has come, ``wake`` was called or the interval is over."""
        self._poll.poll(self._interval_ms)
        if self._told is not None:
            self._told.read(timeout=0)

    def wake(self) -> None:
        """End the wait and all later ones; from any thread."""
        with self._lock:
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)
