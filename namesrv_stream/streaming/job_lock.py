"""One writer of the tables a data directory: the job, or a rebuild of what the job writes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from namesrv_stream.errors import ConfigError


@contextmanager
def job_lock(run_dir: Path, remedy: str = "") -> Iterator[None]:
    """Hold the lock; the system lets go of it when the process ends, however it ends.

    Args:
        run_dir: ``DATA/run``; made if absent.
        remedy: What to do where it is held by another.

    Raises:
        ConfigError: Another job, or a rebuild, works on this directory.
    """
    path = run_dir / "job.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        reason = f"another job runs here, or a rebuild ({path} is locked)"
        raise ConfigError("settings", "data.dir", f"{reason}{remedy and ': '}{remedy}") from None
    try:
        yield
    finally:
        os.close(descriptor)
