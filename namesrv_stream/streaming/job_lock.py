"""Locks: a folder of tables has one writer at a time (the job or a rebuild), and one history process."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from namesrv_stream.errors import ConfigError


def job_lock(tables_dir: Path, remedy: str = "") -> AbstractContextManager[None]:
    """Hold the lock of the job's tables. The operating system releases it when the process ends.

    Args:
        tables_dir: Folder of the lock; created if it is missing.
        remedy: Advice for the error text, if another process holds the lock.

    Raises:
        ConfigError: Another job or a rebuild holds the lock, or the folder is not writable.
    """
    return _lock(tables_dir / "job.lock", "another job runs here, or a rebuild", remedy)


def history_lock(tables_dir: Path) -> AbstractContextManager[None]:
    """Hold the lock of the history tables, likewise.

    Raises:
        ConfigError: Another history process holds the lock, or the folder is not writable.
    """
    return _lock(tables_dir / "history.lock", "another history-job runs here", "")


@contextmanager
def _lock(path: Path, holder: str, remedy: str) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError("settings", "data.tables", f"{path} cannot be created: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        reason = f"{holder} ({path} is locked)"
        raise ConfigError("settings", "data.tables", f"{reason}{remedy and ': '}{remedy}") from None
    try:
        yield
    finally:
        os.close(descriptor)
