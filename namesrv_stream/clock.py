"""Clocks; the only module that reads the wall clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time that tests can replace."""

    def now_ms(self) -> int:
        """Return the wall clock in epoch milliseconds; it may jump."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; they never decrease, and stop while the machine sleeps."""


def until_multiple_ms(clock: Clock, interval_ms: int) -> int:
    """Return the milliseconds until the wall clock is a multiple of an interval: more than 0, at most the interval.

    All callers then wake at the same moments, on all machines with synchronized clocks.
    """
    return interval_ms - clock.now_ms() % interval_ms


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
