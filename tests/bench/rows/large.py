"""Route reads with a large table: 100,000 topics on 16 of 1,000 brokers each, 1,024 connections.

Goal: no errors, p99 at most 50 ms, a server of at most 1.5 GB, and a server that starts with these tables is ready
within 5 s. The shape is that of the profile topics-100k-width-16 of RocketMQ-Rust's benchmarks.
"""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench.contenders import JAVA, JAVA_NEWEST, OURS, Contender, Contenders, take_turns
from tests.bench.figures import Figure, Spread, compared
from tests.bench.frames import GET_ROUTEINFO_BY_TOPIC, route_reads, write_frames
from tests.bench.load import Choice, Kind, Load, Seen, Stream, run_load
from tests.bench.register import Brokers
from tests.bench.rows.bench import JIT_WARM_UP_S, Bench
from tests.bench.shape import Shape
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

SHAPE: Final = Shape(topics=100_000, brokers=1_000, width=16)
_CONNECTIONS: Final = 1_024
_GOAL_P99_MS: Final = 50
_GOAL_MEMORY_MB: Final = 1_500
_GOAL_READY_S: Final = 5
_COMMIT_TIMEOUT_S: Final = 300


def measure(bench: Bench, shape: Shape = SHAPE) -> list[Figure]:
    """Measure both Java NameServers and namesrv-stream, then start a second server with the tables."""
    row = f"{shape.topics:,} topics on {shape.width} of {shape.brokers:,} brokers, {_CONNECTIONS:,} connections"
    with bench.home() as home, ExitStack() as running:
        contenders = running.enter_context(Contenders(home))
        ours, _, stack = contenders.start_ours()
        measured = [contenders.start_java(), ours, contenders.start_java(newest=True)]
        frames = write_frames(home / "reads", route_reads(shape.topic_names))
        stream = Stream((Kind("read", frames, Choice.UNIFORM, has_body=True),), _CONNECTIONS)
        brokers: dict[str, Brokers] = {}
        for one in measured:
            with contenders.awake(one):
                brokers[one.name] = running.enter_context(Brokers(one.addr, shape))
                if one is ours:
                    wait_committed(stack)
        for one in measured:
            with contenders.awake(one):
                brokers[one.name].beat()  # within the 120 s after which a name server closes a silent connection
                run_load(bench.program, one.addr, Load((stream,), seconds=JIT_WARM_UP_S))

        def run(one: Contender) -> Seen:
            brokers[one.name].beat()
            return run_load(bench.program, one.addr, Load((stream,), seconds=bench.seconds, warm_up_s=bench.warm_up_s))

        runs = take_turns(contenders, measured, bench.rounds, run)
        memory = {one.name: [one.server_memory_mb()] for one in measured}
        with contenders.awake(ours):
            ready_s = [_cold_start_s(home / f"second-{n}", stack, shape) for n in range(3)]
        return [*_figures(row, runs, memory), _ready(row, ready_s)]


def wait_committed(stack: Stack) -> None:
    """Wait until the job has committed all events that the server accepted; the server may be suspended."""
    wait_until(
        lambda: stack.get("/healthz")["pending_events"] == 0,
        _COMMIT_TIMEOUT_S,
        "all events are in the tables",
        ignoring=(OSError,),
    )


def _cold_start_s(home: Path, stack: Stack, shape: Shape) -> float:
    """Return the seconds from the start of a server's process to its first correct answer about the last topic."""
    second = SecondServer(home, stack)
    began = time.monotonic()
    with second:
        with RemotingClient(second.remoting) as client:
            answer = client.ask(GET_ROUTEINFO_BY_TOPIC, {"topic": shape.topic_names[-1]})
        assert answer.body.count(b'"perm"') == shape.width, answer
        return time.monotonic() - began


def _figures(row: str, runs: dict[str, list[Seen]], memory: dict[str, list[float]]) -> list[Figure]:
    peers = (JAVA, JAVA_NEWEST)

    def of(figure: str, divided_by: float = 1) -> dict[str, list[float]]:
        return {
            name: [getattr(one.kinds["read"], figure) / divided_by for one in of_runs] for name, of_runs in runs.items()
        }

    return [
        compared(row, "queries a second", of("per_second"), OURS, peers),
        compared(
            row,
            "p99, ms",
            of("p99_us", 1000),
            OURS,
            peers,
            goal=f"≤ {_GOAL_P99_MS}",
            is_met=lambda ours, _: ours.median <= _GOAL_P99_MS,
            digits=1,
        ),
        compared(
            row,
            "errors",
            {name: [float(one.errors) for one in of_runs] for name, of_runs in runs.items()},
            OURS,
            (),
            goal="0",
            is_met=lambda ours, _: ours.greatest == 0,
        ),
        compared(
            row,
            "memory of the server, MB",
            memory,
            OURS,
            peers,
            goal=f"≤ {_GOAL_MEMORY_MB:,}",
            is_met=lambda ours, _: ours.greatest <= _GOAL_MEMORY_MB,
        ),
    ]


def _ready(row: str, seconds: list[float]) -> Figure:
    spread = Spread.of(seconds)
    goal = f"≤ {_GOAL_READY_S}"
    return Figure(
        row, "cold start to the first route, s", {OURS: spread}, goal, spread.median <= _GOAL_READY_S, digits=2
    )
