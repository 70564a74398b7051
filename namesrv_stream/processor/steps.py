"""Work in steps, for those who have the time to do it at once."""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def at_once(steps: Generator[None, None, Result]) -> Result:
    """Do all steps; what the work comes to."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result
