"""The name servers that are measured, all of them up at once, of which only one is awake.

The others and all that belongs to them are stopped with SIGSTOP meanwhile, so that no idle JVM, no Kafka and no Spark
job of one takes time from another, and neighbouring runs have the same machine.
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
#: With Kafka, the Spark job and their supervisor running beside it.
OURS: Final = "ours"
#: The same server while Kafka, job and supervisor stand still.
OURS_ALONE: Final = "ours, alone"
#: The server of ``OURS`` before address views are set, and after they are removed.
OURS_WITHOUT_VIEWS: Final = "ours, no views"
#: No name server: one thread of C that answers each frame with the same bytes.
CEILING: Final = "ceiling"
NEWEST_JARS: Final = JARS.with_name("rocketmq-newest")
#: What RocketMQ's bin/runserver.sh gives it on Java 9 and later, GC logs apart.
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
        name: For tables.
        addr: ``host:port``.
        server_pid: The process that answers.
        root_pid: That and its descendants are all that runs while it is measured.
        is_ready: Whether it has recovered from having been stopped.
    """

    name: str
    addr: str
    server_pid: int
    root_pid: int
    is_ready: Callable[[], bool] = lambda: True

    def server_cpu_s(self) -> float:
        """Processor time of the server so far, its own workers included."""
        return cpu_s(family(self.server_pid))

    def server_memory_mb(self) -> float:
        """Memory of the server now, MB."""
        return memory_mb(family(self.server_pid))


class Contenders:
    """Starts name servers; a context manager that leaves none behind.

    Args:
        home: Empty directory for all of them.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._running = ExitStack()
        self._all: list[Contender] = []

    def __enter__(self) -> Self:
        """Nothing runs yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wake and end all."""
        for one in self._all:
            _signal(family(one.root_pid), signal.SIGCONT)
        self._running.close()

    def start_java(self, *, newest: bool = False) -> Contender:
        """A Java NameServer with the flags that RocketMQ ships it with."""
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
        """The whole product, as contender with all of it, and as its server alone."""
        stack = Stack(self._home / "ours", **flags)
        self._running.enter_context(stack)
        stack.wait_job()
        server = stack.pid("serve")
        whole = Contender(OURS, stack.remoting, server, parent_of(server), lambda: _has_recovered(stack))
        return self._add(whole), self._add(Contender(OURS_ALONE, stack.remoting, server, server)), stack

    def start_ceiling(self, body_bytes: int) -> Contender:
        """What the machine leaves to a server of one thread: see ``loadgen/ceiling.c``."""
        port = self._home / "ceiling-port"
        command: list[str | Path] = [compile_ceiling(), str(body_bytes)]
        process = self._running.enter_context(Process(CEILING, command, self._home / "ceiling.log", stdout_path=port))
        wait_until(lambda: port.read_text().endswith("\n"), _CEILING_TIMEOUT_S, "the ceiling listens")
        return self._add(Contender(CEILING, f"127.0.0.1:{int(port.read_text())}", process.pid, process.pid))

    @contextmanager
    def awake(self, contender: Contender) -> Iterator[None]:
        """Let only this one run."""
        mine = family(contender.root_pid)
        others = {pid for one in self._all for pid in family(one.root_pid)} - mine.keys()
        _signal(others, signal.SIGSTOP)
        _signal(mine, signal.SIGCONT)
        wait_until(contender.is_ready, _THAW_TIMEOUT_S, f"{contender.name} has recovered from its stop")
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
    """Run each so many times by turns, so that whatever else the machine does falls on all; every second round is
    backwards.

    Args:
        contenders: All that may not run meanwhile.
        measured: Those whose turns these are.
        rounds: How many turns each has.
        run: One turn; only that contender is awake.
        between: Done before each turn, while all are awake.

    Returns:
        What ``run`` returned, by the contender's name, in the order of the rounds.
    """
    returned: dict[str, list[Any]] = {one.name: [] for one in measured}
    for number in range(rounds):
        for one in measured if number % 2 == 0 else reversed(measured):
            between()
            with contenders.awake(one):
                returned[one.name].append(run(one))
    return returned


def _has_recovered(stack: Stack) -> bool:
    """Whether the log takes records again, and the job has committed all that was accepted."""
    with suppress(OSError):
        health = stack.get("/healthz")
        return bool(health["kafka"] == "up" and health["pending_events"] == 0)
    return False


def _signal(pids: "Sequence[int] | dict[int, str] | set[int]", number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
