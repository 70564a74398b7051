"""Route reads with two address views next to reads without one.

Goal: the views cost at most 3 % of the queries a second. 2,000 topics on 4 brokers each; 64 connections, half of them
at the main listener and half at another one. With views, the network of the former and the listener of the latter
choose a view that maps all brokers. Both are the same server: between the runs, the views are set and removed. All
connections of a run are new.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from namesrv_stream.ports import choose_port
from namesrv_stream.remoting.command import RequestCode
from namesrv_stream.route.address_views import VIEWS_NAMESPACE
from tests.bench.contenders import OURS, OURS_WITHOUT_VIEWS, Contender, Contenders, take_turns
from tests.bench.figures import Figure, Spread, compared
from tests.bench.frames import GET_ROUTEINFO_BY_TOPIC, route_reads, write_frames
from tests.bench.load import Kind, Load, Seen, Stream, run_load
from tests.bench.register import Brokers
from tests.bench.rows.bench import Bench
from tests.bench.shape import Shape
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient

#: Name of each view → the key that chooses its clients, and its mapping.
VIEWS: Final[Mapping[str, Mapping[str, object]]] = {
    "by-listener": {"listeners": ["outside"], "mappings": [{"to": "{broker_name}.outside.example.org:{port}"}]},
    "by-network": {"networks": ["127.0.0.0/8"], "mappings": [{"to": "{broker_name}.inside.example.org:{port}"}]},
}
_CONNECTIONS: Final = 64
_GOAL: Final = 0.97
_SETTLE_S: Final = 30.0
#: Time in which the server makes the answers for all topics again, because a change of a view drops them.
_PRIME_S: Final = 2.0


def measure(bench: Bench, shape: Shape | None = None) -> list[Figure]:
    """Measure the server alternately with and without views."""
    shape = shape or Shape()
    with bench.home() as home, ExitStack() as running:
        contenders = running.enter_context(Contenders(home))
        outside = f"127.0.0.1:{choose_port('127.0.0.1')}"
        ours, _, _ = contenders.start_ours(remoting__view_listeners=f"outside:{outside.partition(':')[2]}")
        brokers = running.enter_context(Brokers(ours.addr, shape))
        reads = Kind("read", write_frames(home / "reads", route_reads(shape.topic_names)), has_body=True)
        prime = Load((Stream((reads,), _CONNECTIONS // 2),), seconds=_PRIME_S, warm_up_s=0)
        load = replace(prime, seconds=bench.seconds, warm_up_s=bench.warm_up_s)
        addrs = (ours.addr, outside)
        without = replace(ours, name=OURS_WITHOUT_VIEWS)

        def at_both(load: Load) -> list[Seen]:
            with ThreadPoolExecutor(len(addrs)) as threads:
                return list(threads.map(lambda addr: run_load(bench.program, addr, load), addrs))

        def run(one: Contender) -> tuple[list[Seen], float]:
            brokers.beat()
            _set_views(addrs, shape.topic_names[0], has_views=one is ours)
            at_both(prime)
            before_s = one.server_cpu_s()
            return at_both(load), one.server_cpu_s() - before_s

        return _figures(bench, take_turns(contenders, (ours, without), bench.rounds, run))


def _set_views(addrs: tuple[str, str], topic: str, *, has_views: bool) -> None:
    """Set or remove all views, and wait until both listeners answer accordingly."""
    main, outside = addrs
    with RemotingClient(main) as client:
        for name, document in VIEWS.items():
            fields = {"namespace": VIEWS_NAMESPACE, "key": name}
            if has_views:
                answer = client.ask(RequestCode.PUT_KV_CONFIG, {**fields, "value": json.dumps(document)})
            else:
                answer = client.ask(RequestCode.DELETE_KV_CONFIG, fields)
            assert answer.code == 0, answer
    for addr, domain in ((main, "inside"), (outside, "outside")):
        expected = f".{domain}.example.org:" if has_views else '"127.0.0.1:'
        wait_until(partial(_answers, addr, topic, expected), _SETTLE_S, f"{addr} answers with {expected}")


def _answers(addr: str, topic: str, expected: str) -> bool:
    """Whether the route contains a text, over a new connection."""
    with RemotingClient(addr) as client:
        return expected in client.ask(GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body.decode()


def _figures(bench: Bench, runs: dict[str, list[tuple[list[Seen], float]]]) -> list[Figure]:
    row = f"route reads with two address views, {_CONNECTIONS} connections"

    def is_met(_: Spread, quotients: list[Spread]) -> bool:
        return all(one.median >= _GOAL for one in quotients)

    rates = {name: [sum(s.kinds["read"].per_second for s in seen) for seen, _ in each] for name, each in runs.items()}
    p99 = {name: [max(s.kinds["read"].p99_us for s in seen) / 1000 for seen, _ in each] for name, each in runs.items()}
    errors = {name: [float(sum(s.errors for s in seen)) for seen, _ in each] for name, each in runs.items()}
    # The processor time includes the warm-up, whose requests are not counted.
    part = bench.seconds / (bench.seconds + bench.warm_up_s) * 1e6
    cost = {
        name: [cpu_s * part / max(sum(s.kinds["read"].answered for s in seen), 1) for seen, cpu_s in each]
        for name, each in runs.items()
    }
    return [
        compared(
            row,
            "queries a second",
            rates,
            OURS,
            (OURS_WITHOUT_VIEWS,),
            goal=f"≥ {_GOAL:g} times without views",
            is_met=is_met,
        ),
        compared(row, "p99, ms", p99, OURS, (OURS_WITHOUT_VIEWS,), digits=2),
        compared(row, "server's processor time a query, µs", cost, OURS, (OURS_WITHOUT_VIEWS,), digits=2),
        compared(row, "errors", errors, OURS, (), goal="0", is_met=lambda ours, _: ours.greatest == 0),
    ]
