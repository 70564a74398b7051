"""Heartbeats of 1,000 brokers through the gateway, Kafka and the fold; and the fold alone.

Goal: at least 27,000 a second sustained, half of them BROKER_HEARTBEAT (904), half QUERY_DATA_VERSION (322); the fold
alone at least 200,000 a second on one core. The figure is the number of folded heartbeats per second, not of accepted
ones. Its time is that of the run and of the job's catching up, which ends when a registration after the last heartbeat
is in the tables.
"""

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from tests.bench.contenders import JAVA, JAVA_NEWEST, OURS, Contender, Contenders, take_turns
from tests.bench.figures import Figure, Spread, compared
from tests.bench.fold_speed import heartbeats_per_second
from tests.bench.frames import heartbeats, registrations, version_queries, write_frames
from tests.bench.load import Choice, Kind, Load, Seen, Stream, run_load
from tests.bench.register import Brokers
from tests.bench.rows.bench import Bench
from tests.bench.rows.large import wait_committed
from tests.bench.shape import Shape
from tests.support.remoting_client import RemotingClient
from tests.support.stack import Stack

SHAPE: Final = Shape(topics=20_000, brokers=1_000, width=4)
#: The broker that registers after each run.
_LAST: Final = Shape(topics=2, brokers=1, width=1, cluster="last", prefix="last-")
_LINKS: Final = 64
_DEPTH: Final = 4
_GOAL: Final = 27_000
_FOLD_GOAL: Final = 200_000
_ROUNDS_OF_FOLD: Final = 5
#: Minimum length of a run: a sustained rate must last longer than a batch of the job.
_LEAST_S: Final = 20.0


def measure(bench: Bench, shape: Shape = SHAPE) -> list[Figure]:
    """Measure both Java NameServers and namesrv-stream, then the fold."""
    row = f"heartbeats of {shape.brokers:,} brokers over {_LINKS} connections"
    with bench.home() as home, ExitStack() as running:
        contenders = running.enter_context(Contenders(home))
        ours, _, stack = contenders.start_ours()
        measured = [contenders.start_java(), ours, contenders.start_java(newest=True)]
        brokers: dict[str, Brokers] = {}
        for one in measured:
            with contenders.awake(one):
                brokers[one.name] = running.enter_context(Brokers(one.addr, shape))
                if one is ours:
                    wait_committed(stack)
        kinds = (
            Kind("904", write_frames(home / "904", heartbeats(shape, _LINKS)), Choice.IN_TURN),
            Kind("322", write_frames(home / "322", version_queries(shape, _LINKS)), Choice.IN_TURN, has_body=True),
        )
        seconds = max(bench.seconds, _LEAST_S)
        load = Load((Stream(kinds, 0, depth=_LINKS * _DEPTH),), seconds=seconds, warm_up_s=bench.warm_up_s)
        last = running.enter_context(RemotingClient(ours.addr))
        changes = (framed.frame for framed in registrations(_LAST, changes=itertools.count()))
        lags: list[float] = []

        def run(one: Contender) -> Seen:
            brokers[one.name].beat()
            seen = run_load(bench.program, one.addr, load)
            if one is ours:
                lags.append(_lag_s(stack, last, changes))
            return seen

        runs = take_turns(contenders, measured, bench.rounds, run)
    answered = {
        name: [sum(kind.per_second for kind in one.kinds.values()) for one in of_runs] for name, of_runs in runs.items()
    }
    whole_s = seconds + bench.warm_up_s
    folded = [rate * whole_s / (whole_s + lag) for rate, lag in zip(answered[OURS], lags, strict=True)]
    p99 = {
        name: [max(kind.p99_us for kind in one.kinds.values()) / 1000 for one in of_runs]
        for name, of_runs in runs.items()
    }
    fold = Spread.of([heartbeats_per_second() for _ in range(_ROUNDS_OF_FOLD)])
    return [
        compared(row, "answered a second", answered, OURS, (JAVA, JAVA_NEWEST)),
        compared(row, "p99, ms", p99, OURS, (JAVA, JAVA_NEWEST), digits=1),
        compared(
            row,
            "folded a second",
            {OURS: folded},
            OURS,
            (),
            goal=f"≥ {_GOAL:,}",
            is_met=lambda ours, _: ours.median >= _GOAL,
        ),
        compared(row, "behind at the end, s", {OURS: lags}, OURS, (), digits=1),
        compared(
            row,
            "errors",
            {name: [float(one.errors) for one in of_runs] for name, of_runs in runs.items()},
            OURS,
            (),
            goal="0",
            is_met=lambda ours, _: ours.greatest == 0,
        ),
        Figure(
            "the fold alone, one core",
            "heartbeats a second",
            {OURS: fold},
            f"≥ {_FOLD_GOAL:,}",
            fold.median >= _FOLD_GOAL,
        ),
    ]


def _lag_s(stack: Stack, last: RemotingClient, changes: Iterator[bytes]) -> float:
    """Return the seconds until a registration that is sent now, after all heartbeats, is folded and committed."""
    began = time.monotonic()
    last.send(next(changes))
    assert last.receive().code == 0
    wait_committed(stack)
    return time.monotonic() - began
