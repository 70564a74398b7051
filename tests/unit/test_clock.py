"""Clocks."""

import pytest

from namesrv_stream.clock import SystemClock, until_multiple_ms
from tests.support.clocks import ManualClock


def test_the_system_clock_counts_epoch_milliseconds() -> None:
    clock = SystemClock()
    assert 1_600_000_000_000 < clock.now_ms() < 10_000_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()


@pytest.mark.parametrize(("now_ms", "expected"), [(10_000, 500), (10_001, 499), (10_499, 1)])
def test_a_wait_ends_at_a_multiple_of_the_interval(now_ms: int, expected: int) -> None:
    assert until_multiple_ms(ManualClock(now_ms=now_ms), 500) == expected
