"""Memory of the idle product with 1,000 brokers and 20,000 topics on 4 brokers each.

Goals: the server at most 200 MB, the job's JVM at most 1.2 GB. Before the measurement, brokers register and send
heartbeats for half a minute.
"""

import time
from contextlib import ExitStack
from typing import Final

from tests.bench.contenders import JAVA, JAVA_NEWEST, OURS, Contenders
from tests.bench.figures import Figure, Spread
from tests.bench.machine import family, memory_mb
from tests.bench.register import Brokers
from tests.bench.rows.bench import Bench
from tests.bench.rows.large import wait_committed
from tests.bench.shape import Shape

SHAPE: Final = Shape(topics=20_000, brokers=1_000, width=4)
_REST_S: Final = 30
_GOAL_SERVER_MB: Final = 200
_GOAL_JVM_MB: Final = 1_200


def measure(bench: Bench, shape: Shape = SHAPE) -> list[Figure]:
    """Measure both Java NameServers and namesrv-stream, each once."""
    row = f"memory at rest, {shape.brokers:,} brokers, {shape.topics:,} topics on {shape.width} each"
    with bench.home() as home, ExitStack() as running:
        contenders = running.enter_context(Contenders(home))
        ours, _, stack = contenders.start_ours()
        server: dict[str, Spread] = {}
        for one in (ours, contenders.start_java(), contenders.start_java(newest=True)):
            with contenders.awake(one):
                running.enter_context(Brokers(one.addr, shape))
                time.sleep(_REST_S)
                if one is ours:
                    wait_committed(stack)
                server[one.name] = Spread.of([one.server_memory_mb()])
                if one is ours:
                    job = family(stack.pid("job"))
                    jvm_mb = memory_mb(pid for pid, name in job.items() if name == "java")
                    python_mb = memory_mb(pid for pid, name in job.items() if name != "java")
    assert set(server) == {OURS, JAVA, JAVA_NEWEST}
    met = server[OURS].median <= _GOAL_SERVER_MB
    return [
        Figure(row, "server, MB", server, f"≤ {_GOAL_SERVER_MB}", met),
        Figure(row, "JVM of the job, MB", {OURS: Spread.of([jvm_mb])}, f"≤ {_GOAL_JVM_MB:,}", jvm_mb <= _GOAL_JVM_MB),
        Figure(row, "Python of the job, MB", {OURS: Spread.of([python_mb])}),
    ]
