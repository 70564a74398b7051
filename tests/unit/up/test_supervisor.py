"""Supervision of small real child processes."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from namesrv_stream.client.server_link import BackOff
from namesrv_stream.processes import is_running
from namesrv_stream.up.child import ChildSpec
from namesrv_stream.up.supervisor import ChildFailure, Supervisor, describe_exit

_QUICK = BackOff(20, 80, jitter=0)
_DEADLINE_S = 30.0
_SLEEP = "import time; time.sleep(600)"
_IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("progress: up", flush=True)
time.sleep(600)
"""
_SAYS_ITS_END = """
import signal, sys, time
def end(*_):
    with open({path!r}, "a") as ends:
        ends.write("{name}\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("progress: up", flush=True)
time.sleep(600)
"""
_LEAVES_A_GRANDCHILD = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print(f"progress: {left.pid}", flush=True)
sys.exit(1)
"""
_WRITES_RUN_FILE = """
import time
from pathlib import Path
from namesrv_stream.processes import write_run_file
write_run_file(Path({path!r}), {{"remoting": "fresh"}})
time.sleep(600)
"""


class Terminal:
    """The lines on the terminal."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, text: str) -> None:
        self.lines.append(text)


def _python(
    name: str, code: str, stop_timeout_s: float = 5.0, run_file: Path | None = None, *, is_required: bool = False
) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-c", code), stop_timeout_s, run_file, is_required=is_required)


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


@pytest.fixture
async def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
async def supervisor(tmp_path: Path, terminal: Terminal) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(tmp_path / "logs", {"PYTHONPATH": os.getcwd()}, terminal, back_off=_QUICK)
    yield supervisor
    await supervisor.stop()


async def test_child_that_dies_is_restarted_with_growing_delays(supervisor: Supervisor, terminal: Terminal) -> None:
    supervisor.start(_python("job", "raise SystemExit(1)"))
    await _until(lambda: len(terminal.lines) >= 4)
    waits = ["0.02", "0.04", "0.08", "0.08"]
    assert terminal.lines[:4] == [f"job ended with exit code 1; restarting it in {wait} s" for wait in waits]


async def test_healthy_run_resets_the_restart_delay(tmp_path: Path, terminal: Terminal) -> None:
    supervisor = Supervisor(tmp_path, {}, terminal, back_off=BackOff(10, 60_000, jitter=0), healthy_s=0.0)
    supervisor.start(_python("job", "raise SystemExit(1)"))
    await _until(lambda: len(terminal.lines) >= 3)
    await supervisor.stop()
    assert all(line.endswith("restarting it in 0.01 s") for line in terminal.lines)


async def test_a_killed_child_is_started_again(supervisor: Supervisor, terminal: Terminal) -> None:
    supervisor.start(_python("job", _SLEEP))
    await _until(lambda: supervisor.pid("job"))
    first = supervisor.pid("job") or 0
    os.kill(first, signal.SIGKILL)
    await _until(lambda: supervisor.pid("job") not in (None, first))
    assert terminal.lines == ["job was ended by SIGKILL; restarting it in 0.02 s"]


async def test_reason_is_the_last_output_of_the_child(supervisor: Supervisor, terminal: Terminal) -> None:
    supervisor.start(_python("job", "raise ValueError('no such thing')"))
    await _until(lambda: terminal.lines)
    assert terminal.lines[0].startswith("job ended with exit code 1 (ValueError: no such thing);")


@pytest.mark.parametrize("code", [2, 3])
async def test_a_refusal_of_a_required_part_before_the_start_has_succeeded_fails_it(
    supervisor: Supervisor, terminal: Terminal, code: int
) -> None:
    refusal = f"print('error: no Kafka', flush=True); print('x'); raise SystemExit({code})"
    supervisor.start(_python("serve", refusal, is_required=True))
    async with asyncio.timeout(_DEADLINE_S):
        failure = await supervisor.failure
    assert failure == ChildFailure("serve", code, "no Kafka")
    assert terminal.lines == []


@pytest.mark.parametrize("code", [2, 3])
async def test_a_required_part_is_started_again_after_a_refusal_once_the_start_has_succeeded(
    supervisor: Supervisor, terminal: Terminal, code: int
) -> None:
    supervisor.is_settled = True
    refusal = f"print('error: no Kafka', flush=True); raise SystemExit({code})"
    supervisor.start(_python("serve", refusal, is_required=True))
    await _until(lambda: len(terminal.lines) >= 2)
    assert terminal.lines[0] == f"serve ended with exit code {code} (no Kafka); restarting it in 0.02 s"
    assert not supervisor.failure.done()


async def test_a_part_that_cannot_be_started_fails_the_start(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.start(ChildSpec("serve", (tmp_path / "absent",), is_required=True))
    async with asyncio.timeout(_DEADLINE_S):
        failure = await supervisor.failure
    assert (failure.name, failure.exit_code) == ("serve", 3)
    assert str(tmp_path / "absent") in failure.reason


async def test_a_part_that_cannot_be_started_for_a_while_is_started_again(
    supervisor: Supervisor, terminal: Terminal, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    supervisor.is_settled = True
    supervisor.start(ChildSpec("serve", (program, "-c", _SLEEP), is_required=True))
    await _until(lambda: len(terminal.lines) >= 2)
    program.symlink_to(sys.executable)
    await _until(lambda: supervisor.pid("serve"))
    assert terminal.lines[0].startswith("serve cannot be started ([Errno 2] No such file or directory")
    assert terminal.lines[0].endswith("; restarting it in 0.02 s")


async def test_an_error_of_the_supervisor_itself_ends_it(tmp_path: Path) -> None:
    def print_line(text: str) -> None:
        raise RuntimeError(text)

    supervisor = Supervisor(tmp_path, {}, print_line, back_off=_QUICK)
    supervisor.start(_python("job", "raise SystemExit(1)"))
    with pytest.raises(RuntimeError, match="job ended with exit code 1"):
        async with asyncio.timeout(_DEADLINE_S):
            await supervisor.failure
    await supervisor.stop()


@pytest.mark.parametrize("is_settled", [False, True])
async def test_part_that_cannot_run_is_reported_once_and_tried_again(
    supervisor: Supervisor, terminal: Terminal, tmp_path: Path, *, is_settled: bool
) -> None:
    supervisor.is_settled = is_settled
    runs, mended, steady = (tmp_path / name for name in ("runs", "mended", "steady"))
    program = f"""
import os, time
open({str(runs)!r}, "a").write("x")
if os.path.exists({str(mended)!r}):
    open({str(steady)!r}, "x")
    time.sleep(600)
print("error: another log", flush=True)
raise SystemExit(2)
"""
    supervisor.start(_python("job", program))
    await _until(lambda: runs.exists() and len(runs.read_text()) >= 3)
    mended.touch()
    await _until(steady.exists)
    assert supervisor.pid("job")
    assert terminal.lines == ["job cannot run: another log; the others continue; trying it every 0.08 s"]
    assert not supervisor.failure.done()


async def test_a_part_whose_prerequisite_is_missing_is_started_again(
    supervisor: Supervisor, terminal: Terminal
) -> None:
    supervisor.start(_python("job", "print('error: no Kafka', flush=True); raise SystemExit(3)"))
    await _until(lambda: len(terminal.lines) >= 2)
    assert terminal.lines[1] == "job ended with exit code 3 (no Kafka); restarting it in 0.04 s"


async def test_stop_ends_the_children_in_reverse_order_of_their_start(
    supervisor: Supervisor, terminal: Terminal, tmp_path: Path
) -> None:
    for name in ("kafka", "job", "serve"):
        supervisor.start(_python(name, _SAYS_ITS_END.format(path=str(tmp_path / "ends"), name=name)))
    await _until(lambda: len(terminal.lines) == 3)
    await supervisor.stop()
    assert (tmp_path / "ends").read_text().split() == ["serve", "job", "kafka"]


async def test_stop_kills_a_child_that_does_not_end_in_time(supervisor: Supervisor, terminal: Terminal) -> None:
    supervisor.start(_python("job", _IGNORES_SIGTERM, stop_timeout_s=0.1))
    await _until(lambda: terminal.lines)
    pid = supervisor.pid("job") or 0
    await supervisor.stop()
    assert not is_running(pid)


async def test_a_second_signal_kills_without_waiting(supervisor: Supervisor, terminal: Terminal) -> None:
    supervisor.start(_python("job", _IGNORES_SIGTERM, stop_timeout_s=600.0))
    supervisor.start(_python("serve", _IGNORES_SIGTERM, stop_timeout_s=600.0))
    await _until(lambda: len(terminal.lines) == 2)
    stop = asyncio.ensure_future(supervisor.stop())
    supervisor.hurry()
    async with asyncio.timeout(_DEADLINE_S):
        await stop


async def test_stop_during_a_wait_for_the_next_start_ends_at_once(tmp_path: Path, terminal: Terminal) -> None:
    supervisor = Supervisor(tmp_path, {}, terminal, back_off=BackOff(600_000, 600_000, jitter=0))
    supervisor.start(_python("job", "raise SystemExit(1)"))
    await _until(lambda: terminal.lines)
    async with asyncio.timeout(_DEADLINE_S):
        await supervisor.stop()
    assert supervisor.pid("job") is None


async def test_processes_that_a_child_started_end_with_it(supervisor: Supervisor, terminal: Terminal) -> None:
    supervisor.start(_python("job", _LEAVES_A_GRANDCHILD))
    await _until(lambda: any("restarting it" in line for line in terminal.lines))
    grandchild = int(terminal.lines[0].removeprefix("job: "))
    await _until(lambda: not is_running(grandchild))


async def test_output_goes_to_the_log_and_progress_to_the_terminal(
    supervisor: Supervisor, terminal: Terminal, tmp_path: Path
) -> None:
    code = (
        "import sys; print('plain'); print('progress: half', flush=True); sys.stderr.write('no newline'); sys.exit(1)"
    )
    supervisor.start(_python("job", code))
    await _until(lambda: len(terminal.lines) >= 2)
    assert terminal.lines[0] == "job: half"
    assert (tmp_path / "logs" / "job.log").read_text().startswith("plain\nprogress: half\nno newline\n")


async def test_a_child_is_ready_when_its_own_run_file_appears(
    supervisor: Supervisor, terminal: Terminal, tmp_path: Path
) -> None:
    run_file = tmp_path / "run" / "serve.json"
    run_file.parent.mkdir()
    run_file.write_text('{"remoting": "stale", "pid": 1}')
    spec = _python("serve", _WRITES_RUN_FILE.format(path=str(run_file)), run_file=run_file)
    supervisor.start(spec)
    async with asyncio.timeout(_DEADLINE_S):
        facts = await supervisor.wait_ready(spec)
    assert facts == {"remoting": "fresh", "pid": supervisor.pid("serve")}
    await supervisor.stop()
    assert not run_file.exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "ended with exit code 0"), (-9, "was ended by SIGKILL"), (-250, "was ended by signal 250")],
)
def test_exit_codes_are_explained(code: int, words: str) -> None:
    assert describe_exit(code) == words
