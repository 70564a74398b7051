"""The idle job, and the delay from Kafka to the memory of a server that follows the tables; 1,000 brokers.

Goals: the job (driver, JVM, Python workers) uses at most 60 % of one core while 1,000 brokers send heartbeats every 30
s and ticks are written every 0.5 s. With ten changes a second, a change is in the memory of another server after 250 ms
(p50) and 700 ms (p99), from Kafka's producer to the follower's callback. The Java NameServer has no comparable feature.
"""

from typing import Final

from tests.bench.figures import Figure
from tests.bench.propagation import measure as propagate
from tests.bench.rows.bench import Bench, of_one_run

_SECONDS: Final = 60
_CHANGES_PER_S: Final = 10
_GOAL_CORES: Final = 0.6
_GOAL_P50_MS: Final = 250
_GOAL_P99_MS: Final = 700


def measure(bench: Bench) -> list[Figure]:
    """Measure one run of a minute; ``bench`` is not used."""
    seen = propagate(_SECONDS, partitions=1, changes_per_s=_CHANGES_PER_S)
    at_rest = seen["cores_at_rest"]
    used = sum(at_rest.values())
    return [
        of_one_run("the job at rest, 1,000 brokers", "cores", used, f"≤ {_GOAL_CORES}", used <= _GOAL_CORES, 2),
        *(
            of_one_run("the job at rest, 1,000 brokers", f"of them: {part}", cores, digits=2)
            for part, cores in at_rest.items()
        ),
        of_one_run(_CHANGE, "p50, ms", seen["p50_ms"], f"≤ {_GOAL_P50_MS}", seen["p50_ms"] <= _GOAL_P50_MS),
        of_one_run(_CHANGE, "p99, ms", seen["p99_ms"], f"≤ {_GOAL_P99_MS}", seen["p99_ms"] <= _GOAL_P99_MS),
        of_one_run(_CHANGE, "slowest, ms", seen["max_ms"]),
        of_one_run(_CHANGE, "commits a second", seen["commits_per_s"], digits=1),
    ]


_CHANGE: Final = "a change in Kafka to the memory of another server, 1,000 brokers"
