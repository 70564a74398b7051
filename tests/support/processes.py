"""Child processes, ports and waiting, for tests that run real parts.

No child outlives the test process. Each leads its own session, and ``close`` kills its whole group. The kernel kills
the leader when the thread that started it ends, so call ``start`` on a thread that runs long enough.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

from namesrv_stream.processes import child_processes

T = TypeVar("T")

POLL_S = 0.02
# The waiting test leaves most of a core to the other processes, even if the predicate reads a table.
_REST = 3.0
_LONGEST_REST_S = 0.5
# Below Linux's default range for outgoing connections (ip_local_port_range), so that no client socket takes the port
# between the moment it is chosen and the moment a server binds it; and below the ports that the product chooses itself.
_PORTS = range(12_000, 20_000)
_LOG_TAIL_LINES = 40

# Runs in the child, before the command replaces it. A fork hook (preexec_fn) would do the same, at the risk of a
# deadlock when the test process has threads. PR_SET_PDEATHSIG is 1; the parent may have died before the call.
_DIE_WITH_PARENT = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def dying_with_parent(args: Sequence[str]) -> list[str]:
    """Return a command that the kernel kills when the thread that starts it ends."""
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *args]


def _own_ports() -> Iterator[int]:
    """Yield the ports of this process in a random order, again and again.

    Each worker of pytest-xdist has its own part of the range, so that no other worker takes a port meanwhile.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = len(_PORTS) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = _PORTS[worker * share : (worker + 1) * share]
    while True:
        # pytest-randomly gives `random` the same seed before every test.
        yield from random.SystemRandom().sample(own, share)


_UNUSED_PORTS = _own_ports()


def free_port(offsets: Sequence[int] = (0,)) -> int:
    """Choose a TCP port of 127.0.0.1 that nothing listens on.

    Args:
        offsets: Distances from the port that must be free as well.

    Returns:
        The port. It is not reserved, but this function does not return it again soon.

    Raises:
        AssertionError: No such port was found.
    """
    for port in islice(_UNUSED_PORTS, 200):
        if all(_is_free(port + offset) for offset in offsets):
            return port
    raise AssertionError(f"no free port with offsets {tuple(offsets)} on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def suspend(pid: int) -> None:
    """Send SIGSTOP to a process, and wait until none of its threads runs any more.

    A thread of a busy machine can run for a while after the signal is sent: until the kernel schedules the thread that
    handles it.

    Raises:
        ProcessLookupError: There is no such process.
        AssertionError: It still runs after ten seconds.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _is_suspended(pid), 10, f"process {pid} is suspended", ignoring=(OSError,))


def _is_suspended(pid: int) -> bool:
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    # The state is the first field after the name of the command, which is in parentheses.
    return all(stat.rpartition(")")[2].split()[0] in "TZX" for stat in stats)


def wait_until(
    predicate: Callable[[], T],
    timeout_s: float,
    what: str,
    *,
    ignoring: tuple[type[Exception], ...] = (),
    every_s: float = POLL_S,
) -> T:
    """Poll until the predicate's value is true, with pauses that are longer than the predicate takes.

    Args:
        predicate: Called repeatedly, and once more at the deadline.
        timeout_s: Seconds to wait at most.
        what: The awaited condition, for the message of the failure.
        ignoring: Exceptions of the predicate that mean "not yet".
        every_s: Shortest pause between two calls.

    Returns:
        The first true value.

    Raises:
        AssertionError: It did not become true in time; the text has the condition and the last value or exception.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        asked_s = time.monotonic()
        last_chance = asked_s >= deadline
        try:
            value = predicate()
            if value:
                return value
            last = repr(value)
        except ignoring as error:
            last = f"{type(error).__name__}: {error}"
        if last_chance:
            raise AssertionError(f"not within {timeout_s:g} s: {what}; last value: {last}")
        time.sleep(max(every_s, min(_LONGEST_REST_S, _REST * (time.monotonic() - asked_s))))


class Process:
    """One child process with a log file; a context manager that starts it and kills it at the end.

    Args:
        name: Its name in messages.
        args: The command.
        log_path: File for standard output and error; a restarted process appends to it.
        env: Environment variables added to the test's own.
        cwd: Working directory.
        stdout_path: File for standard output alone, for commands whose output is part of their contract.
        piped: Standard input and output are pipes (``stdin``, ``stdout``); only errors go to the log.
    """

    def __init__(
        self,
        name: str,
        args: Sequence[str | Path],
        log_path: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdout_path: Path | None = None,
        piped: bool = False,
    ) -> None:
        self.name = name
        self.args = [str(arg) for arg in args]
        self.log_path = log_path
        self.stdout_path = stdout_path
        self._env = dict(env or {})
        self._cwd = cwd
        self._piped = piped
        self._popen: subprocess.Popen[str] | None = None
        self._log_start = 0

    def start(self) -> None:
        """Start the process in its own session.

        Raises:
            AssertionError: The process runs already, or its command does not exist.
        """
        assert not self.is_alive, f"{self.name} runs already"
        assert shutil.which(self.args[0]), f"{self.name}: no such command: {self.args[0]}"
        self.close()
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with ExitStack() as files:
            log = files.enter_context(self.log_path.open("ab"))
            stdout = files.enter_context(self.stdout_path.open("wb")) if self.stdout_path else log
            self._popen = subprocess.Popen(
                dying_with_parent(self.args),
                stdin=subprocess.PIPE if self._piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._piped else stdout,
                stderr=log,
                env=os.environ | self._env,
                cwd=self._cwd,
                text=True,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            AssertionError: The process was never started.
        """
        return self._started.pid

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended; a frozen process is alive."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal, None while it runs."""
        return self._started.poll()

    @property
    def stdin(self) -> IO[str]:
        """The pipe to a process started with ``piped``."""
        stdin = self._started.stdin
        assert stdin is not None, f"{self.name} was not started with pipes"
        return stdin

    @property
    def stdout(self) -> IO[str]:
        """The pipe from a process started with ``piped``."""
        stdout = self._started.stdout
        assert stdout is not None, f"{self.name} was not started with pipes"
        return stdout

    @property
    def _started(self) -> "subprocess.Popen[str]":
        assert self._popen is not None, f"{self.name} was not started"
        return self._popen

    def log_text(self) -> str:
        """Return the log since the last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def wait_for_log(self, text: str, timeout_s: float) -> None:
        """Wait until its log contains a text.

        Raises:
            AssertionError: It ended before, or the time passed; shows the end of the log.
        """
        deadline = time.monotonic() + timeout_s
        while text not in self.log_text():
            if not self.is_alive or time.monotonic() >= deadline:
                state = "is running" if self.is_alive else f"ended with {self.exit_code}"
                tail = "\n".join(self.log_text().splitlines()[-_LOG_TAIL_LINES:])
                raise AssertionError(f"{self.name} {state} without {text!r} in its log within {timeout_s:g} s:\n{tail}")
            time.sleep(POLL_S)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end.

        Returns:
            The exit code.

        Raises:
            AssertionError: It still runs after that time.
        """
        try:
            return self._started.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout_s:g} s") from None

    def signal(self, number: signal.Signals, *, whole_group: bool = False) -> None:
        """Send a signal to it, or to it and all its children as a terminal would."""
        if whole_group:
            os.killpg(self.pid, number)
        else:
            self._started.send_signal(number)

    def terminate(self, timeout_s: float = 30) -> int:
        """Stop the process (SIGTERM) and wait for its end.

        Returns:
            The exit code.

        Raises:
            AssertionError: It still runs after that time.
        """
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Kill it (SIGKILL), but not its children, and wait for its end."""
        self.signal(signal.SIGKILL)
        self._started.wait()

    def freeze(self) -> None:
        """Suspend it (SIGSTOP); its connections stay open."""
        suspend(self.pid)

    def thaw(self) -> None:
        """Let it continue (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the rest of its process group. Can be called at any time, and repeatedly."""
        if self._popen is None:
            return
        # A group can outlive its leader. If the leader has ended, a process with its id is a stranger.
        if self.is_alive or not _exists(self._popen.pid):
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()
        self._popen = None

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it and its group."""
        self.close()


class ServeProcess(Process):
    """``namesrv-stream serve``: a small parent process, which watches the server, and the server."""

    @property
    def server_pid(self) -> int:
        """The process id of the server.

        Raises:
            AssertionError: There is none.
        """
        return wait_until(lambda: next(child_processes(self.pid), 0), 10, f"{self.name} has a server")

    def kill(self) -> None:
        """Kill the server (SIGKILL). Its parent then ends as well, and with it all that the server held is free."""
        os.kill(self.server_pid, signal.SIGKILL)
        self._started.wait()

    def freeze(self) -> None:
        """Suspend both, as if the machine were suspended; the parent first, which would kill the server otherwise."""
        super().freeze()
        suspend(self.server_pid)

    def thaw(self) -> None:
        """Let both continue."""
        os.kill(self.server_pid, signal.SIGCONT)
        super().thaw()
