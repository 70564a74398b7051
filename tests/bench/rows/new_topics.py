"""300 brokers register 10,000 topics each at once, all of them new: three million rows.

Goals: meanwhile, reads of other topics have a p99 of at most 100 ms; all rows are in Delta within 180 s; the server
needs at most 2.5 GB. Only this product is measured: the Java NameServer's figures for such registrations are in the row
``storm``.
"""

import time
from contextlib import ExitStack
from functools import partial
from typing import Final

from tests.bench.contenders import Contenders
from tests.bench.figures import Figure
from tests.bench.frames import registrations, route_reads, write_frames
from tests.bench.load import Choice, Kind, Load, Stream, run_load
from tests.bench.register import Brokers
from tests.bench.rows.bench import Bench, of_one_run
from tests.bench.rows.large import wait_committed
from tests.bench.rows.storm import READ, during_storm
from tests.bench.shape import Shape

SHAPE: Final = Shape(topics=10_000, brokers=300, width=300, prefix="new-", cluster="new")
_CONNECTIONS: Final = 64
_RATE: Final = 2_000
_SECONDS: Final = 60
_GOAL_P99_MS: Final = 100
_GOAL_DELTA_S: Final = 180
_GOAL_MEMORY_MB: Final = 2_500


def measure(bench: Bench, shape: Shape = SHAPE) -> list[Figure]:
    """Measure one run, whatever the number of rounds."""
    row = f"{shape.brokers} brokers of {shape.topics:,} new topics"
    with bench.home() as home, ExitStack() as running:
        contenders = running.enter_context(Contenders(home))
        ours, _, stack = contenders.start_ours()
        reads = Kind("read", write_frames(home / "reads", route_reads(READ.topic_names)), has_body=True)
        running.enter_context(Brokers(ours.addr, READ))
        run_load(bench.program, ours.addr, Load((Stream((reads,), _CONNECTIONS),), seconds=5))
        register = Kind("register", write_frames(home / "new", registrations(shape)), Choice.ONCE)
        streams = (
            Stream((reads,), _CONNECTIONS, depth=4, rate=_RATE),
            Stream((register,), 0, depth=shape.brokers, at_s=0.2),
        )
        began = time.monotonic()
        seen = run_load(bench.program, ours.addr, Load(streams, seconds=_SECONDS, drain_s=60))
        wait_committed(stack)
        delta_s, memory_mb = time.monotonic() - began, ours.server_memory_mb()
    p99_ms, slowest_ms = during_storm(seen)
    errors = seen.errors + seen.unanswered

    one = partial(of_one_run, row)
    return [
        one("read p99 meanwhile, ms", p99_ms, f"≤ {_GOAL_P99_MS}", p99_ms <= _GOAL_P99_MS, 1),
        one("slowest read, ms", slowest_ms),
        one("all answered after, s", seen.kinds["register"].span_s, digits=1),
        one("begin to all in Delta, s", delta_s, f"≤ {_GOAL_DELTA_S}", delta_s <= _GOAL_DELTA_S, 1),
        one("memory of the server, MB", memory_mb, f"≤ {_GOAL_MEMORY_MB:,}", memory_mb <= _GOAL_MEMORY_MB),
        one("errors", errors, "0", errors == 0),
    ]
