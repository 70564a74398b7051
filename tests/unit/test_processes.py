"""Priority of processes, death with the parent, and locks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.processes import (
    PARENT_PID_VARIABLE,
    is_running,
    kill_session,
    locked,
    lower_priority,
    session_members,
)
from tests.support.kafka import REPOSITORY
from tests.support.processes import wait_until

_PROGRAM = """
import os
from pathlib import Path
from namesrv_stream.processes import lower_priority

def autogroup():
    file = Path("/proc/self/autogroup")
    words = file.read_text().split() if file.exists() else []
    return words[-1] if words else "none"  # of a kernel that shares processors otherwise

before = autogroup()
lower_priority(os.getpid(), 10)
print(os.nice(0), before, autogroup())
"""


def _run(start_new_session: bool) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        start_new_session=start_new_session,
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    return found.stdout.split()


def test_process_gets_its_niceness() -> None:
    assert _run(start_new_session=False)[0] == str(min(19, os.nice(0) + 10))


def test_a_session_that_the_process_leads_gets_the_nice_value() -> None:
    # Linux accepts such a change from users other than root only once in 100 ms on the whole machine.
    wait_until(lambda: _run(start_new_session=True)[2] in ("10", "none"), 60, "the session is niced")


def test_a_session_that_another_process_leads_keeps_its_nice_value() -> None:
    _, before, after = _run(start_new_session=False)
    assert after == before


def test_lowering_the_priority_of_an_ended_process_is_not_an_error() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    lower_priority(gone.pid, 10)


_DEADLINE_S = 30.0

_CHILD = """
import os, time
from namesrv_stream.processes import die_with_parent
die_with_parent()
print(os.getpid(), os.environ.get("NAMESRV_STREAM_PARENT_PID"), flush=True)
time.sleep(600)
"""
_EXECS = _CHILD.replace("time.sleep(600)", "os.execv('/bin/sleep', ['sleep', '600'])")
_PARENT = """
import os, subprocess, sys, time
environ = {**os.environ, "NAMESRV_STREAM_PARENT_PID": str(os.getpid())}
subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=environ)
time.sleep(600)
"""


def _wait_gone(pid: int) -> None:
    until = time.monotonic() + _DEADLINE_S
    while is_running(pid):
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.02)


@pytest.mark.parametrize("child", [_CHILD, _EXECS], ids=["stays", "execs"])
def test_a_child_ends_when_its_parent_is_killed(child: str) -> None:
    command = [sys.executable, "-c", _PARENT, child]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as parent:
        assert parent.stdout is not None
        pid, mark = parent.stdout.readline().split()
        parent.kill()
        parent.wait(timeout=_DEADLINE_S)
        _wait_gone(int(pid))
    assert mark == "None"


def test_child_whose_parent_ended_before_its_start_ends() -> None:
    environ = {**os.environ, PARENT_PID_VARIABLE: "1"}
    outcome = subprocess.run(
        [sys.executable, "-c", _CHILD], env=environ, cwd=REPOSITORY, check=False, timeout=_DEADLINE_S
    )
    assert outcome.returncode == -signal.SIGTERM


def test_a_process_without_the_parent_variable_is_not_ended() -> None:
    environ = {name: value for name, value in os.environ.items() if name != PARENT_PID_VARIABLE}
    code = _CHILD.replace("time.sleep(600)", "")
    outcome = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=REPOSITORY, check=False, timeout=_DEADLINE_S
    )
    assert outcome.returncode == 0


def test_a_session_is_killed_with_all_its_process_groups() -> None:
    code = (
        "import os, subprocess; inner = subprocess.Popen(['/bin/sleep', '600'], process_group=0);"
        " print(inner.pid, flush=True); inner.wait()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as leader:
        assert leader.stdout is not None
        inner = int(leader.stdout.readline())
        assert set(session_members(leader.pid)) == {leader.pid, inner}
        kill_session(leader.pid)
        _wait_gone(inner)
        _wait_gone(leader.pid)


def test_a_process_that_waits_to_be_reaped_is_not_running() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        _wait_gone(process.pid)
        assert process.wait(timeout=_DEADLINE_S) == 0


def test_unknown_process_is_not_running() -> None:
    assert not is_running(2**22 + 1)  # above the kernel's highest process id


def test_a_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with locked(path, "data.dir", "another program"):
        taken = rf"settings: data\.dir: another program \({path} is locked\): stop it"
        with pytest.raises(ConfigError, match=taken), locked(path, "data.dir", "another program", "stop it"):
            pass
    with locked(path, "data.dir", "another program"):
        pass


def test_a_lock_in_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    reason = r"data\.dir: .*/file/lock cannot be written: "
    with pytest.raises(ConfigError, match=reason), locked(tmp_path / "file" / "lock", "data.dir", "another program"):
        pass
