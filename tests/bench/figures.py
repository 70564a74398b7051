"""What a row of the benchmark comes to: a figure for each contender, its spread, and whether the goal is reached."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of the runs."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def of_quotients(cls, values: Sequence[float], to: Sequence[float]) -> "Spread":
        """Of runs of the same round only: they are neighbours in time, so other work on the machine slowed both."""
        return cls.of([one / other if other else float("inf") for one, other in zip(values, to, strict=True)])


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        row: What was done.
        name: What was measured, with its unit.
        values: By contender.
        goal: The goal, for people; empty if none.
        is_met: Whether ours reaches it; None if there is none.
        quotients: Ours divided by another contender's, by that one's name.
        digits: Behind the point.
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
    """A figure of several contenders.

    Args:
        row: See ``Figure``, as for the next.
        name: See there.
        runs: Values by contender, in the order of the rounds.
        ours: Which of them is ours.
        peers: Which of them it is compared with.
        goal: See there.
        is_met: From ours and its quotients to whether the goal is reached.
        digits: See there.
    """
    values = {contender: Spread.of(of_runs) for contender, of_runs in runs.items()}
    quotients = {peer: Spread.of_quotients(runs[ours], runs[peer]) for peer in peers if peer in runs}
    met = is_met(values[ours], list(quotients.values())) if is_met and ours in runs else None
    return Figure(row, name, values, goal, met, quotients, digits)
