"""One simulated installation: machines, Kafka, the disk of the tables, servers and the job, and who restarts them."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from namesrv_stream.processor.register_body import RegistrationBody, decode_register_body
from namesrv_stream.route.events import partition_of
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.core import Core, Ports, build_core
from namesrv_stream.server.net.decoder import OnDecoded, RegistrationDecoder
from namesrv_stream.server.turns import Turns
from namesrv_stream.server.view.commit_applier import CommitApplier
from namesrv_stream.settings import Settings
from namesrv_stream.tables.snapshot import read_newest_state
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import StoredChanges
from tests.simulation.models.kafka_clients import Clients
from tests.simulation.models.kafka_model import SimKafka
from tests.simulation.models.spark_model import SparkModel
from tests.simulation.product import SimIdentityFile, settings_of, start_job, start_server
from tests.simulation.runtime.disk import Folders, SimDisk
from tests.simulation.runtime.network import Network
from tests.simulation.runtime.process import SECOND, Machine, Process
from tests.simulation.runtime.scheduler import Scheduler

_T = TypeVar("_T")
#: Time until a process is started again; twice as long after each one that ended soon.
_RESTART: Final = 1 * SECOND
_LONGEST_RESTART: Final = 32 * SECOND
_OPENING: Final = 5 * SECOND  # a starting server reads the tables
_SOON: Final = 40 * SECOND
#: Where the tables are.
TABLES: Final = "/simulation/tables"
#: Settings that a plan scales, and their defaults.
_SCALED: Final = {
    "liveness.default_timeout_ms": 120_000,
    "liveness.guard_known_ms": 20_000,
    "liveness.max_timeout_ms": 3_600_000,
    "liveness.server_silent_ms": 15_000,
    "liveness.server_lost_ms": 600_000,
    "liveness.max_gap_ms": 2_000,
    "liveness.tick_interval_ms": 505,
    "remoting.idle_timeout_ms": 120_000,
    "server.change_timeout_ms": 4_000,
    "server.hang_timeout_ms": 5_000,
    "streaming.progress_commit_interval_ms": 1_000,
    "streaming.compaction_interval_ms": 60_000,
    "snapshot.stale_after_ms": 10_000,
}
#: Exit codes with which the parts may end: a failure that they report. A crash by a fault is -9.
EXPECTED: Final = {
    "KafkaUnreachable",
    "RecordsLost",
    "LogTruncated",
    "LogReplaced",
    "TablesTakenOver",
    "StateMissing",
    "RuntimeError",
    "ConfigError",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation has; it follows from the seed.

    Attributes:
        changes: Settings other than the defaults.
        scale: How many times longer than by default all intervals and timeouts are.
    """

    servers: int = 2
    partitions: int = 1
    changes: dict[str, str] = field(default_factory=dict)
    scale: int = 1

    @property
    def default_timeout_ms(self) -> int:
        return _SCALED["liveness.default_timeout_ms"] * self.scale

    @property
    def older_timeout_ms(self) -> int:
        """The default timeout in the configuration of a second job, which is older."""
        return self.default_timeout_ms - 1

    def settings(self) -> dict[str, str]:
        """Return the settings that differ from the defaults."""
        times = {name: str(default_ms * self.scale) for name, default_ms in _SCALED.items()} if self.scale > 1 else {}
        return {"kafka.partitions": str(self.partitions)} | times | self.changes


class Part:
    """A server or the job: its process, and the next one after a restart.

    Attributes:
        process: The latest process; it may have ended.
        core: The core of a server's latest process, once it is built.
        since: When the latest process started.
        must_reach: Partition → the offset before which a server may lack changes, because it began with older tables.
    """

    def __init__(self, world: "World", name: str, machine: Machine, settings: Settings) -> None:
        self.name, self.machine, self.settings = name, machine, settings
        self.process = Process(world.scheduler, name, machine)
        self.process.is_alive = False
        self.core: Core | None = None
        self.applier: CommitApplier | None = None
        self.since = 0
        self.is_wanted = self.is_guest = False
        self.must_reach: dict[int, int] = {}
        self.identity = SimIdentityFile(settings.server.server_id)
        self.ran: list[tuple[int, int | None]] = []  # start and end of every process
        self._world = world
        self._restart_delay = _RESTART

    @property
    def is_working(self) -> bool:
        return self.process.is_alive and not self.process.is_paused

    def start(self) -> None:
        if self.process.is_alive:
            return
        world, process = self._world, Process(self._world.scheduler, self.name, self.machine)
        self.process, self.core, self.is_wanted, self.since = process, None, True, world.scheduler.now
        self.ran.append((self.since, None))
        self.must_reach = dict(world.restored_at)
        process.memory["part"] = self
        process.on_exit.append(lambda: self._ended(process))
        world.scheduler.trace(f"start {self.name}")
        if self.name == "job":
            start_job(world, process, self.settings)
        else:
            start_server(world, process, self.settings, self.identity)

    def ran_between(self, begin: int, end: int) -> bool:
        """Return whether one process ran from ``begin`` to ``end``."""
        return self.longest_run(begin, end) == end - begin

    def start_of(self, at: int) -> int:
        """Return the start of the process that ran, or ended, at a time."""
        return max(start for start, _ in self.ran if start <= at)

    def stalls(self) -> list[tuple[int, int]]:
        """Return (begin, end) of all times at which it was frozen."""
        return [(begin, end) for name, begin, end in self._world.stalls if name == self.name]

    def longest_run(self, begin: int, end: int) -> int:
        """Return for how long one process ran between ``begin`` and ``end``, at most."""
        ran = [(start, self._world.scheduler.now if stop is None else stop) for start, stop in self.ran]
        return max((min(stop, end) - max(start, begin) for start, stop in ran), default=0)

    def stop(self) -> None:
        """Stop it by a signal; it is not restarted."""
        self.is_wanted = False
        if self.process.is_alive and self.process.on_signal is not None:
            self.process.on_signal()

    def crash(self, *, power: bool = False) -> None:
        """Kill it, or cut the power of its machine; it is not restarted by itself."""
        self.is_wanted = False
        self.process.memory["power"] = power
        self.process.kill()

    def _ended(self, process: Process) -> None:
        world = self._world
        self.ran[-1] = (self.ran[-1][0], world.scheduler.now)
        error = process.memory.get("error")
        world.scheduler.trace(f"end {self.name} {process.exit_code} {type(error).__name__ if error else ''}")
        world.network.process_ended(process, is_told=not process.memory.get("power"))
        if self.is_guest:
            return
        if process.exit_code != -9:
            world.exits.append((world.scheduler.now, self.name, process.exit_code, error))
        has_ended_soon = world.scheduler.now - self.since < _SOON
        longest = _LONGEST_RESTART * world.plan.scale
        self._restart_delay = min(2 * self._restart_delay, longest) if has_ended_soon else _RESTART
        if self.is_wanted:
            world.scheduler.after(self._restart_delay, self._restart)

    def _restart(self) -> None:
        if self.is_wanted and not self.process.is_alive:
            self.start()


#: Work is done at once: how long it takes on this machine must not change a run.
_AT_ONCE_NS: Final = 10**18


class _Decoder(RegistrationDecoder):
    """Decodes the large registrations of a server one after the other, each of which takes some time."""

    def __init__(self, world: "World") -> None:
        super().__init__(Turns(_AT_ONCE_NS))
        self._world = world
        self._waiting: deque[tuple[RegistrationBody, OnDecoded]] = deque()

    def decode(self, body: RegistrationBody, on_decoded: OnDecoded) -> Callable[[], object]:
        self._waiting.append((body, on_decoded))
        if len(self._waiting) == 1:
            self._call_later()
        return lambda: None

    def _call_later(self) -> None:
        body, _ = self._waiting[0]
        needed = (time for text, time in self._world.decode_times.items() if text in body.body)
        asyncio.get_running_loop().call_later(max(needed, default=0) / SECOND, self._decode_next)

    def _decode_next(self) -> None:
        body, on_decoded = self._waiting.popleft()
        if self._waiting:
            self._call_later()
        on_decoded(decode_register_body(*body))


class World:
    """Everything that one seed simulates, except the fleet and the faults.

    Attributes:
        exits: (time, part, exit code, error) of all processes that ended by themselves.
        decode_times: Text → how long the decoding of a large registration with this text takes.
        kafka_since: Since when Kafka has had no fault; None while it has one.
        guests: Processes that should not be there: a clone of a server, or a second job.
        backup: A copy of the tables, for a restore.
        restored_at: Partition → the end of the log when the tables last went back (by a restore or a repair).
        restores: When somebody restored the tables.
        stalls: (part, begin, end) of all times at which a process was frozen, or "Kafka" had a fault.
    """

    def __init__(self, seed: int, plan: Plan, on_trace: Callable[[str], object] | None = None) -> None:
        self.seed, self.plan = seed, plan
        self.shows_logs = False
        self.scheduler = Scheduler(seed, on_trace)
        self.network = Network(self.scheduler)
        self.kafka = SimKafka(self.scheduler, Machine(self.scheduler, "kafka", "10.0.9.1"))
        self.disk = SimDisk(self.scheduler)
        self.clients = Clients(self.kafka)
        self.spark = SparkModel(self.scheduler, self.kafka)
        self._calm: dict[int, int | None] = dict.fromkeys(range(plan.partitions), 0)
        self.decode_times: dict[bytes, int] = {}
        self.guests: list[Part] = []
        self.kafka_since: int | None = 0
        self.backup: Folders | None = None
        self.restored_at: dict[int, int] = {}
        self.restores: list[int] = []
        self.stalls: list[tuple[str, int, int]] = []
        self.exits: list[tuple[int, str, int | None, BaseException | None]] = []
        self.kafka.on_append = lambda partition: self.spark.wake()
        changes = self._changes = plan.settings()
        self.servers: list[Part] = []
        for number in range(1, plan.servers + 1):
            host = f"10.0.0.{number}"
            settings = settings_of(f"s{number}", host, changes)
            self.servers.append(Part(self, f"s{number}", Machine(self.scheduler, f"m{number}", host), settings))
        job_machine = Machine(self.scheduler, "m0", "10.0.0.100")
        self.job = Part(self, "job", job_machine, settings_of("job", job_machine.host, changes))

    @property
    def slack(self) -> int:
        """Time for commits, ticks and queries, in addition to timeouts, until all servers know a change."""
        return (15 + 5 * self.plan.scale) * SECOND

    @property
    def parts(self) -> list[Part]:
        return [*self.servers, self.job]

    @property
    def settings(self) -> Settings:
        return self.job.settings

    def new_id(self) -> str:
        return f"{self.scheduler.random.getrandbits(128):032x}"

    def build_core(self, settings: Settings, view: RouteView, ports: Ports) -> Core:
        """Build a server's core, and remember it for the checks."""
        part = self._current_part()
        part.core = build_core(settings, view, replace(ports, decoder=_Decoder(self), turns=Turns(_AT_ONCE_NS)))
        return part.core

    def build_applier(self, *args: Any) -> CommitApplier:
        part = self._current_part()
        part.applier = CommitApplier(*args)
        return part.applier

    def _current_part(self) -> Part:
        process = self.scheduler.current
        assert process is not None
        part: Part = process.memory["part"]
        return part

    def as_job(self, call: Callable[[], _T]) -> _T:
        """Call the product's code outside of a simulated process, with the clock of the job's machine."""
        scheduler = self.scheduler
        before, scheduler.current = scheduler.current, Process(scheduler, "checks", self.job.machine)
        try:
            return call()
        finally:
            scheduler.current = before

    # ---- what the faults and the checks need to know ----

    def disturbed(self, partition: int | None = None) -> None:
        """A fault begins or has ended; it concerns one partition or all."""
        for each in range(self.plan.partitions) if partition is None else (partition,):
            self._calm[each] = None

    def calm(self, but: int | None = None) -> None:
        """No fault is active, or only one that concerns one partition."""
        for each, since in self._calm.items():
            if since is None and each != but:
                self._calm[each] = self.scheduler.now

    def calm_for(self, name: str) -> int | None:
        """Return since when no fault concerned a broker name; None if one does now."""
        return self._calm[partition_of(name, self.plan.partitions)]

    @property
    def calm_since(self) -> int | None:
        """Since when no fault has been active; None while one is."""
        found = [since for since in self._calm.values() if since is not None]
        return max(found) if len(found) == len(self._calm) else None

    def was_working(self, part: Part, since: int) -> bool:
        """Return whether a server has worked since a time, and for some time before."""
        process = part.process
        return part.is_working and part.since + 15 * SECOND <= since and process.resumed_at + 5 * SECOND <= since

    def tables_go_back(self) -> None:
        """Record that the tables lose their newest rows, until the job has folded the log again.

        A server that runs keeps its routes. One that starts begins with the older ones.
        """
        self.restored_at = {partition: self.kafka.log(partition).end for partition in range(self.plan.partitions)}

        for part in self.servers:
            if self.scheduler.now - part.since < _OPENING:
                part.must_reach = dict(self.restored_at)

    def covered_by_tables(self) -> dict[int, int]:
        """Return partition → the offset that both ``route_state`` and ``route_changes`` cover."""
        tables = tables_of(self.settings)
        state, changes = self.as_job(lambda: (read_newest_state(tables), StoredChanges.open(tables)))
        reached = {} if changes is None else changes.next_offsets
        return {p: min(kept.next_offset, reached.get(p, 0)) for p, kept in state.fold_states.items()}

    def add_guest(self, name: str, like: str, changes: dict[str, str]) -> Part:
        """Start a server or job with the name, and so the id, of another one on a machine of its own."""
        number = len(self.guests)
        machine = Machine(self.scheduler, f"guest-{name}", f"10.0.1.{number + 1}")
        settings = settings_of(like, machine.host, self._changes | changes)
        guest = Part(self, like, machine, settings)
        guest.is_guest = True
        self.guests.append(guest)
        guest.start()
        return guest

    def start(self) -> None:
        for part in self.parts:
            part.start()

    def end(self) -> None:
        """Kill what still runs, in a fixed order."""
        for part in [*self.parts, *self.guests]:
            part.is_wanted = False
            part.process.kill()
