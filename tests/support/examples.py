"""How many examples a property is tried with: some in each run, many in `make test-extra`."""

import os
from typing import Final

_FACTOR: Final = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 1


def examples(number: int) -> int:
    """``number`` in normal runs, which should take a second or two; twenty times that in `make test-extra`."""
    return number * _FACTOR
