"""Runs simulations: ``python -m tests.simulation --seeds 100``, or one again: ``--seed 7 --trace run.txt``."""

import argparse
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from typing import Final

from namesrv_stream.processes import signal_with_parent
from tests.simulation.simulation import Outcome, Shape, attempt, simulate

#: Number of seeds between two lines about the progress.
_PROGRESS: Final = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds (default: 100)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no seeds after this time")
    parser.add_argument("--brokers", type=int, help="number of brokers (default: drawn)")
    parser.add_argument("--seconds", type=int, default=300, help="time with faults, before it is scaled (default: 300)")
    parser.add_argument(
        "--scale", type=int, help="how many times longer all intervals and timeouts are (default: drawn)"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument("--trace", help="file for the trace of --seed")
    args = parser.parse_args()
    shape = Shape(args.brokers, args.seconds, scale=args.scale)
    if args.seed is not None:
        with ExitStack() as stack:
            write = None if args.trace is None else stack.enter_context(open(args.trace, "w", encoding="utf-8")).write
            outcome = simulate(args.seed, shape, write)
        return report([outcome])
    seeds = range(args.first, args.first + args.seeds)
    return report(run_all(seeds, shape, args.processes, args.minutes))


def run_all(seeds: range, shape: Shape, processes: int, minutes: float = float("inf")) -> Iterator[Outcome]:
    """Run seeds on several processes, and yield the outcomes in order. Begin none after some minutes."""
    end = time.monotonic() + 60 * minutes
    # A worker would otherwise go on with its seeds after the end of this process.
    end_with_parent = partial(signal_with_parent, signal.SIGKILL)
    with ProcessPoolExecutor(processes, get_context("spawn"), end_with_parent) as pool:
        running = deque[Future[Outcome]]()
        for seed in seeds:
            if len(running) == 8 * processes:
                yield running.popleft().result()
            if time.monotonic() >= end:
                break
            running.append(pool.submit(attempt, seed, shape))
        while running:
            yield running.popleft().result()


def report(found: Iterable[Outcome]) -> int:
    """Print what was simulated, and the progress of long runs. Return the exit code."""
    faults, checks, figures = Counter[str](), Counter[str](), Counter[str]()
    outcomes = []
    for outcome in found:
        outcomes.append(outcome)
        faults += outcome.faults
        checks += outcome.checks
        figures.update(outcome.figures)
        for name, detail in outcome.failures:
            print(f"seed {outcome.seed}: {name}: {detail}", flush=True)
        if outcome.failures:
            print(f"  again: .venv/bin/python -m tests.simulation --seed {outcome.seed}", flush=True)
        if len(outcomes) % _PROGRESS == 0:
            print(f"{len(outcomes)} seeds, {sum(faults.values()):,} faults", file=sys.stderr, flush=True)
    failed = [o.seed for o in outcomes if o.failures]
    print(f"seeds: {len(outcomes)}, {_simulated(outcomes)}")
    for scale in sorted({o.scale for o in outcomes}):
        of_scale = [o for o in outcomes if o.scale == scale]
        print(f"  intervals times {scale:>5,}: {len(of_scale):>6,} seeds, {_simulated(of_scale)}")
    for title, counts in (("faults", faults), ("checks", checks), ("fleet", figures)):
        print(f"{title}: {sum(counts.values()):,}")
        for name, count in sorted(counts.items()):
            print(f"  {count:>12,}  {name}")
    print(f"failing seeds: {failed or 'none'}")
    return 1 if failed else 0


def _simulated(outcomes: list[Outcome]) -> str:
    seconds, cpu_s = sum(o.seconds for o in outcomes), sum(o.cpu_s for o in outcomes)
    return f"simulated: {seconds / 86_400:,.2f} days, {seconds / max(cpu_s, 0.001):,.0f} times real time a core"


if __name__ == "__main__":
    sys.exit(main())
