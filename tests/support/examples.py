"""How many examples a property is tried with: some in each run, many in `make test-extra`."""

import os
from typing import Final

_FACTOR: Final = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 1


def examples(number: int) -> int:
    """``number`` as a rule: what a second or two of the unit tests can bear; twenty times that where there is time."""
    return number * _FACTOR
