"""Processes of an installation on this machine: priority, death with the parent, sessions, run files and locks.

Linux sends a process SIGTERM when its parent has ended (PR_SET_PDEATHSIG, which survives ``exec``, so it also works for
Kafka's Java). If the process then does not stop, one of its threads kills it.

Run files are small JSON files in ``DATA/run`` in which a process publishes that it is ready, and at which address. A
process writes its run file atomically when it is ready; the process that starts it removes an old file first. At its
start, a process also writes one to ``DATA/run/starting``.

A folder of tables has one writer at a time (the job or a rebuild), and one history process. A data directory has one
server and one webhook. Each of them holds a lock.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from namesrv_stream.errors import ConfigError

PARENT_PID_VARIABLE: Final = "NAMESRV_STREAM_PARENT_PID"
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_POLL_S: Final = 1.0
_GRACE_S: Final = 8.0  # about as long as `up` itself would wait
_PROC: Final = Path("/proc")
STARTING: Final = "starting"  # the folder for run files of processes that are not ready yet


def lower_priority(pid: int, niceness: int) -> None:
    """Give a process, and those that it starts from now on, a lower priority, if the system allows it.

    Linux may divide processor time among sessions first; a nice value then has an effect only within its session. If
    the process leads a session, as every part that ``up`` starts does, the session gets the nice value, too. No other
    session changes.

    Args:
        pid: Process id; nothing happens if it has ended. If it leads a process group, the whole group is meant.
        niceness: Added to the nice value, 1 to 19.

    Source: sched(7), "The autogroup feature".
    """
    with suppress(OSError):  # it has ended, or this user may not change it
        # For a process id the call affects only its first thread.
        who = os.PRIO_PGRP if os.getpgid(pid) == pid else os.PRIO_PROCESS
        os.setpriority(who, pid, os.getpriority(os.PRIO_PROCESS, pid) + niceness)
        if os.getsid(pid) == pid:
            Path(f"/proc/{pid}/autogroup").write_text(str(niceness), encoding="ascii")


def die_with_parent() -> None:
    """If ``up`` started this process, make it end with its parent; call this first, in the main thread.

    This removes the environment variable by which ``up`` marks its children, so that this process's own children do not
    inherit the mark.
    """
    parent_text = os.environ.pop(PARENT_PID_VARIABLE, "")
    if not parent_text.isdecimal():
        return
    parent = int(parent_text)
    is_signalled = signal_with_parent(signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=_kill_after, args=(parent, is_signalled), name="parent-watch", daemon=True).start()


def signal_with_parent(signum: int) -> bool:
    """Make Linux send this process a signal when its parent ends. Return False if the system cannot do that."""
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signum) == 0)
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
    """Whether ``pid`` is a process that has not ended; a zombie has ended."""
    state, _, _ = _stat(pid)
    if state:
        return state not in "ZX"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return not _PROC.joinpath("self").exists()  # without /proc only the signal can tell
    return False


def session_members(session: int) -> Iterator[int]:
    """Yield the ids of all processes of a session, its leader included; none without /proc."""
    for pid, (_, _, its_session) in _processes():
        if its_session == session:
            yield pid


def child_processes(parent: int) -> Iterator[int]:
    """Yield the process ids of a process's children; none without /proc."""
    for pid, (_, its_parent, _) in _processes():
        if its_parent == parent:
            yield pid


def kill_session(session: int) -> None:
    """Send SIGKILL to every process of a session, such as a JVM or Python workers that outlived a child."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)
    for pid in session_members(session):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[tuple[int, tuple[str, int, int]]]:
    """Yield process id and ``_stat`` of every process that has not ended; none without /proc."""
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdecimal():
            stat = _stat(int(entry.name))
            if stat[0] not in "ZX":  # "" if it has ended meanwhile
                yield int(entry.name), stat


def _stat(pid: int) -> tuple[str, int, int]:
    """Return state letter, parent id and session id of a process; ("", 0, 0) if it has ended.

    Source: proc(5), /proc/PID/stat: the fields after the command's name, which may itself contain spaces and brackets.
    """
    try:
        stat = _PROC.joinpath(str(pid), "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "", 0, 0
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[3])


#: Words in the command lines of the product's processes: `python -m namesrv_stream`, the console script, the embedded
#: Kafka, and what `spark-submit` runs.
_COMMANDS: Final = frozenset({b"namesrv_stream", b"namesrv-stream", b"kafka.Kafka", b"route_table.py", b"history.py"})


def write_run_file(path: Path, fields: Mapping[str, str | int]) -> None:
    """Write a run file with ``fields`` and this process's ``pid`` atomically.

    Args:
        path: For example ``DATA/run/serve.json``; its folder is created if absent.
        fields: For the readers, for example ``{"remoting": "127.0.0.1:9876"}``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps({**fields, "pid": os.getpid()}) + "\n", encoding="utf-8")
    draft.replace(path)


def announce_start(path: Path) -> None:
    """Remove the run file of an earlier process, and publish in the folder ``starting`` that this process is starting.

    Args:
        path: The run file that this process writes once it is ready.
    """
    path.unlink(missing_ok=True)
    write_run_file(path.parent / STARTING / path.name, {})


def read_run_file(path: Path) -> dict[str, str | int] | None:
    """Return the fields of the run file ``path``; None if there is no such file or it is not a run file."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return fields if isinstance(fields, dict) else None


def is_writer_alive(fields: Mapping[str, str | int]) -> bool:
    """Whether the process that wrote a run file still runs; checks its command line, because process ids are reused."""
    try:
        arguments = Path(f"/proc/{fields.get('pid')}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return not Path("/proc/self").exists() and _exists(int(fields.get("pid", 0)))
    except OSError:
        return False
    return not _COMMANDS.isdisjoint(argument.rpartition(b"/")[2] for argument in arguments)


def _exists(pid: int) -> bool:
    """Whether any process has this id; without /proc, as on macOS, nothing more can be checked."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def job_lock(tables_dir: Path, remedy: str = "") -> AbstractContextManager[None]:
    """Hold the lock of the job's tables; if another process holds it, raise ConfigError with ``remedy`` as advice."""
    return locked(tables_dir / "job.lock", "data.tables", "another job runs here, or a rebuild", remedy)


@contextmanager
def locked(path: Path, key: str, holder: str, remedy: str = "") -> Iterator[None]:
    """Hold a lock. The operating system releases it when the process ends; child processes do not inherit it.

    Args:
        path: The lock's file; its folder is created if it is missing.
        key: The setting that names the folder, for errors.
        holder: Text for the error that says what may hold the lock.
        remedy: Advice for the same error.

    Raises:
        ConfigError: Another process holds the lock, or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError("settings", key, f"{path} cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError("settings", key, f"{holder} ({path} is locked){remedy and ': '}{remedy}") from None
        except OSError as error:
            raise ConfigError("settings", key, f"{path} cannot be locked: {error.strerror}") from None
        yield
    finally:
        os.close(descriptor)
