"""Work that is done in steps, so that an event loop can do other work in between: a generator of which each step is
short."""

from collections.abc import Generator, Iterable
from typing import TypeVar

T = TypeVar("T")


def finish(steps: Iterable[object]) -> None:
    """Do all steps at once."""
    for _ in steps:
        pass


def result(steps: Generator[object, None, T]) -> T:
    """Do all steps at once, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
