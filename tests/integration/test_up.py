"""`up` with a real Kafka and real signals leaves no process behind."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from namesrv_stream.ports import choose_port
from namesrv_stream.processes import is_running, read_run_file
from tests.support.kafka import REPOSITORY, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

_DEADLINE_S = 90.0
_READY = re.compile(r"READY remoting=(\S+:\d+) http=(\S+:\d+) kafka=(\S+:\d+) data=(\S+)\n")


class Up:
    """A running `up`; its two output streams are read continuously."""

    def __init__(self, data_dir: Path, flags: tuple[str, ...] = (), environ: dict[str, str] | None = None) -> None:
        settings = settings_for(data_dir)
        texts = [f"data.dir={data_dir}", "remoting.listen_host=127.0.0.1", "advanced.embedded_kafka.heap=256m"]
        for section in ("remoting", "http", "embedded_kafka"):
            texts.append(f"{section}.listen_port={getattr(settings, section).listen_port}")
        self.data_dir = data_dir
        self.out = ""
        self.err = ""
        self.process = subprocess.Popen(
            # Another `up` recognizes this one by a word in its command line. Python ignores unknown options.
            [sys.executable, "-X", "namesrv_stream", "-m", "tests.support.up_with_fake_parts", *texts, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **(environ or {})},
            start_new_session=True,
        )
        self._readers = [threading.Thread(target=target, daemon=True) for target in (self._read_out, self._read_err)]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.out += line

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.err += line

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition is true."""
        until = time.monotonic() + _DEADLINE_S
        while not condition():
            if time.monotonic() > until:
                pytest.fail(f"{what}: not within {_DEADLINE_S} s\n{self.out}\n{self.err}")
            time.sleep(0.02)

    def wait_ready(self) -> None:
        """Wait for the READY line."""
        self.until(lambda: self.out or self.process.poll() is not None, "READY")
        assert self.out, self.err

    def end(self) -> int:
        """Wait for the end of `up`; returns the exit code."""
        code = self.process.wait(timeout=_DEADLINE_S)
        for reader in self._readers:
            reader.join(timeout=_DEADLINE_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code

    def pids(self) -> list[int]:
        """Return the processes that use this data directory, found by command line or by their parent's session."""
        mark = str(self.data_dir).encode()
        found = []
        sessions = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                command, session = (entry / "cmdline").read_bytes(), os.getsid(int(entry.name))
            except OSError:
                continue  # it has ended
            if mark in command and is_running(int(entry.name)) and int(entry.name) != os.getpid():
                found.append(int(entry.name))
                sessions.add(session)
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) not in found and is_running(int(entry.name)):
                try:
                    session = os.getsid(int(entry.name))
                except OSError:
                    continue
                if session in sessions and session != os.getsid(0):
                    found.append(int(entry.name))
        return found


_ACCOUNT, _PASSWORD = "Tr0ub4dor-account", "Tr0ub4dor-password"


@contextmanager
def _starting() -> Iterator[Callable[..., Up]]:
    """Yield a function that starts `up`; at the end, all remaining processes are killed."""
    started: list[Up] = []

    def start(data_dir: Path, *flags: str, **environ: str) -> Up:
        up = Up(data_dir, flags, environ)
        started.append(up)
        return up

    try:
        yield start
    finally:
        for up in started:
            pids = up.pids()
            if up.process.poll() is None:
                up.process.terminate()
            up.end()
            for pid in pids:
                if is_running(pid):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start_up() -> Iterator[Callable[..., Up]]:
    with _starting() as start:
        yield start


@pytest.fixture(scope="module")
def running_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A ready `up` with secrets, for tests that leave it running."""
    variables = {
        "NAMESRV_STREAM__ADMIN__ACCOUNTS__RocketMQ_Ops": _ACCOUNT,
        "NAMESRV_STREAM__STREAMING__EXTRA__spark.x.password": _PASSWORD,
    }
    with _starting() as start:
        up = start(tmp_path_factory.mktemp("up") / "data", **variables)
        up.wait_ready()
        yield up


def test_ready_line_names_every_address_and_ctrl_c_stops_all_parts_in_order(
    tmp_path: Path, start_up: Callable[..., Up]
) -> None:
    up = start_up(tmp_path)
    up.wait_ready()
    ready = _READY.fullmatch(up.out)
    assert ready is not None, up.out
    assert ready[4] == str(tmp_path)
    up.until(lambda: "first batch" in up.err, "the job's first batch")
    pids = up.pids()
    assert len(pids) >= 6  # up, kafka, job, serve and what the last two started
    began = time.monotonic()
    up.process.send_signal(signal.SIGINT)
    assert up.end() == 0
    assert time.monotonic() - began < 10
    assert (tmp_path / "ends").read_text().split() == ["serve", "job"]
    assert [pid for pid in pids if is_running(pid)] == []


def test_kill_9_of_up_leaves_no_process_and_the_next_start_continues(
    tmp_path: Path, start_up: Callable[..., Up]
) -> None:
    up = start_up(tmp_path, FAKE_JOB="stubborn")
    up.until(lambda: "first batch" in up.err, "the job's first batch")
    pids = up.pids()
    up.process.kill()
    second = start_up(tmp_path)
    second.wait_ready()
    assert "previous run" in second.err
    # `up` ends job, serve and Kafka; the children of the fake parts are left running.
    commands = [pid for pid in pids if is_running(pid) and b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert commands == []
    for pid in pids:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["kafka", "serve"])
def test_killed_child_is_restarted_and_reported(running_up: Up, name: str) -> None:
    run_file = running_up.data_dir / "run" / f"{name}.json"
    first = int((read_run_file(run_file) or {})["pid"])
    os.kill(first, signal.SIGKILL)
    running_up.until(lambda: int((read_run_file(run_file) or {"pid": first})["pid"]) != first, f"{name} again")
    assert f"{name} was ended by SIGKILL; restarting it in 0.5 s" in running_up.err


@pytest.mark.alone
def test_child_that_does_not_stop_is_killed_within_ten_seconds(tmp_path: Path, start_up: Callable[..., Up]) -> None:
    up = start_up(tmp_path, FAKE_SERVE="stubborn", FAKE_JOB="stubborn")
    up.wait_ready()
    pids = up.pids()
    began = time.monotonic()
    up.process.send_signal(signal.SIGTERM)
    assert up.end() == 0
    assert time.monotonic() - began < 10
    assert [pid for pid in pids if is_running(pid)] == []


def test_child_that_refuses_its_configuration_ends_the_start_with_its_reason(
    tmp_path: Path, start_up: Callable[..., Up]
) -> None:
    up = start_up(tmp_path, FAKE_SERVE="exit-2")
    assert up.end() == 2
    assert "error: serve: settings: x.y: will not do" in up.err
    assert up.out == ""


def test_job_that_cannot_run_is_reported_once_and_the_server_continues(
    tmp_path: Path, start_up: Callable[..., Up]
) -> None:
    up = start_up(tmp_path, FAKE_JOB="exit-2")
    up.wait_ready()
    up.until(lambda: "the others continue" in up.err, "up says so")
    assert read_run_file(tmp_path / "run" / "serve.json") is not None
    up.process.send_signal(signal.SIGTERM)
    assert up.end() == 0
    assert up.err.count("settings: x.y: will not do") == 1
    assert "job cannot run: settings: x.y: will not do; the others continue" in up.err


def test_secrets_reach_only_the_parts_that_need_them(running_up: Up) -> None:
    data_dir = running_up.data_dir
    running_up.until(lambda: read_run_file(data_dir / "run" / "job.json"), "the job is ready")
    environ = {}
    for part in ("serve", "job"):
        facts = read_run_file(data_dir / "run" / f"{part}.json")
        assert facts is not None
        environ[part] = Path(f"/proc/{facts['pid']}/environ").read_bytes().decode()
    assert (_ACCOUNT in environ["serve"], _PASSWORD in environ["serve"]) == (True, True)
    assert (_ACCOUNT in environ["job"], _PASSWORD in environ["job"]) == (False, True)
    for pid in running_up.pids():
        assert b"Tr0ub4dor" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for path in data_dir.rglob("*"):
        assert not path.is_file() or b"Tr0ub4dor" not in path.read_bytes(), path
    assert "Tr0ub4dor" not in running_up.out + running_up.err


def test_second_up_on_the_same_directory_is_refused(running_up: Up) -> None:
    outcome = _cli("up", "--data-dir", str(running_up.data_dir))
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("error: settings: data.dir:")
    assert f"process {running_up.process.pid}" in outcome.stderr


def _cli(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "namesrv_stream", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=_DEADLINE_S)


def test_external_kafka_that_does_not_answer_gives_exit_code_3(tmp_path: Path) -> None:
    servers = f"127.0.0.1:{choose_port('127.0.0.1')}"
    flags = ["--data-dir", str(tmp_path), "--remoting-port", "0", "--http-port", "0"]
    flags += ["--set", f"kafka.bootstrap_servers={servers}", "--set", "kafka.connect_timeout_ms=500"]
    outcome = _cli("up", *flags)
    assert outcome.returncode == 3
    assert outcome.stderr.splitlines()[-1].startswith(f"error: Kafka at {servers} does not answer")
    assert "Traceback" not in outcome.stderr


def test_kafka_that_cannot_start_is_reported_with_its_reason(tmp_path: Path, start_up: Callable[..., Up]) -> None:
    (tmp_path / "kafka").write_text("a file where a folder must be")
    up = start_up(tmp_path)
    assert up.end() == 2
    assert "error: kafka: settings: data.dir:" in up.err
