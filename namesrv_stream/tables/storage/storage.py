"""One interface for the two places in which tables can be: a local folder and an S3-compatible object store.

Nobody outside this package knows which of the two is used. Names are relative to the place and use ``/``. A file that
``create`` or ``write`` has written is durable when they return, and no reader ever sees a part of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from namesrv_stream.tables.storage.watch import CommitWatch


class Storage(ABC):
    """A folder of tables, one table, or a folder within a table."""

    #: How often a look that usually finds nothing is worth its cost, seconds.
    look_interval_s: float

    @abstractmethod
    def __truediv__(self, name: str) -> Self:
        """The place below this one."""

    @abstractmethod
    def __str__(self) -> str:
        """Its address, for people, delta-rs and Polars."""

    @property
    @abstractmethod
    def delta_options(self) -> dict[str, str] | None:
        """What delta-rs must be told to reach it."""

    @property
    @abstractmethod
    def polars_options(self) -> dict[str, str | int] | None:
        """What Polars must be told to reach it."""

    @abstractmethod
    def make(self) -> None:
        """Make the folder if it is absent; durable."""

    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """The files that are directly in it: name → bytes. Empty where the place does not exist."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A whole file.

        Raises:
            FileNotFoundError: There is none.
            StoreUnreachable: The object store does not answer.
        """

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Write a file if none has that name; of several writers, one succeeds.

        Raises:
            FileExistsError: There is one.
            OSError: It could not be written. Nothing of it is left.
            StoreUnreachable: The object store does not answer. It may have written the file.
        """

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write a file, in place of the one that has that name; raises as ``create``."""

    @abstractmethod
    def sync(self, names: Iterable[str]) -> None:
        """Make files durable that another library has written here; those that are gone are passed over."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Give a file or a folder in it another name; durable. After a crash in between, a second call finishes it.

        Raises:
            FileNotFoundError: ``source`` does not exist.
        """

    @abstractmethod
    def remove_all(self, name: str) -> None:
        """Remove a folder in it with all that it contains, if it is there."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether a folder in it exists and contains something."""

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn what a library raises when the place cannot be reached into an error that names the place.

        Raises:
            StoreUnreachable: The object store does not answer.
        """
        yield

    def watch(self, interval_s: float) -> CommitWatch:
        """What waits for new files in it, ``interval_s`` at most."""
        return CommitWatch(None, interval_s)
