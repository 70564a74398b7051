"""Route reads per second: the Java NameServer 5.3.3 and ours, side by side, on the same data and the same machine.

``python -m tests.bench.route_reads --ours HOST:PORT`` with our server running there; without ``--ours`` the Java
NameServer is measured alone.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.loadgen import Load, Measured, compile_loadgen, run_load
from tests.bench.register import Brokers, Shape
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import JavaNameServer

JAVA = "Java 5.3.3"
OURS = "namesrv-stream"

GET_ROUTEINFO_BY_TOPIC = 105
# What the Java NameServer's second compiler needs before its figures stop rising.
JIT_WARM_UP_S = 5.0
VISIBLE_TIMEOUT_S = 60.0

# Narrow enough for a terminal of 80 columns.
_HEADINGS = (
    "conns",
    "server",
    "queries\na second",
    "p50\nms",
    "p99\nms",
    "p99.9\nms",
    "max\nms",
    "CPU\nµs",
    "RSS\nMB",
    "errors",
    "times\nJava",
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A running name server.

    Attributes:
        name: For the table.
        addr: ``host:port``.
        pids: Its processes, whose CPU time and memory are shown; empty if unknown.
    """

    name: str
    addr: str
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Attributes:
        connections: One measurement for each number of connections.
        rounds: Runs of each contender at each number; they take turns, and the median of each figure counts.
        seconds: Length of a run.
        depth: Requests outstanding on each connection.
        shape: Routes to register and to ask for.
    """

    connections: tuple[int, ...] = (16, 64)
    rounds: int = 3
    seconds: float = 5
    depth: int = 1
    shape: Shape = field(default_factory=Shape)


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what the load generator saw, and what the server used meanwhile."""

    seen: Measured
    cpu_us_per_request: float | None
    rss_mb: float | None


def compare(ours: Contender | None, plan: Plan, *, java_heap_mb: int = 1024) -> dict[str, Any]:
    """Start a Java NameServer, register the same routes with both, and read them by turns.

    Args:
        ours: Our server, running; None to measure the Java NameServer alone.
        plan: What to measure.
        java_heap_mb: Largest heap of the Java NameServer, MiB.

    Returns:
        JSON-able: ``plan``; ``results``, one entry for each number of connections and contender with the medians; and
        ``ours_to_java``, by number of connections, median, least and greatest over the rounds of our queries per second
        divided by Java's (empty without ours).

    Raises:
        AssertionError: A server refused the routes or did not show all of them.
    """
    program = compile_loadgen()
    with ExitStack() as running:
        home = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="bench-java-")))
        java = running.enter_context(JavaNameServer(home, heap_mb=java_heap_mb, fast_start=False))
        contenders = [Contender(JAVA, java.addr, (java.process.pid,)), *([ours] if ours else [])]
        for contender in contenders:
            running.enter_context(Brokers(contender.addr, plan.shape))
            _wait_for_routes(contender, plan.shape)
            warm_up = replace(_load(plan, max(plan.connections)), seconds=JIT_WARM_UP_S)
            run_load(program, contender.addr, warm_up)
        results = [
            _summary(contender, connections, runs)
            for connections in plan.connections
            for contender, runs in _take_turns(program, contenders, plan, connections)
        ]
    return {"plan": asdict(plan), "results": results, "ours_to_java": _quotients(results)}


def print_table(result: dict[str, Any], console: Console | None = None) -> None:
    """Print what `compare` returned as one table."""
    plan = result["plan"]
    shape = plan["shape"]
    table = Table(
        title=f"Route reads: {shape['topics']} topics on {shape['width']} of {shape['brokers']} brokers each\n"
        f"median of {plan['rounds']} runs of {plan['seconds']:g} s by turns, {plan['depth']} outstanding a connection",
        box=box.SIMPLE_HEAD,
        padding=0,
        caption=_spread(result["ours_to_java"]),
    )
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "server" else "right", no_wrap=True)
    for row in result["results"]:
        quotient = result["ours_to_java"].get(str(row["connections"])) if row["server"] != JAVA else None
        table.add_row(
            str(row["connections"]),
            row["server"],
            f"{row['qps']:,.0f}",
            *(f"{row[key] / 1000:.2f}" for key in ("p50_us", "p99_us", "p999_us", "max_us")),
            _or_dash(row["cpu_us_per_request"], "{:.0f}"),
            _or_dash(row["rss_mb"], "{:.0f}"),
            str(row["errors"]),
            f"{quotient['median']:.2f}" if quotient else "-",
        )
    (console or Console()).print(table)


def _spread(ours_to_java: dict[str, dict[str, float]]) -> str | None:
    """How far the rounds were apart, so that nobody reads more into the medians than a busy machine allows."""
    spreads = [f"{conns} conns {of['min']:.2f} to {of['max']:.2f}" for conns, of in ours_to_java.items()]
    return f"times Java over the rounds: {', '.join(spreads)}" if spreads else None


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _load(plan: Plan, connections: int) -> Load:
    return Load(
        connections=connections,
        topics=plan.shape.topics,
        prefix=plan.shape.prefix,
        depth=plan.depth,
        seconds=plan.seconds,
    )


def _wait_for_routes(contender: Contender, shape: Shape) -> None:
    """Wait until every topic has its route on every broker it is on, so that both answer with the same bodies."""
    with RemotingClient(contender.addr) as client:
        for topic in range(shape.topics):
            name = f"{shape.prefix}{topic}"
            what = f"{contender.name} shows {name} on {shape.width} brokers"
            wait_until(partial(_has_width, client, name, shape.width), VISIBLE_TIMEOUT_S, what)


def _has_width(client: RemotingClient, topic: str, width: int) -> bool:
    answer = client.ask(GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return answer.code == 0 and len(json.loads(answer.body)["queueDatas"]) == width


def _take_turns(
    program: Path, contenders: Sequence[Contender], plan: Plan, connections: int
) -> list[tuple[Contender, list[Run]]]:
    """Let the contenders take turns, so that whatever else the machine does falls on all of them."""
    runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    for number in range(plan.rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            runs[contender.name].append(_run(program, contender, _load(plan, connections)))
    return [(contender, runs[contender.name]) for contender in contenders]


def _run(program: Path, contender: Contender, load: Load) -> Run:
    cpu_before = _cpu_s(contender.pids)
    seen = run_load(program, contender.addr, load)
    cpu_s = _cpu_s(contender.pids) - cpu_before
    # The CPU time covers the warm-up as well, whose requests are not counted.
    asked = seen.requests * (load.seconds + load.warm_up_s) / load.seconds
    return Run(
        seen,
        cpu_us_per_request=cpu_s / asked * 1e6 if contender.pids and asked else None,
        rss_mb=_rss_mb(contender.pids) if contender.pids else None,
    )


def _summary(contender: Contender, connections: int, runs: Sequence[Run]) -> dict[str, Any]:
    figures = ("qps", "mean_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us", "requests", "bytes_received")
    cpu = [run.cpu_us_per_request for run in runs if run.cpu_us_per_request is not None]
    return {
        "server": contender.name,
        "connections": connections,
        **{figure: statistics.median(getattr(run.seen, figure) for run in runs) for figure in figures},
        "qps_of_each_run": [run.seen.qps for run in runs],
        "errors": sum(run.seen.errors for run in runs),
        "cpu_us_per_request": statistics.median(cpu) if cpu else None,
        "rss_mb": runs[-1].rss_mb,
    }


def _quotients(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Compare runs of the same round only: they are neighbours in time, so other work on the machine slowed both."""
    java = {row["connections"]: row["qps_of_each_run"] for row in results if row["server"] == JAVA}
    quotients: dict[str, dict[str, float]] = {}
    for row in results:
        if row["server"] != JAVA:
            of_each = [
                ours / theirs for ours, theirs in zip(row["qps_of_each_run"], java[row["connections"]], strict=True)
            ]
            quotients[str(row["connections"])] = {
                "median": statistics.median(of_each),
                "min": min(of_each),
                "max": max(of_each),
            }
    return quotients


def _cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds used so far: fields 14 and 15 of /proc/PID/stat; the name before them may hold spaces."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _rss_mb(pids: Sequence[int]) -> float:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Compare what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", metavar="HOST:PORT", help="our server, running")
    parser.add_argument("--pid", type=int, action="append", default=[], help="of our server; may be repeated")
    parser.add_argument("--connections", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--brokers", type=int, default=4)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there as well")
    chosen = parser.parse_args()
    plan = Plan(
        connections=tuple(chosen.connections),
        rounds=chosen.rounds,
        seconds=chosen.seconds,
        depth=chosen.depth,
        shape=Shape(topics=chosen.topics, brokers=chosen.brokers, width=chosen.width),
    )
    ours = Contender(OURS, chosen.ours, tuple(chosen.pid)) if chosen.ours else None
    result = compare(ours, plan)
    print_table(result)
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
