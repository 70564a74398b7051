"""Faults planted into the product, to show that the simulation finds them: ``python -m tests.simulation.planted``.

Each one replaces a piece of source text in one function, as a small patch would.
"""

import argparse
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from tests.simulation.audit_plants import AUDIT_PLANTS, Plant
from tests.simulation.faults import TEMPOS
from tests.simulation.plants import PLANTS
from tests.simulation.simulation import Outcome, Shape, simulate

ALL_PLANTS: Final = (*AUDIT_PLANTS, *PLANTS)


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Plant a fault while simulations run."""
    with ExitStack() as stack:
        stack.enter_context(_replaced(plant.place, plant.old, plant.new))
        if plant.also is not None:
            stack.enter_context(_replaced(*plant.also))
        yield


@contextmanager
def _replaced(place: str, old: str, new: str) -> Iterator[None]:
    """Replace a piece of source text in one function of the product."""
    module_name, _, name = place.partition(":")
    module = importlib.import_module(f"namesrv_stream.{module_name}")
    owner: Any = module
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    before = inspect.getattr_static(owner, last)
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(before)))
    if source.count(old) != 1:
        raise ValueError(f"{place} contains {old!r} {source.count(old)} times")
    found: dict[str, Any] = {}
    exec(compile(source.replace(old, new), f"<planted in {place}>", "exec"), vars(module), found)
    owners = [owner] if outer else _modules_with(last, before)
    for each in owners:
        setattr(each, last, found[last])
    try:
        yield
    finally:
        # Modules may have been imported in the meantime.
        for each in [owner] if outer else _modules_with(last, found[last]):
            setattr(each, last, before)


def _modules_with(name: str, function: object) -> list[Any]:
    """Return the modules that have a function by its name, because they define or import it."""
    modules = [m for key, m in sorted(sys.modules.items()) if key.startswith(("namesrv_stream.", "tests.simulation."))]
    return [module for module in modules if vars(module).get(name) is function]


def find(plant: Plant, seeds: int, seconds: int = 240) -> tuple[int, Outcome | None, float]:
    """Simulate seeds until one fails. Return its number, the outcome that shows the fault, and the processor time."""
    cpu_s = 0.0
    with planted(plant):
        for number in range(1, seeds + 1):
            outcome = simulate(number, _shape(plant, seconds))
            cpu_s += outcome.cpu_s
            if outcome.failures:
                return number, outcome, cpu_s
    return seeds, None, cpu_s


def _shape(plant: Plant, seconds: int) -> Shape:
    return Shape(6, seconds, plant.faults or None, quiet_s=200, tempo=TEMPOS[0], scale=1, stops=True, plan=plant.plan)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names to plant")
    parser.add_argument("--seeds", type=int, default=60, help="seeds to try for each (default: 60)")
    parser.add_argument("--seconds", type=int, default=240, help="simulated time with faults (default: 240)")
    parser.add_argument("--part", default="1/1", help="only the Nth of M parts of the list")
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    missed = []
    for plant in [p for p in ALL_PLANTS if args.only in p.name][part - 1 :: parts]:
        seed, outcome, cpu_s = find(plant, args.seeds, args.seconds)
        if outcome is None:
            missed.append(plant.name)
            print(f"NOT FOUND  {plant.name}: {seed} seeds, {cpu_s:.0f} s", flush=True)
            continue
        invariant, detail = outcome.failures[0]
        print(f"found      {plant.name}: seed {seed}, {cpu_s:.0f} s, {invariant}: {detail[:200]}", flush=True)
        control = simulate(seed, _shape(plant, args.seconds))
        if control.failures:
            missed.append(plant.name)
            print(f"  WITHOUT THE PLANT: {control.failures[0]}", flush=True)
    print(f"not found, or found without the plant: {missed or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
