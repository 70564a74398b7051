"""The four parts of the product as separate processes that can be killed, frozen and restarted.

They do not run under ``up``, whose supervisor would restart a part at once; the rig restarts parts when the plan says
so. (tests/integration/test_up.py tests that ``up`` restarts its parts.) All methods must be called on one thread: the
kernel kills the parts when it ends.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from namesrv_stream.errors import KafkaUnreachable
from namesrv_stream.kafka import ensure_topics
from namesrv_stream.processes import read_run_file
from namesrv_stream.settings import Settings, to_toml
from tests.chaos.truth import Span, now_ms
from tests.support.kafka import REPOSITORY
from tests.support.processes import Process, ServeProcess, wait_until

KAFKA: Final = "kafka"
JOB: Final = "job"
SERVERS: Final = ("server-a", "server-b")
ALL: Final = (KAFKA, JOB, *SERVERS)

_START_S: Final = 240.0
_POLL_S: Final = 0.05
_MOST_TRIES: Final = 2  # attempts to start a part while nothing is broken
_AGAIN_S: Final = 1.0  # pause before a restart, like that of a supervisor


@dataclass(slots=True)
class Part:
    """One part.

    Attributes:
        is_wanted: Whether it shall run: it is restarted if it ends by itself.
        is_ready: Whether it has reported that it is ready since its start.
        broken: The current fault that the rig causes, and its begin.
        ended: Exit codes with which it ended by itself.
        start_at_s: Monotonic time of its restart after it ended by itself; None if no restart is due.
    """

    name: str
    settings: Settings
    process: Process
    is_wanted: bool = False
    is_frozen: bool = False
    is_ready: bool = False
    broken: tuple[str, int] | None = None
    ended: list[int] = field(default_factory=list)
    start_at_s: float | None = None


class Parts:
    """All parts, and the record of their faults.

    Args:
        work_dir: Folder for configurations and logs.
        settings: Part → its settings.
    """

    def __init__(self, work_dir: Path, settings: dict[str, Settings]) -> None:
        self.spans: list[Span] = []
        self.kills = 0
        self._parts: dict[str, Part] = {}
        self.work_dir = work_dir
        for name, of_part in settings.items():
            conf = work_dir / f"{name}.toml"
            conf.write_text(to_toml(of_part), encoding="utf-8")
            command, kind = ("serve", ServeProcess) if name in SERVERS else (name, Process)
            args: list[str | Path] = [sys.executable, "-m", "namesrv_stream", command, "--conf", conf]
            self._parts[name] = Part(name, of_part, kind(name, args, work_dir / f"{name}.log", cwd=REPOSITORY))

    def start(self) -> None:
        """Start all parts and wait until each is ready.

        Raises:
            AssertionError: A part is not ready in time.
        """
        for name in ALL:
            self._start(self._parts[name])
            if name == KAFKA:
                self._wait_ready([name])
        self._wait_ready(ALL)

    def close(self) -> None:
        """Kill all parts, whatever their state."""
        for part in self._parts.values():
            part.process.close()

    def settings(self, name: str) -> Settings:
        return self._parts[name].settings

    def log_path(self, name: str) -> Path:
        return self._parts[name].process.log_path

    @property
    def ended(self) -> dict[str, list[int]]:
        """Return part → exit codes with which it ended by itself."""
        return {name: list(part.ended) for name, part in self._parts.items() if part.ended}

    @property
    def are_well(self) -> bool:
        """Whether all parts run and are ready, and none is broken."""
        self.tend()
        return all(part.is_ready and part.broken is None for part in self._parts.values())

    def wait(self, seconds: float) -> None:
        """Wait, and restart parts that end meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tend()
            time.sleep(_POLL_S)

    def wait_well(self, timeout_s: float = _START_S) -> None:
        """Wait until ``are_well``."""
        wait_until(lambda: self.are_well, timeout_s, f"all parts are ready; see {self.work_dir}")

    def tend(self) -> None:
        """Restart parts that ended by themselves, and record which ones became ready."""
        for part in self._parts.values():
            if not part.is_wanted or part.is_frozen:
                continue
            if not part.process.is_alive:
                if part.start_at_s is None:
                    self._note_end(part)
                elif time.monotonic() >= part.start_at_s:
                    self._start(part)
            elif not part.is_ready and self._is_up(part):
                part.is_ready = True
                self._mend(part)

    # ---- faults ----

    def kill(self, names: Iterable[str]) -> None:
        """Kill parts until ``revive``. Only the driver of the job is killed; its JVM has to notice that."""
        parts = [self._parts[name] for name in names]
        for part in parts:
            self._break(part, "kill")
            self.kills += 1
            part.is_wanted = part.is_ready = False
        for part in parts:
            part.process.kill()

    def kill_jvm(self) -> None:
        """Kill only the JVM of the job; the driver has to notice that."""
        part = self._parts[JOB]
        self._break(part, "kill")
        self.kills += 1
        part.is_ready = False
        _run_file(part).unlink(
            missing_ok=True
        )  # otherwise the driver, which still runs for a moment, would count as ready
        for pid in _children(part.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def revive(self, names: Iterable[str]) -> None:
        """Start the killed parts."""
        for name in names:
            self._start(self._parts[name])

    def freeze(self, names: Iterable[str]) -> None:
        """Send SIGSTOP to all processes of these parts."""
        for name in names:
            part = self._parts[name]
            if part.process.is_alive:
                self._break(part, "freeze")
                part.is_frozen = True
                part.process.signal(signal.SIGSTOP, whole_group=True)

    def thaw(self, names: Iterable[str]) -> None:
        """Send SIGCONT to all processes of these parts."""
        for name in names:
            part = self._parts[name]
            if part.is_frozen:
                part.is_frozen = False
                part.process.signal(signal.SIGCONT, whole_group=True)
                if part.is_ready:
                    self._mend(part)

    def mark_broken(self, name: str, what: str) -> Callable[[], None]:
        """Record another fault of a part, so that it may end by itself; returns a function that records the repair."""
        part = self._parts[name]
        self._break(part, what)

        def end() -> None:
            if part.is_ready and part.process.is_alive:
                self._mend(part)

        return end

    def pids(self, name: str) -> list[int]:
        """Return the process ids of a part."""
        pid = self._parts[name].process.pid
        return [pid, *_children(pid)]

    # ---- internal ----

    def _start(self, part: Part) -> None:
        part.is_wanted, part.is_ready = True, False
        part.start_at_s = None
        if part.name != KAFKA:
            _run_file(part).unlink(missing_ok=True)
        part.process.start()

    def _note_end(self, part: Part) -> None:
        if part.broken is None:
            part.broken = ("ended", now_ms())
        part.ended.append(part.process.exit_code or 0)
        part.is_ready = False
        part.start_at_s = time.monotonic() + _AGAIN_S

    def _break(self, part: Part, what: str) -> None:
        if part.broken is None:
            part.broken = (what, now_ms())

    def _mend(self, part: Part) -> None:
        if part.broken is not None:
            what, since_ms = part.broken
            self.spans.append(Span(what, part.name, since_ms, now_ms()))
            part.broken = None

    def _wait_ready(self, names: Iterable[str]) -> None:
        def are_ready() -> bool:
            self.tend()
            failed = [name for name in names if len(self._parts[name].ended) > _MOST_TRIES]
            assert not failed, f"{failed} do not start; see {self.work_dir}"
            return all(self._parts[name].is_ready for name in names)

        wait_until(are_ready, _START_S, f"{', '.join(names)} are ready; see {self.work_dir}")

    def _is_up(self, part: Part) -> bool:
        if part.name != KAFKA:
            return read_run_file(_run_file(part)) is not None
        try:
            with socket.create_connection(("127.0.0.1", part.settings.embedded_kafka.listen_port), 0.2):
                pass
            ensure_topics(self._parts[JOB].settings)
        except (OSError, KafkaUnreachable):
            return False
        return True


def _run_file(part: Part) -> Path:
    return part.settings.data.run_dir / f"{'serve' if part.name in SERVERS else part.name}.json"


def _children(pid: int) -> list[int]:
    children: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # "pid (name) state ppid …"; the name may contain any character, including a parenthesis.
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                children.append(int(path.parent.name))
    return [*children, *(grandchild for child in children for grandchild in _children(child))]
