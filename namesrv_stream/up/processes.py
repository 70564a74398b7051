"""What the kernel knows of processes: who lives, and who belongs to a child's session."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def is_running(pid: int) -> bool:
    """Whether ``pid`` is a process that has not ended; one that waits to be reaped has."""
    state, _ = _state_and_session(pid)
    if state:
        return state not in "ZX"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return not _PROC.joinpath("self").exists()  # without /proc the signal is all we have
    return False


def session_members(session: int) -> Iterator[int]:
    """Process ids in a session, its leader included; none where there is no /proc."""
    if not _PROC.is_dir():
        return
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            state, owner = _state_and_session(int(entry.name))
            if owner == session and state not in "ZX":
                yield int(entry.name)


def kill_session(session: int) -> None:
    """SIGKILL every process of a session: a child's own children that outlived it (a JVM, Python workers)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)
    for pid in session_members(session):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _state_and_session(pid: int) -> tuple[str, int]:
    """State letter and session id of a process; ("", 0) if it is gone.

    Source: proc(5), /proc/PID/stat: the fields after the command's name, which may itself hold spaces and brackets.
    """
    try:
        stat = _PROC.joinpath(str(pid), "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "", 0
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[3])
