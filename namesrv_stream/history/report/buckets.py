"""A time cut into hours, days or weeks, at their borders in UTC."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

Unit = Literal["hour", "day", "week"]

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_MOST_HOURS_MS: Final = 2 * _DAY_MS
_MOST_DAYS_MS: Final = 120 * _DAY_MS


@dataclass(frozen=True, slots=True)
class Buckets:
    """A time in pieces, of which the first and the last may be cut.

    Attributes:
        unit: What each is.
        bounds_ms: Epoch milliseconds, one more than there are pieces, ascending.
    """

    unit: Unit
    bounds_ms: Sequence[int]

    def __len__(self) -> int:
        return len(self.bounds_ms) - 1

    def of(self, at_ms: int) -> int | None:
        """The number of the piece that an instant is in; None where it is outside."""
        number = bisect_right(self.bounds_ms, at_ms) - 1
        return number if 0 <= number < len(self) else None

    def parts(self, begin_ms: int, end_ms: int) -> Iterator[tuple[int, int]]:
        """A span by pieces: their numbers, and how much of each it covers, in milliseconds."""
        number = max(0, bisect_right(self.bounds_ms, begin_ms) - 1)
        while number < len(self) and self.bounds_ms[number] < end_ms:
            low, high = self.bounds_ms[number], self.bounds_ms[number + 1]
            covered = min(end_ms, high) - max(begin_ms, low)
            if covered > 0:
                yield number, covered
            number += 1


def buckets(since_ms: int, until_ms: int) -> Buckets:
    """Hours of up to two days, weeks of more than 120 days, else days."""
    span_ms = until_ms - since_ms
    unit: Unit = "hour" if span_ms <= _MOST_HOURS_MS else "day" if span_ms <= _MOST_DAYS_MS else "week"
    inner = [at_ms for at_ms in _borders(unit, since_ms, until_ms) if since_ms < at_ms < until_ms]
    return Buckets(unit, (since_ms, *inner, until_ms))


def _borders(unit: Unit, since_ms: int, until_ms: int) -> Iterator[int]:
    if unit == "hour":
        yield from range(since_ms // _HOUR_MS * _HOUR_MS, until_ms, _HOUR_MS)
        return
    day = datetime.fromtimestamp(since_ms / 1000, UTC).date()
    step = timedelta(days=1 if unit == "day" else 7)
    at_ms = since_ms
    while at_ms < until_ms:
        day += step
        at_ms = round(datetime.combine(day, datetime.min.time(), UTC).timestamp() * 1000)
        yield at_ms
