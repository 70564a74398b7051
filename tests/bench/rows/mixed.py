"""19 of 20 requests are route reads, one is the full registration of a broker with 2,000 topics.

Goal: at least 3 times the Java NameServer's requests a second, and reads whose p99 is at most half of its p99. 64
connections read; each of 4 brokers registers over its own connection. In the first row every registration differs from
the previous one (a new DataVersion, another topic changed), in the second one only in the time stamp that each
registration of a broker of 5.x has.

Unchanged registrations are also measured without Kafka and the job. Changed ones are not: each must be logged, and
while Kafka is suspended they would only wait.

A server that reads a registration's bytes and drops them shows the limit of one thread and this load generator.
"""

from typing import Final

from tests.bench.contenders import JAVA, JAVA_NEWEST, OURS, Contender, Contenders, take_turns
from tests.bench.figures import Figure, compared
from tests.bench.frames import registrations, route_reads, write_frames
from tests.bench.load import Choice, Kind, Load, Seen, Stream, run_load
from tests.bench.rows.bench import JIT_WARM_UP_S, Bench
from tests.bench.shape import Shape

_CONNECTIONS: Final = 64
_WRITE_SHARE: Final = 0.05
_GOAL_TIMES: Final = 3.0
_GOAL_P99_TIMES: Final = 0.5
_VARIANTS: Final = 16
#: About the size of a route of four brokers.
_ROUTE_BYTES: Final = 700


def measure(bench: Bench, shape: Shape | None = None) -> list[Figure]:
    """Measure both Java NameServers, namesrv-stream, and its server alone."""
    shape = shape or Shape()
    with bench.home() as home, Contenders(home) as contenders:
        ours, alone, _ = contenders.start_ours()
        measured = [contenders.start_java(), ours, contenders.start_java(newest=True)]
        ceiling = contenders.start_ceiling(body_bytes=_ROUTE_BYTES)
        before = Kind("before", write_frames(home / "before", registrations(shape)), Choice.ONCE)
        reads = write_frames(home / "reads", route_reads(shape.topic_names))
        files = {
            "changed": write_frames(home / "changed", registrations(shape, changes=range(1, 1 + _VARIANTS))),
            "unchanged": write_frames(home / "unchanged", registrations(shape, stamps=range(1, 1 + _VARIANTS))),
        }
        figures: list[Figure] = []
        for name, file in files.items():
            kinds = (
                Kind("read", reads, share=1 - _WRITE_SHARE, has_body=True),
                Kind("register", file, Choice.IN_TURN, _WRITE_SHARE),
            )

            def load(seconds: float, kinds: tuple[Kind, ...] = kinds) -> Load:
                return Load((Stream(kinds, _CONNECTIONS),), before, seconds=seconds, warm_up_s=bench.warm_up_s)

            for one in measured:
                with contenders.awake(one):
                    run_load(bench.program, one.addr, load(JIT_WARM_UP_S))

            measured_load = load(bench.seconds)

            def run(one: Contender, measured_load: Load = measured_load) -> tuple[Seen, float]:
                before_s = one.server_cpu_s()
                seen = run_load(bench.program, one.addr, measured_load)
                return seen, one.server_cpu_s() - before_s

            without_log = [alone] if name == "unchanged" else []
            runs = take_turns(contenders, [*measured, *without_log, ceiling], bench.rounds, run)
            figures += _figures(f"95 % reads, 5 % {name} registrations", bench, runs)
        return figures


def _figures(row: str, bench: Bench, all_runs: dict[str, list[tuple[Seen, float]]]) -> list[Figure]:
    peers = (JAVA, JAVA_NEWEST)
    runs = {name: [seen for seen, _ in of_runs] for name, of_runs in all_runs.items()}
    # The processor time includes the warm-up and the few registrations before it.
    part = bench.seconds / (bench.seconds + bench.warm_up_s)
    cost = {
        name: [
            cpu_s * part / max(sum(kind.answered for kind in seen.kinds.values()), 1) * 1e6 for seen, cpu_s in of_runs
        ]
        for name, of_runs in all_runs.items()
    }

    def of(kind: str, figure: str, divided_by: float = 1) -> dict[str, list[float]]:
        return {
            name: [getattr(one.kinds[kind], figure) / divided_by for one in of_runs] for name, of_runs in runs.items()
        }

    totals = {
        name: [sum(kind.per_second for kind in one.kinds.values()) for one in of_runs] for name, of_runs in runs.items()
    }
    return [
        compared(
            row,
            "requests a second",
            totals,
            OURS,
            peers,
            goal=f"≥ {_GOAL_TIMES:g} times Java",
            is_met=lambda _, quotients: all(one.median >= _GOAL_TIMES for one in quotients),
        ),
        compared(
            row,
            "read p99, ms",
            of("read", "p99_us", 1000),
            OURS,
            peers,
            goal=f"≤ {_GOAL_P99_TIMES:g} times Java",
            is_met=lambda _, quotients: all(one.median <= _GOAL_P99_TIMES for one in quotients),
            digits=2,
        ),
        compared(row, "registration p99, ms", of("register", "p99_us", 1000), OURS, peers, digits=2),
        compared(row, "server's processor time a request, µs", cost, OURS, peers),
        compared(
            row,
            "errors",
            {name: [float(one.errors) for one in of_runs] for name, of_runs in runs.items()},
            OURS,
            (),
            goal="0",
            is_met=lambda ours, _: ours.greatest == 0,
        ),
    ]
