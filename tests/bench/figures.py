"""The results of a row of the benchmark: a figure of each contender, its spread, and whether the goal is reached."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum of the runs."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def of_quotients(cls, values: Sequence[float], to: Sequence[float]) -> "Spread":
        """Return the spread of quotients; each is of two runs of one round, which other load affects alike."""
        return cls.of([one / other if other else float("inf") for one, other in zip(values, to, strict=True)])


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        row: The measurement.
        name: The measured quantity, with its unit.
        values: Values by contender.
        goal: Description of the goal; empty if there is none.
        is_met: Whether namesrv-stream reaches the goal; None if there is none.
        quotients: Name of another contender → our value divided by that contender's value.
        digits: Number of decimal places.
    """

    row: str
    name: str
    values: dict[str, Spread]
    goal: str = ""
    is_met: bool | None = None
    quotients: dict[str, Spread] = field(default_factory=dict)
    digits: int = 0


def compared(
    row: str,
    name: str,
    runs: dict[str, list[float]],
    ours: str,
    peers: Sequence[str],
    *,
    goal: str = "",
    is_met: Callable[[Spread, list[Spread]], bool] | None = None,
    digits: int = 0,
) -> Figure:
    """Return a figure of several contenders.

    Args:
        row: See ``Figure``.
        name: See ``Figure``.
        runs: Values by contender, in the order of the rounds.
        ours: The contender that is namesrv-stream.
        peers: The contenders with which it is compared.
        goal: See ``Figure``.
        is_met: Function of our values and the quotients: whether the goal is reached.
        digits: See ``Figure``.
    """
    values = {contender: Spread.of(of_runs) for contender, of_runs in runs.items()}
    quotients = {peer: Spread.of_quotients(runs[ours], runs[peer]) for peer in peers if peer in runs}
    met = is_met(values[ours], list(quotients.values())) if is_met and ours in runs else None
    return Figure(row, name, values, goal, met, quotients, digits)
