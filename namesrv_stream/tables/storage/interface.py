"""The interface of the two kinds of storage, and the wait for new files in a folder.

Names are relative to the storage and use ``/``. A file that ``create`` or ``write`` has written is durable when they
return, and no reader ever sees a part of it.
"""

import logging
import os
import select
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from inotify_simple import INotify, flags

logger = logging.getLogger(__name__)
_NEW_FILE: Final = flags.CREATE | flags.MOVED_TO


class CommitWatch:
    """Lets one thread wait for the next new file in a folder. It is a context manager.

    The kernel reports new files in a local folder (inotify). A thread that polled every few milliseconds instead would
    contend for the interpreter with the event loop, which costs a quarter of the throughput of route queries. If files
    are not reported (in an object store, or from another machine in a shared folder), a wait ends after its interval.

    Args:
        folder: The folder to watch. It need not exist yet and may be replaced. None if there are no notifications.
        interval_s: The longest wait, seconds.
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
            except (OSError, AttributeError) as error:  # the user's limit is reached, or the system is not Linux
                logger.warning(
                    "no file notifications, polling commits interval_ms=%d reason=%s", self._interval_ms, error
                )

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
        """Watch the folder that the path now refers to. A file that arrives from now on ends the next wait."""
        if self._reports is None:
            return
        with suppress(OSError):  # the folder does not exist yet
            found = os.stat(str(self._folder))
            if (found.st_dev, found.st_ino) != self._watched:
                self._reports.add_watch(self._folder, _NEW_FILE)
                self._watched = (found.st_dev, found.st_ino)

    def wait(self) -> None:
        """Wait until a file has arrived, ``wake`` was called or the interval is over."""
        self._poll.poll(self._interval_ms)
        if self._reports is not None:
            self._reports.read(timeout=0)

    def wake(self) -> None:
        """End the current wait and all later ones. Any thread may call it."""
        with self._lock:
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)


class Storage(ABC):
    """A folder of tables, one table, or a folder within a table."""

    #: Seconds between checks that usually find nothing; more if a check costs more.
    check_interval_s: float

    @abstractmethod
    def __truediv__(self, name: str) -> Self:
        """Return the folder ``name`` in this storage."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the address of the storage, for messages, delta-rs and Polars."""

    @property
    @abstractmethod
    def delta_options(self) -> dict[str, str] | None:
        """The ``storage_options`` of delta-rs."""

    @property
    @abstractmethod
    def polars_options(self) -> dict[str, str | int] | None:
        """The ``storage_options`` of Polars."""

    @abstractmethod
    def make(self) -> None:
        """Create the folder if it is missing; durable."""

    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """Return the files directly in this folder: name → size, bytes. Empty if the folder does not exist."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether a file exists."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: The file does not exist.
            StoreUnreachable: The object store does not answer.
        """

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Write a new file. Of several concurrent writers, one succeeds.

        Raises:
            FileExistsError: The file exists.
            OSError: The file could not be written. No part of it is left.
            StoreUnreachable: The object store does not answer. It may have written the file.
        """

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file. Raises the errors of ``create`` except FileExistsError."""

    @abstractmethod
    def sync(self, names: Iterable[str]) -> None:
        """Make files durable that another library has written here. Missing files are ignored."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Rename a file or folder; durable. After a crash in between, a second call completes it.

        Raises:
            FileNotFoundError: ``source`` does not exist.
        """

    @abstractmethod
    def remove_all(self, name: str) -> None:
        """Remove a folder and its content if it exists."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether a sub-folder exists and is not empty."""

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Convert errors of a library that cannot reach the storage to an error that names the storage.

        Raises:
            StoreUnreachable: The object store does not answer.
        """
        yield

    def watch(self, interval_s: float) -> CommitWatch:
        """Return a ``CommitWatch`` for new files in this folder, which waits at most ``interval_s`` seconds."""
        return CommitWatch(None, interval_s)
