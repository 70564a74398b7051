"""`make bench`: measures every figure that the product promises, alternating with the Java NameServer where possible.

Kafka and the Spark job run next to namesrv-stream, and the load generator shares the machine. ``--only``, ``--rounds``
and ``--seconds`` shorten the measurement.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench import machine
from tests.bench.compiler import NoCompiler, compile_loadgen
from tests.bench.figures import Figure
from tests.bench.report import print_figures, write_results
from tests.bench.rows import (
    expiry,
    flaps,
    fleet,
    growth,
    heartbeats,
    hostile,
    job,
    large,
    memory,
    mixed,
    new_topics,
    reads,
    storm,
    views,
)
from tests.bench.rows.bench import Bench

ROWS: Final[dict[str, Callable[[Bench], list[Figure]]]] = {
    "reads": reads.measure,
    "plain-reads": reads.measure_python_lane,
    "views": views.measure,
    "mixed": mixed.measure,
    "large": large.measure,
    "storm": storm.measure,
    "new-topics": new_topics.measure,
    "fleet": fleet.measure,
    "heartbeats": heartbeats.measure,
    "hostile": hostile.measure,
    "flaps": flaps.measure,
    "job": job.measure,
    "expiry": expiry.measure,
    "memory": memory.measure,
    "growth": growth.measure,
}
_RESULTS: Final = Path(__file__).parents[2] / "bench" / "results.json"
_WIDTH: Final = 170


def main() -> int:
    """Measure the rows that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ROWS, nargs="+", default=list(ROWS), help="rows; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each server")
    parser.add_argument("--seconds", type=float, default=4, help="length of a run")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="file to write")
    chosen = parser.parse_args()
    console = Console(stderr=True)
    try:
        bench = Bench(compile_loadgen(), chosen.rounds, chosen.seconds)
    except NoCompiler as missing:
        console.print(f"error: {missing}", style="red")
        return 3
    facts = machine.facts()
    plan = {"rounds": bench.rounds, "seconds": bench.seconds, "warm_up_s": bench.warm_up_s, "seed": 1}
    figures: list[Figure] = []
    for name in chosen.only:
        began = time.monotonic()
        console.print(f"{name} …")
        figures += ROWS[name](bench)
        console.print(f"{name}: {time.monotonic() - began:.0f} s")
        # Write the results so far, in case a later row fails.
        write_results(chosen.results, facts, plan, figures)
    print_figures(figures, Console(width=_WIDTH))
    console.print(f"written to {chosen.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
