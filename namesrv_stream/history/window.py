"""The time that a question is about."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """From one instant to another; epoch milliseconds."""

    since_ms: int
    until_ms: int
