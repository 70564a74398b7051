"""The parent process of a server: when it kills the server, and how both end."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from namesrv_stream.processes import PARENT_PID_VARIABLE, child_processes, is_running, lower_priority
from tests.support.processes import ServeProcess, suspend, wait_until

pytestmark = pytest.mark.integration

_SERVER: Final = """
import os, sys, threading, time
from namesrv_stream import watchdog

code = watchdog.fork_server()
if code is not None:
    sys.exit(code)

def beat_for(seconds, timeout_ms=1_000):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        watchdog.supervision.beat(timeout_ms, "text")
        time.sleep(0.1)

def hang_in_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

restarts = watchdog.supervision.restarts
print("server", os.getpid(), "restarts", restarts, flush=True)
"""
#: Beats until it is told otherwise.
_BEATS: Final = "beat_for(1e9)"
_DEADLINE_S: Final = 60


@contextmanager
def _server(folder: Path, does: str) -> Iterator[ServeProcess]:
    """Run a process that is a server only for its parent; ``does`` says how it behaves."""
    process = ServeProcess("server", [sys.executable, "-c", _SERVER + does], folder / "server.log")
    with process:
        yield process


def _wait_started(process: ServeProcess, restarts: int) -> int:
    """Wait for the server after this number of restarts; returns its process id."""

    def found() -> int:
        lines = [line.split() for line in process.log_text().splitlines(True) if re.match("server .*\n", line)]
        return next((int(line[1]) for line in lines if line[3] == str(restarts)), 0)

    return wait_until(found, _DEADLINE_S, f"the server after {restarts} restarts")


_HANGS: Final[dict[str, str]] = {
    "an endless loop": "while True: pass",
    "a lock": "hang_in_a_lock()",
    "a lock, while another thread computes": (
        "threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start(); hang_in_a_lock()"
    ),
}


@pytest.mark.parametrize("hang", _HANGS.values(), ids=_HANGS)
def test_a_server_that_hangs_is_killed_and_started_again(tmp_path: Path, hang: str) -> None:
    does = f"""
if restarts == 0:
    beat_for(0.3)
    {hang}
{_BEATS}
"""
    with _server(tmp_path, does) as process:
        first = _wait_started(process, 0)
        second = _wait_started(process, 1)
        assert second != first
        assert not is_running(first)
        assert "the server hung and was killed" in process.log_text()


def test_a_stopped_server_is_killed_and_started_again(tmp_path: Path) -> None:
    with _server(tmp_path, _BEATS) as process:
        suspend(_wait_started(process, 0))
        _wait_started(process, 1)
        assert "thread_states=T " in process.log_text()


def test_after_three_kills_in_ten_minutes_a_server_that_hangs_is_left_alone(tmp_path: Path) -> None:
    with _server(tmp_path, _BEATS) as process:
        for restarts in range(3):
            suspend(_wait_started(process, restarts))
        last = _wait_started(process, 3)
        suspend(last)
        process.wait_for_log("the server hangs and is left alone", _DEADLINE_S)
        _wait_steps(process, 3)
        assert process.server_pid == last
        assert process.log_text().count("left alone") == 1
        os.kill(last, signal.SIGCONT)
        assert process.terminate() == -signal.SIGTERM


@pytest.mark.parametrize("is_server_suspended", [True, False])
def test_nothing_is_killed_when_the_parent_was_suspended(tmp_path: Path, is_server_suspended: bool) -> None:
    """A suspended machine or a frozen container suspends both of them."""
    with _server(tmp_path, _BEATS) as process:
        server = _wait_started(process, 0)
        pids = [process.pid, server] if is_server_suspended else [process.pid]
        for pid in pids:
            suspend(pid)
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(["sleep", "100"], timeout=2.5, check=False)  # nothing runs that could be awaited
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
        _wait_steps(process, 3)
        assert process.server_pid == server
        assert process.terminate() == -signal.SIGTERM
        assert "hung" not in process.log_text()


def _wait_steps(process: ServeProcess, number: int) -> None:
    """Wait until the parent has woken up this many times: for a beat, or because there was none for a second."""
    first = _wakes(process.pid)
    wait_until(lambda: _wakes(process.pid) >= first + number, _DEADLINE_S, "the parent goes on")


def _wakes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_a_server_that_gets_no_processor_is_not_killed(tmp_path: Path) -> None:
    """It shares its processor with an endless loop of a much higher priority."""
    one = {min(os.sched_getaffinity(0))}
    # It needs 0.3 s of processor time for a beat.
    does = """
while True:
    beat_for(0.1, timeout_ms=3_000)
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
"""
    with _server(tmp_path, does) as process, subprocess.Popen([sys.executable, "-c", "while True: pass"]) as hog:
        try:
            server = _wait_started(process, 0)
            os.sched_setaffinity(hog.pid, one)
            os.sched_setaffinity(server, one)
            lower_priority(process.pid, 19)  # leaves it 1.5 % of the processor
            _wait_steps(process, 2)
            ticks = _cpu_ticks(server)
            _wait_steps(process, 4)
            assert (_cpu_ticks(server) - ticks) / os.sysconf("SC_CLK_TCK") < 0.3, "it got enough for a beat"
            assert process.server_pid == server
        finally:
            hog.kill()
        assert "hung" not in process.log_text()


def _cpu_ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


@pytest.mark.parametrize(
    "does",
    [
        pytest.param("time.sleep(3)", id="before the first beat"),
        pytest.param("beat_for(0.3); watchdog.supervision.end(); time.sleep(3)", id="after the last one"),
        pytest.param("beat_for(0.3, timeout_ms=0); time.sleep(3)", id="without a time limit"),
    ],
)
def test_a_server_without_beats_may_take_as_long_as_it_wants(tmp_path: Path, does: str) -> None:
    with _server(tmp_path, f"{does}; sys.exit(7)") as process:
        assert process.wait(_DEADLINE_S) == 7
        assert "hung" not in process.log_text()


@pytest.mark.parametrize(
    ("does", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(2)", 2),
        ("raise SystemExit('refused')", 1),
        ("os.kill(os.getpid(), 9)", -9),
        ("os.abort()", -6),
        ("beat_for(0.2); os.kill(os.getpid(), 9)", -9),
    ],
)
def test_the_parent_ends_as_the_server_has_ended(tmp_path: Path, does: str, code: int) -> None:
    with _server(tmp_path, does) as process:
        assert process.wait(_DEADLINE_S) == code
        assert process.log_text().count("server ") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_parent_forwards_signals_that_stop_it_and_waits_for_the_server(tmp_path: Path, number: int) -> None:
    does = f"""
import signal
def stop(number, _):
    watchdog.supervision.end()
    time.sleep(1.5)  # longer than the server may hang
    print("stopped by", number, flush=True)
    os._exit(5)
signal.signal({number}, stop)
print("is ready", flush=True)
{_BEATS}
"""
    with _server(tmp_path, does) as process:
        process.wait_for_log("is ready", _DEADLINE_S)
        process.signal(signal.Signals(number))
        assert process.wait(_DEADLINE_S) == 5
        assert f"stopped by {number}" in process.log_text()


def test_a_server_that_hangs_when_it_is_stopped_is_killed_and_not_started_again(tmp_path: Path) -> None:
    with _server(tmp_path, _BEATS) as process:
        server = _wait_started(process, 0)
        suspend(server)
        assert process.terminate(_DEADLINE_S) == -signal.SIGKILL
        assert not is_running(server)


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """A server that was started with nohup survives the end of its terminal."""
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    process = ServeProcess("server", [sys.executable, "-c", ignoring + _SERVER + _BEATS], tmp_path / "server.log")
    with process:
        server = _wait_started(process, 0)
        process.signal(signal.SIGHUP, whole_group=True)
        assert process.terminate() == -signal.SIGTERM
        assert not is_running(server)


def test_the_server_is_killed_with_its_parent_even_if_it_hangs(tmp_path: Path) -> None:
    with _server(tmp_path, _BEATS) as process:
        server = _wait_started(process, 0)
        suspend(server)
        process.signal(signal.SIGKILL)
        wait_until(lambda: not is_running(server), _DEADLINE_S, "the server has ended")


def test_a_server_of_up_ends_with_up(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as other:
        # The parent of the server believes that its parent has ended, because it is another process.
        mark = {PARENT_PID_VARIABLE: str(other.pid)}
        command = [sys.executable, "-c", _SERVER + _BEATS]
        with ServeProcess("server", command, tmp_path / "server.log", env=mark) as process:
            assert process.wait(_DEADLINE_S) == -signal.SIGTERM
            assert list(child_processes(process.pid)) == []
        other.kill()
