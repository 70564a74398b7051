"""One ``up`` a data directory.

The lock is a flock on DATA/run/up.lock, and the children inherit it: after a ``kill -9`` of ``up`` it is held until the
last of them is gone, so a new start never meets processes of the old one.
"""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from namesrv_stream.errors import ConfigError
from namesrv_stream.up.processes import is_running

_POLL_S: Final = 0.05


def acquire_run_lock(path: Path, say: Callable[[str], None], wait_s: float = 15.0) -> int:
    """Take the lock; waits only while processes of a killed ``up`` are still ending. May block.

    Args:
        path: The lock file.
        say: Told why it takes time.
        wait_s: Most seconds to wait for those processes.

    Returns:
        A file descriptor: hand it to the children, close it when they are gone.

    Raises:
        ConfigError: Another ``up`` works on this directory, or the directory cannot be written.
    """
    data_dir = path.parent.parent
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError("settings", "data.dir", f"{data_dir} cannot be written: {error.strerror}") from None
    deadline = time.monotonic() + wait_s
    has_said = False
    while not _try_lock(lock):
        owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        if (owner.isdecimal() and is_running(int(owner))) or time.monotonic() > deadline:
            os.close(lock)
            raise ConfigError("settings", "data.dir", f"{data_dir} is in use by another `up` (process {owner})")
        if not has_said:
            say(f"waiting for the processes of the previous run (process {owner}) to end")
            has_said = True
        time.sleep(_POLL_S)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
