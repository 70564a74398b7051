"""Delays between failed attempts."""

from namesrv_stream.client import BackOff


def test_delays_double_up_to_the_limit() -> None:
    back_off = BackOff(first_ms=100, max_ms=500, jitter=0)
    assert [back_off.next_delay_ms() for _ in range(5)] == [100, 200, 400, 500, 500]


def test_success_resets_the_delay() -> None:
    back_off = BackOff(first_ms=100, max_ms=500, jitter=0)
    back_off.next_delay_ms()
    back_off.next_delay_ms()
    back_off.reset()
    assert back_off.next_delay_ms() == 100


def test_jitter_only_shortens() -> None:
    delays = []
    for _ in range(200):
        delays.append(BackOff(first_ms=1_000, max_ms=1_000, jitter=0.2).next_delay_ms())
    assert min(delays) >= 800
    assert max(delays) <= 1_000
    assert len(set(delays)) > 1


def test_many_failures_do_not_overflow_the_delay() -> None:
    back_off = BackOff(first_ms=100, max_ms=10_000, jitter=0)
    back_off.failures = 100_000
    assert back_off.next_delay_ms() == 10_000
