"""Processes of an installation on this machine: priority, death with the parent, sessions of children.

Linux sends SIGTERM when the parent is gone (PR_SET_PDEATHSIG, which survives ``exec``, so Kafka's Java has it too);
a thread sees to it that a process which does not stop by itself is killed.
"""

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

PARENT_PID_VARIABLE: Final = "NAMESRV_STREAM_PARENT_PID"
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_POLL_S: Final = 1.0
_GRACE_S: Final = 8.0  # as long as `up` itself would have waited, about
_PROC: Final = Path("/proc")


def give_way(pid: int, niceness: int) -> None:
    """Let other processes go before this one, and before those that it starts from now on, where the system allows it.

    Linux may share processors between sessions first, and niceness then counts within one alone. So a session that
    the process leads is niced too, as ``up`` gives one to each part; one of others stays as it is. Containers with
    shares of their own know neither.

    Args:
        pid: Process id; nothing happens if it is gone. If it leads a process group, the whole group is meant.
        niceness: By how much, 1 to 19.

    Source: sched(7), "The autogroup feature".
    """
    with suppress(OSError):  # gone, or not ours to change
        # Of a process the call means its first thread alone.
        who = os.PRIO_PGRP if os.getpgid(pid) == pid else os.PRIO_PROCESS
        os.setpriority(who, pid, os.getpriority(os.PRIO_PROCESS, pid) + niceness)
        if os.getsid(pid) == pid:
            Path(f"/proc/{pid}/autogroup").write_text(str(niceness), encoding="ascii")


def die_with_parent() -> None:
    """Tie this process's life to its parent's if ``up`` started it; call first thing in the main thread.

    The mark is taken out of the environment: this process's own children are its own affair.
    """
    parent_text = os.environ.pop(PARENT_PID_VARIABLE, "")
    if not parent_text.isdecimal():
        return
    parent = int(parent_text)
    is_signalled = _ask_for_sigterm()
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=_kill_after, args=(parent, is_signalled), name="parent-watch", daemon=True).start()


def _ask_for_sigterm() -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) == 0)
    except (OSError, AttributeError):  # not Linux
        return False


def _kill_after(parent: int, is_signalled: bool) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    if not is_signalled:
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


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
