"""Registrations that delay other requests: 300 brokers with 2,000 topics each at once, and one broker with 70,000.

Goals: while 300 brokers register at once, first all changed, then all unchanged, reads have a p99 of at most 100 ms,
all are visible at that server at once, and in Delta within 30 s. While a broker with 70,000 topics registers (more than
10 MB), reads have a p99 of at most 50 ms.

Reads are sent at a fixed rate over 64 connections. The latency of each counts from the time at which it was due, so
that stalls of the server are visible. The whole run counts, from the first sent registration to the last answer.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.contenders import JAVA, JAVA_NEWEST, OURS, Contender, Contenders, take_turns
from tests.bench.figures import Figure, Spread, compared
from tests.bench.frames import registrations, route_reads, write_frames
from tests.bench.load import Choice, Kind, Load, Seen, Stream, run_load
from tests.bench.register import Brokers
from tests.bench.rows.bench import Bench
from tests.bench.rows.large import wait_committed
from tests.bench.shape import Shape
from tests.support.stack import Stack

MANY: Final = Shape(topics=2_000, brokers=300, width=300, prefix="storm-", cluster="storm")
GIANT: Final = Shape(topics=70_000, brokers=1, width=1, prefix="giant-with-a-name-of-usual-length-", cluster="giant")
#: Topics that are read; they belong to another cluster and were registered before.
READ: Final = Shape()
_CONNECTIONS: Final = 64
_RATE: Final = 2_000
#: Long enough for the slowest server to answer all registrations within it.
_STORM_S: Final = 20
_GIANT_S: Final = 5
_GOAL_DELTA_S: Final = 30


@dataclass(frozen=True, slots=True)
class _Storm:
    """The registrations of a storm.

    Attributes:
        before: Registrations before the measurement begins.
    """

    row: str
    storm: Path
    before: Path | None
    seconds: float
    goal_p99_ms: float


def measure(bench: Bench, many: Shape = MANY, giant: Shape = GIANT) -> list[Figure]:
    """Measure both Java NameServers and namesrv-stream."""
    with bench.home() as home, ExitStack() as running:
        contenders = running.enter_context(Contenders(home))
        ours, _, stack = contenders.start_ours()
        measured = [contenders.start_java(), ours, contenders.start_java(newest=True)]
        reads = Kind("read", write_frames(home / "reads", route_reads(READ.topic_names)), has_body=True)
        brokers: dict[str, Brokers] = {}
        for one in measured:
            with contenders.awake(one):
                brokers[one.name] = running.enter_context(Brokers(one.addr, READ))
                run_load(bench.program, one.addr, Load((Stream((reads,), _CONNECTIONS),), seconds=5))

        def beat() -> None:
            # A contender waits for up to four runs of others, which is about as long as its idle timeout.
            for of_one in brokers.values():
                of_one.beat()

        first = write_frames(home / "first", registrations(many))
        storms = [
            _Storm(
                f"{many.brokers} brokers of {many.topics:,} topics, all changed",
                write_frames(home / "changed", registrations(many, changes=(1,))),
                first,
                _STORM_S,
                100,
            ),
            _Storm(
                f"{many.brokers} brokers of {many.topics:,} topics, all unchanged",
                write_frames(home / "unchanged", registrations(many, stamps=(1,))),
                first,
                _STORM_S,
                100,
            ),
            _Storm(
                f"one broker with {giant.topics:,} topics",
                write_frames(home / "giant", registrations(giant)),
                None,
                _GIANT_S,
                50,
            ),
        ]
        figures: list[Figure] = []
        for storm in storms:
            delta_s: list[float] = []

            def run(one: Contender, storm: _Storm = storm, delta_s: list[float] = delta_s) -> Seen:
                began = time.monotonic()
                seen = _run(bench, one, reads, storm)
                if one is ours:
                    # The load generator has already waited until the end of the measurement.
                    delta_s.append(_committed_after_s(stack, began))
                return seen

            runs = take_turns(contenders, measured, max(bench.rounds // 2, 1), run, beat)
            figures += _figures(storm, runs, delta_s)
        return figures


def _run(bench: Bench, one: Contender, reads: Kind, storm: _Storm) -> Seen:
    brokers = Kind("register", storm.storm, Choice.ONCE)
    before = Kind("before", storm.before, Choice.ONCE) if storm.before else None
    users = 10_000  # more users than registrations, so that all are sent at once
    streams = (Stream((reads,), _CONNECTIONS, depth=4, rate=_RATE), Stream((brokers,), 0, depth=users, at_s=0.2))
    return run_load(bench.program, one.addr, Load(streams, before, seconds=storm.seconds))


def _committed_after_s(stack: Stack, began: float) -> float:
    wait_committed(stack)
    return time.monotonic() - began


def _figures(storm: _Storm, runs: dict[str, list[Seen]], delta_s: list[float]) -> list[Figure]:
    peers = (JAVA, JAVA_NEWEST)
    during = {name: [during_storm(one) for one in of_runs] for name, of_runs in runs.items()}
    goal_ms = storm.goal_p99_ms
    within = Spread.of(delta_s)
    return [
        compared(
            storm.row,
            "read p99 meanwhile, ms",
            {name: [p99_ms for p99_ms, _ in of_runs] for name, of_runs in during.items()},
            OURS,
            peers,
            goal=f"≤ {goal_ms:g}",
            is_met=lambda ours, _: ours.median <= goal_ms,
            digits=1,
        ),
        compared(
            storm.row,
            "slowest read, ms",
            {name: [worst_ms for _, worst_ms in of_runs] for name, of_runs in during.items()},
            OURS,
            peers,
        ),
        compared(
            storm.row,
            "all answered after, s",
            {name: [one.kinds["register"].span_s for one in of_runs] for name, of_runs in runs.items()},
            OURS,
            peers,
            digits=2,
        ),
        compared(
            storm.row,
            "errors",
            {name: [float(one.errors + one.unanswered) for one in of_runs] for name, of_runs in runs.items()},
            OURS,
            (),
            goal="0",
            is_met=lambda ours, _: ours.greatest == 0,
        ),
        Figure(
            storm.row,
            "run begun to all in Delta, s (the run included)",
            {OURS: within},
            f"≤ {_GOAL_DELTA_S} after it",
            within.greatest <= _GOAL_DELTA_S + storm.seconds,
            digits=1,
        ),
    ]


def during_storm(seen: Seen) -> tuple[float, float]:
    """Return p99 and maximum of the reads during the storm, in ms.

    Reads have a fixed rate, and the slowest ones of the run belong to the storm, however long the rest of the run is.
    """
    reads = seen.kinds["read"]
    storm_s = min(seen.kinds["register"].span_s, seen.seconds)
    in_storm = max(int(storm_s * _RATE), 100)
    slower = max(in_storm // 100, 1)
    passed = 0
    for ns, count in reversed(reads.histogram_ns):
        passed += count
        if passed >= slower:
            return ns / 1e6, reads.max_us / 1000
    return reads.max_us / 1000, reads.max_us / 1000
