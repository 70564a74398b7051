"""One writer of a folder of tables: the job, or a rebuild of what the job writes, of whatever data directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from namesrv_stream.errors import ConfigError


@contextmanager
def job_lock(tables_dir: Path, remedy: str = "") -> Iterator[None]:
    """Hold the lock; the system lets go of it when the process ends, however it ends.

    Args:
        tables_dir: Where the tables are; made if absent.
        remedy: What to do where it is held by another.

    Raises:
        ConfigError: Another job, or a rebuild, works on these tables, or the folder cannot be written.
    """
    path = tables_dir / "job.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError("settings", "data.tables", f"{path} cannot be made: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        reason = f"another job runs here, or a rebuild ({path} is locked)"
        raise ConfigError("settings", "data.tables", f"{reason}{remedy and ': '}{remedy}") from None
    try:
        yield
    finally:
        os.close(descriptor)
