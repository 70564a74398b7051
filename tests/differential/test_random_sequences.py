"""Both servers give the same answers after random sequences of actions of brokers and operators."""

import os
from collections.abc import Sequence

import pytest

from tests.differential.pair import Pair
from tests.differential.random_walk import Step, describe, steps
from tests.differential.walker import Walker, shrunk

_STEPS = 500
#: The environment variable DIFFERENTIAL_SEEDS names other seeds; `make test-extra` uses more.
_SEEDS = [int(seed) for seed in os.environ.get("DIFFERENTIAL_SEEDS", "1 2 3 4 5 6 7 8 9 10").split()]


@pytest.mark.parametrize("seed", _SEEDS)
def test_state_equals_javas_after_every_random_step(pair: Pair, seed: int) -> None:
    walk = steps(seed, _STEPS)
    walker = Walker(pair)
    try:
        walker.walk(walk)
    except AssertionError as error:
        shortest = shrunk(walk[: walker.done + 1], lambda fewer: _fails(pair, fewer))
        shown = "\n".join(f"  {describe(step)}" for step in shortest)
        pytest.fail(f"seed {seed}: {error}\nit also fails with only these steps:\n{shown}")


def _fails(pair: Pair, walk: Sequence[Step]) -> bool:
    try:
        Walker(pair).walk(walk)
    except AssertionError:
        return True
    return False
