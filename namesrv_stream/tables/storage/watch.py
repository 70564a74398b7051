"""Waits for the next file in a folder without looking for it again and again.

The kernel reports files that come into a local folder (inotify). A thread that looked every few milliseconds instead
would contend for the interpreter with the event loop, which costs a quarter of the throughput of route queries. Where
nobody reports files (an object store, or what another machine puts into a shared folder), the wait ends after its
interval.
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

_LOG = logging.getLogger(__name__)
_NEW_FILE: Final = flags.CREATE | flags.MOVED_TO


class CommitWatch:
    """Waits for one thread; a context manager, which ends it.

    Args:
        folder: What to watch; need not exist yet, and another may be put in its place. None: there are no reports.
        interval_s: How long a wait takes where nothing is reported.
    """

    def __init__(self, folder: Path | None, interval_s: float) -> None:
        self._folder = folder
        self._interval_ms = interval_s * 1000
        self._poll = select.poll()
        self._lock = threading.Lock()
        self._wake: int | None = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.POLLIN)
        self._reports: INotify | None = None
        self._watched: tuple[int, int] | None = None  # device and inode
        if folder is not None:
            try:
                self._reports = INotify(nonblocking=True)
                self._poll.register(self._reports, select.POLLIN)
            except (OSError, AttributeError) as error:  # this user has as many as it may have; no Linux
                _LOG.warning("no file notifications, polling commits interval_ms=%d: %s", self._interval_ms, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reports is not None:
            self._reports.close()
        with self._lock:
            wake, self._wake = self._wake, None
            if wake is not None:
                os.close(wake)

    def begin(self) -> None:
        """Watch the folder that is there now: a file that comes into it from here on ends the next wait."""
        if self._reports is None:
            return
        with suppress(OSError):  # not there yet
            found = os.stat(str(self._folder))
            if (found.st_dev, found.st_ino) != self._watched:
                self._reports.add_watch(self._folder, _NEW_FILE)
                self._watched = (found.st_dev, found.st_ino)

    def wait(self) -> None:
        """Wait until a file has come, ``wake`` was called or the interval is over."""
        self._poll.poll(self._interval_ms)
        if self._reports is not None:
            self._reports.read(timeout=0)

    def wake(self) -> None:
        """End the wait and all later ones; from any thread."""
        with self._lock:
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)
