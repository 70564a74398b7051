"""The name servers that are measured. All are started, but only one of them runs at a time.

The others and all their processes are suspended with SIGSTOP meanwhile, so that no idle JVM, Kafka or Spark job takes
time from the measured server, and successive runs have the same conditions.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.bench.compiler import compile_ceiling
from tests.bench.machine import cpu_s, family, memory_mb, parent_of
from tests.support.jvm import JARS
from tests.support.processes import Process, wait_until
from tests.support.rocketmq import JavaNameServer
from tests.support.stack import Stack

JAVA: Final = "Java 5.3.3"
JAVA_NEWEST: Final = "Java 5.5.0"
#: Our server, while Kafka, the Spark job and their supervisor run as well.
OURS: Final = "ours"
#: The same server while Kafka, job and supervisor are suspended.
OURS_ALONE: Final = "ours, alone"
#: The server of ``OURS`` without address views.
OURS_WITHOUT_VIEWS: Final = "ours, no views"
#: Not a name server: a single-threaded C program that answers each frame with the same bytes.
CEILING: Final = "ceiling"
NEWEST_JARS: Final = JARS.with_name("rocketmq-newest")
#: JVM flags of RocketMQ's bin/runserver.sh for Java 9 and later, without GC logs.
_SHIPPED_FLAGS: Final = (
    *("-server", "-Xms4g", "-XX:MetaspaceSize=128m", "-XX:MaxMetaspaceSize=320m", "-XX:+UseG1GC"),
    *("-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30"),
    *("-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow", "-XX:-UseLargePages"),
)
_SHIPPED_HEAP_MB: Final = 4096
_THAW_TIMEOUT_S: Final = 60
_CEILING_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True)
class Contender:
    """A running name server.

    Attributes:
        name: Its name in tables.
        addr: ``host:port``.
        server_pid: The process that answers.
        root_pid: Only this process and its descendants run while the contender is measured.
        is_ready: Whether it has recovered from a suspension.
    """

    name: str
    addr: str
    server_pid: int
    root_pid: int
    is_ready: Callable[[], bool] = lambda: True

    def server_cpu_s(self) -> float:
        """Return the processor time of the server so far, including its own workers."""
        return cpu_s(family(self.server_pid))

    def server_memory_mb(self) -> float:
        """Return the current memory of the server in MB."""
        return memory_mb(family(self.server_pid))


class Contenders:
    """Starts name servers; a context manager that ends all of them.

    Args:
        home: Empty directory for all of them.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._running = ExitStack()
        self._all: list[Contender] = []

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Resume and end all contenders."""
        for one in self._all:
            _signal(family(one.root_pid), signal.SIGCONT)
        self._running.close()

    def start_java(self, *, newest: bool = False) -> Contender:
        """Start a Java NameServer with RocketMQ's own JVM flags."""
        name = JAVA_NEWEST if newest else JAVA
        server = self._running.enter_context(
            JavaNameServer(
                self._home / name.replace(" ", "-"),
                heap_mb=_SHIPPED_HEAP_MB,
                fast_start=False,
                jars_dir=NEWEST_JARS if newest else JARS,
                jvm_flags=_SHIPPED_FLAGS,
            )
        )
        return self._add(Contender(name, server.addr, server.process.pid, server.process.pid))

    def start_ours(self, **flags: str | int) -> tuple[Contender, Contender, Stack]:
        """Start the whole product; returns a contender with all its parts, and one with the server alone."""
        stack = Stack(self._home / "ours", **flags)
        self._running.enter_context(stack)
        stack.wait_job()
        server = parent_of(stack.pid("serve"))  # the small process that watches it belongs to the server
        whole = Contender(OURS, stack.remoting, server, parent_of(server), lambda: _has_recovered(stack))
        return self._add(whole), self._add(Contender(OURS_ALONE, stack.remoting, server, server)), stack

    def start_ceiling(self, body_bytes: int) -> Contender:
        """Start the ceiling server, which shows the limit of a single-threaded server: see ``loadgen/ceiling.c``."""
        port = self._home / "ceiling-port"
        command: list[str | Path] = [compile_ceiling(), str(body_bytes)]
        process = self._running.enter_context(Process(CEILING, command, self._home / "ceiling.log", stdout_path=port))
        wait_until(lambda: port.read_text().endswith("\n"), _CEILING_TIMEOUT_S, "the ceiling listens")
        return self._add(Contender(CEILING, f"127.0.0.1:{int(port.read_text())}", process.pid, process.pid))

    @contextmanager
    def awake(self, contender: Contender) -> Iterator[None]:
        """Let only this contender run."""
        mine = family(contender.root_pid)
        others = {pid for one in self._all for pid in family(one.root_pid)} - mine.keys()
        _signal(others, signal.SIGSTOP)
        _signal(mine, signal.SIGCONT)
        wait_until(contender.is_ready, _THAW_TIMEOUT_S, f"{contender.name} has recovered from its suspension")
        try:
            yield
        finally:
            _signal(others, signal.SIGCONT)

    def _add(self, contender: Contender) -> Contender:
        self._all.append(contender)
        return contender


def take_turns(
    contenders: Contenders,
    measured: Sequence[Contender],
    rounds: int,
    run: Callable[[Contender], Any],
    between: Callable[[], None] = lambda: None,
) -> dict[str, list[Any]]:
    """Run the contenders alternately, so that other load of the machine affects all of them.

    Every second round is in reverse order.

    Args:
        contenders: All contenders.
        measured: The contenders to run.
        rounds: Number of runs of each contender.
        run: Executes one run, while no other contender runs.
        between: Executed before each run, while all contenders run.

    Returns:
        Name of the contender → results of ``run``, in the order of the rounds.
    """
    returned: dict[str, list[Any]] = {one.name: [] for one in measured}
    for number in range(rounds):
        for one in measured if number % 2 == 0 else reversed(measured):
            between()
            with contenders.awake(one):
                returned[one.name].append(run(one))
    return returned


def _has_recovered(stack: Stack) -> bool:
    """Whether the log accepts records again, and the job has committed all accepted events."""
    with suppress(OSError):
        health = stack.get("/healthz")
        return bool(health["kafka"] == "up" and health["pending_events"] == 0)
    return False


def _signal(pids: "Sequence[int] | dict[int, str] | set[int]", number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
