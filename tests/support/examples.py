"""The number of examples of slow properties, by the profile of Hypothesis."""

import math
import os
from typing import Final

_FACTORS: Final = {"quick": 0.25, "long": 20.0}
_FACTOR: Final = _FACTORS.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 1.0)


def examples(number: int) -> int:
    """Return ``number`` for `make test`, a quarter for `make check`, and twenty times as many for `make test-extra`."""
    return math.ceil(number * _FACTOR)
