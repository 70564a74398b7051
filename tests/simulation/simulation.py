"""One simulation: an installation, a fleet, operators, faults and checks, all drawn from one seed."""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import Any, Final

from tests.simulation.checks import Checks
from tests.simulation.faults import KINDS, TEMPOS, Faults, Tempo
from tests.simulation.fleet import Fleet, Kind, Slot
from tests.simulation.operators import Clients, Operators
from tests.simulation.part_faults import LAST_FAULTS
from tests.simulation.product import simulated
from tests.simulation.runtime.process import MS, SECOND
from tests.simulation.world import Plan, World

_BEGIN: Final = 30 * SECOND
_QUIET_S: Final = 20  # after the longest timeout
_LONG_QUIET_S: Final = 420  # more than a hold of the guard with the default timeout
_LAST_COMMIT: Final = 65 * SECOND  # every broker has registered again since the last change
#: The shortest and the longest time that a micro-batch of Spark takes; a seed draws one of these.
_BATCHES: Final = ((15 * MS, 60 * MS), (100 * MS, 400 * MS), (300 * MS, 900 * MS))
#: How many times longer than by default the intervals and timeouts are; a seed draws one.
_SCALES: Final = (1, 1, 4, 30, 3_000)
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulation has shown.

    Attributes:
        failures: (invariant, detail) of what was wrong.
        faults: Number of faults by kind.
        checks: Number of checked facts by invariant.
        seconds: Simulated time.
        cpu_s: Processor time that it took.
        scale: How many times longer than by default its intervals and timeouts were.
        trace: Digest of everything that happened.
    """

    seed: int
    failures: list[tuple[str, str]]
    faults: Counter[str]
    checks: Counter[str]
    seconds: float
    cpu_s: float
    scale: int
    trace: str
    figures: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shape:
    """How large and how rough a simulation is. All times are multiplied by the scale of the plan.

    Attributes:
        brokers: Number of brokers; None to draw it.
        duration_s: Time with faults; 0 for a run without any.
        kinds: The faults; None to draw some of all kinds.
        quiet_s: Time without faults at the end; None to draw it.
        tempo: How often faults begin, and how long they last; None to draw it.
        scale: The scale of the plan; None to draw it.
        stops: Whether a run ends with its first failure.
        plan: Number of servers and partitions, and settings, instead of those that the seed draws.
    """

    brokers: int | None = None
    duration_s: int = 300
    kinds: tuple[str, ...] | None = None
    quiet_s: int | None = None
    tempo: Tempo | None = None
    scale: int | None = None
    stops: bool = False
    plan: Plan | None = None


def simulate(seed: int, shape: Shape = Shape(), on_trace: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed."""
    began = process_time()
    draws = random.Random(f"plan {seed}")
    drawn = _plan(draws, shape.scale)
    world = World(seed, shape.plan or drawn, on_trace)
    with simulated(world), _no_collection():
        run = _Run(world, draws, shape)
        run.run()
    return Outcome(
        seed,
        run.checks.failures,
        run.faults.counts,
        run.checks.done,
        world.scheduler.now / SECOND,
        process_time() - began,
        world.plan.scale,
        world.scheduler.trace_digest(),
        {
            "requests refused": run.fleet.refused,
            "changes acknowledged": run.operators.acked,
            "changes not acknowledged": run.operators.unknown,
            "lives": len(run.fleet.lives),
        },
    )


def attempt(seed: int, shape: Shape) -> Outcome:
    """Run one seed. An error of the simulation itself is a failure of this seed, so that others continue."""
    try:
        return simulate(seed, shape)
    except Exception as error:
        return Outcome(seed, [("the simulation works", repr(error))], Counter(), Counter(), 0.0, 0.0, 1, "")


class _Run:
    def __init__(self, world: World, draws: random.Random, shape: Shape) -> None:
        self.world, self._shape = world, shape
        self._unit = SECOND * world.plan.scale
        self.fleet = Fleet(world, _slots(draws, shape.brokers or draws.choice((3, 6, 12, 20)), world.plan))
        self.operators, self.clients = Operators(self.fleet), Clients(self.fleet)
        self.checks = Checks(world, self.fleet, self.operators, self.clients)
        kinds = [k for k in shape.kinds or () if k in KINDS] or draws.sample(list(KINDS), draws.randint(1, 12))
        drawn = [draws.choice(list(LAST_FAULTS))] if draws.random() < 0.1 else []
        self._last = [kind for kind in shape.kinds or drawn if kind in LAST_FAULTS] if shape.duration_s else []
        self.faults = Faults(world, self.fleet, self.clients, kinds, shape.tempo or draws.choice(TEMPOS))
        self._begin_at = draws.choice((3, 30, 30)) * SECOND  # early ones meet an installation that is being created
        longest_s = max(slot.known_timeout_ms for slot in self.fleet.slots) // (1_000 * world.plan.scale)
        self._quiet_s = draws.choice((longest_s + _QUIET_S, _LONG_QUIET_S))
        world.spark.batch_delay = draws.choice(_BATCHES)
        world.spark.longest_wait *= world.plan.scale

    def run(self) -> None:
        world, shape = self.world, self._shape
        scheduler = world.scheduler
        world.start()
        for slot in self.fleet.slots:
            self.fleet.begin(slot, is_same_address=True)
        operating = self._begin(self.operators.run(10.0 * world.plan.scale))
        self._begin(self.clients.run(3.0 * world.plan.scale))
        end = _BEGIN + shape.duration_s * self._unit
        if shape.duration_s:
            self.faults.schedule(self._begin_at, end, self._unit)
        for kind in self._last:
            scheduler.at(end - 120 * self._unit, None, partial(self.faults.inject, kind))
        self._until(end)
        self.faults.end_all()
        for slot in self.fleet.slots:
            if not self.fleet.now[slot.number].is_alive and scheduler.random.random() < 0.5:
                self.fleet.begin(slot, is_same_address=scheduler.random.random() < 0.5)
        self._until(scheduler.now + (shape.quiet_s or self._quiet_s) * self._unit)
        operating.cancel()
        self._until(scheduler.now + _LAST_COMMIT * world.plan.scale)
        if not (shape.stops and self.checks.failures):
            self.checks.check_end()
        world.end()
        self.fleet.process.kill()

    def _until(self, end: int) -> None:
        """Run until a time, and check every second, or as often as the plan scales that."""
        scheduler = self.world.scheduler
        while scheduler.now < end and not (self._shape.stops and self.checks.failures):
            scheduler.run(min(end, scheduler.now + self._unit))
            self.checks.check()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.fleet.loop.create_task(work)


def _plan(draws: random.Random, scale: int | None) -> Plan:
    changes: dict[str, str] = {}
    scale = scale or draws.choice(_SCALES)
    if draws.random() < 0.3:
        changes["liveness.guard_share_percent"] = "100"  # the guard is off
    if draws.random() < 0.2:
        changes["liveness.server_lost_ms"] = str(60_000 * scale)
    if draws.random() < 0.3:
        changes |= {"remoting.max_frame_bytes": "150000", "remoting.partial_frames_bytes": "150000"}
    if draws.random() < 0.3:
        changes["remoting.idle_timeout_ms"] = str(40_000 * scale)
    if draws.random() < 0.2:
        changes["name_server.support_acting_master"] = "true"
    if scale == _SCALES[-1] and draws.random() < 0.5:
        changes["streaming.changes_retention_ms"] = str(5 * _DAY_MS)
    return Plan(draws.choice((1, 2, 2, 2, 3)), draws.choice((1, 1, 2, 3)), changes, scale)


def _slots(draws: random.Random, count: int, plan: Plan) -> list[Slot]:
    slots, timeouts_ms = [], (None, 60_000, draws.choice((60_000, 60_000, 400_000)))
    for number in range(count):
        kind = draws.choice((Kind.REGISTERS, Kind.REGISTERS, Kind.BEATS, Kind.ASKS))
        is_slave = number % 4 == 3
        name = f"broker-{number - 1 if is_slave else number}"
        cluster = f"cluster-{number // 8}"
        timeout_ms = draws.choice((6_000, 10_000, 30_000)) if kind is Kind.BEATS else draws.choice(timeouts_ms)
        interval_s = draws.choice((10.0, 20.0, 30.0)) if timeout_ms is None or timeout_ms > 30_000 else 10.0
        topics = (f"topic-of-{name}", f"topic-of-{cluster}", "topic-of-all")
        padding = draws.choice((0, 0, 20_000))
        if timeout_ms is not None:
            timeout_ms *= plan.scale
        shows = (kind, timeout_ms, interval_s * plan.scale)
        slots.append(Slot(number, cluster, name, int(is_slave), *shows, topics, padding, plan.default_timeout_ms))
    return slots


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's cycle collector from ending abandoned coroutines at arbitrary moments."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
