"""Route reads over many connections, each sent as soon as the previous one is answered.

Goal: at least 1.5 times the Java NameServer's queries a second with 16, 64, 256 and 1,024 connections, a p99 that is
not worse, no errors. 2,000 topics on 4 brokers each, chosen uniformly; one request outstanding on each connection.

A server that only answers shows the limit of one thread and this load generator.

``measure_python_lane`` measures the same with the Python lane. Its goal is 0.8 times Java's queries a second.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from tests.bench.contenders import JAVA, JAVA_NEWEST, OURS, Contender, Contenders, take_turns
from tests.bench.figures import Figure, compared
from tests.bench.frames import GET_ROUTEINFO_BY_TOPIC, route_reads, write_frames
from tests.bench.load import Kind, Load, Seen, Stream, run_load
from tests.bench.register import Brokers
from tests.bench.rows.bench import JIT_WARM_UP_S, Bench
from tests.bench.shape import Shape
from tests.support.remoting_client import RemotingClient

CONNECTIONS: Final = (16, 64, 256, 1_024)
_GOAL_TIMES: Final = 1.5
_GOAL_TIMES_OF_PYTHON: Final = 0.8


def measure_python_lane(bench: Bench) -> list[Figure]:
    """Measure the server without the native library."""
    return measure(bench, is_native=False)


def measure(
    bench: Bench, connections: Sequence[int] = CONNECTIONS, shape: Shape | None = None, *, is_native: bool = True
) -> list[Figure]:
    """Measure both Java NameServers, namesrv-stream, and its server alone."""
    shape = shape or Shape()
    with bench.home() as home, ExitStack() as running:
        contenders = running.enter_context(Contenders(home))
        ours, alone, _ = contenders.start_ours(remoting__native_lane="on" if is_native else "python")
        measured = [contenders.start_java(), ours, contenders.start_java(newest=True), alone]
        reads = Kind("read", write_frames(home / "reads", route_reads(shape.topic_names)), has_body=True)
        brokers: dict[str, Brokers] = {}
        for one in measured:
            # Both contenders of namesrv-stream are the same server.
            brokers[one.name] = brokers[OURS] if one is alone else running.enter_context(Brokers(one.addr, shape))
            if one is not alone:
                with contenders.awake(one):
                    run_load(bench.program, one.addr, Load((Stream((reads,), 64),), seconds=JIT_WARM_UP_S))
        ceiling = contenders.start_ceiling(_body_bytes(ours.addr, shape))
        figures: list[Figure] = []
        for count in connections:
            load = Load((Stream((reads,), count),), seconds=bench.seconds, warm_up_s=bench.warm_up_s)

            def run(one: Contender, load: Load = load) -> tuple[Seen, float]:
                if one is not ceiling:
                    brokers[one.name].beat()
                before_s = one.server_cpu_s()
                seen = run_load(bench.program, one.addr, load)
                return seen, one.server_cpu_s() - before_s

            runs = take_turns(contenders, [*measured, ceiling], bench.rounds, run)
            figures += _figures(count, bench, runs, is_native)
        memory = {one.name: [one.server_memory_mb()] for one in measured if one is not alone}
        row = "route reads" if is_native else "route reads by the Python lane"
        figures.append(compared(row, "memory of the server, MB", memory, OURS, (JAVA, JAVA_NEWEST)))
        return figures


def _body_bytes(addr: str, shape: Shape) -> int:
    """Return the size of a route's body."""
    with RemotingClient(addr) as client:
        return len(client.ask(GET_ROUTEINFO_BY_TOPIC, {"topic": shape.topic_names[0]}).body)


def _figures(count: int, bench: Bench, runs: dict[str, list[tuple[Seen, float]]], is_native: bool) -> list[Figure]:
    row = f"route reads{'' if is_native else ' by the Python lane'}, {count:,} connections"
    goal_times = _GOAL_TIMES if is_native else _GOAL_TIMES_OF_PYTHON
    peers = (JAVA, JAVA_NEWEST)
    seen = {name: [one for one, _ in of_runs] for name, of_runs in runs.items()}
    # The processor time includes the warm-up, whose requests are not counted.
    part = bench.seconds / (bench.seconds + bench.warm_up_s)
    cost = {
        name: [cpu_s * part / max(one.kinds["read"].answered, 1) * 1e6 for one, cpu_s in of_runs]
        for name, of_runs in runs.items()
    }
    return [
        compared(
            row,
            "queries a second",
            {name: [one.kinds["read"].per_second for one in of_runs] for name, of_runs in seen.items()},
            OURS,
            peers,
            goal=f"≥ {goal_times:g} times Java",
            is_met=lambda _, quotients: all(one.median >= goal_times for one in quotients),
        ),
        compared(
            row,
            "p99, ms",
            {name: [one.kinds["read"].p99_us / 1000 for one in of_runs] for name, of_runs in seen.items()},
            OURS,
            peers,
            goal="≤ Java" if is_native else "",
            is_met=(lambda _, quotients: all(one.median <= 1 for one in quotients)) if is_native else None,
            digits=2,
        ),
        compared(row, "server's processor time a query, µs", cost, OURS, peers, digits=1),
        compared(
            row,
            "errors",
            {name: [float(one.errors) for one in of_runs] for name, of_runs in seen.items()},
            OURS,
            (),
            goal="0",
            is_met=lambda ours, _: ours.greatest == 0,
        ),
    ]
