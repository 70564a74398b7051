"""A time in hours, days or weeks."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.history.report.buckets import buckets
from tests.support.report_figures import DAY_MS, HOUR_MS, MONDAY_MS


def utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


def test_a_day_is_cut_into_hours() -> None:
    found = buckets(MONDAY_MS + 600_000, MONDAY_MS + 3 * HOUR_MS)
    assert found.unit == "hour"
    assert [(at_ms - MONDAY_MS) // 60_000 for at_ms in found.bounds_ms] == [10, 60, 120, 180]


def test_a_month_is_cut_at_midnight() -> None:
    found = buckets(MONDAY_MS + 5 * HOUR_MS, MONDAY_MS + 30 * DAY_MS)
    assert (found.unit, len(found)) == ("day", 30)
    inner = [datetime.fromtimestamp(at_ms / 1000).astimezone() for at_ms in found.bounds_ms[1:-1]]
    assert {(at.hour, at.minute) for at in inner} == {(0, 0)}


def test_a_year_is_cut_into_weeks() -> None:
    found = buckets(MONDAY_MS, MONDAY_MS + 364 * DAY_MS)
    assert found.unit == "week"
    assert 52 <= len(found) <= 53


@given(st.integers(0, 400 * DAY_MS), st.integers(1, 500 * DAY_MS))
def test_pieces_follow_each_other_and_fill_the_time(begin_ms: int, length_ms: int) -> None:
    since_ms = MONDAY_MS + begin_ms
    found = buckets(since_ms, since_ms + length_ms)
    bounds = list(found.bounds_ms)
    assert (bounds[0], bounds[-1]) == (since_ms, since_ms + length_ms)
    assert bounds == sorted(set(bounds))
    assert sum(ms for _, ms in found.parts(since_ms, since_ms + length_ms)) == length_ms


@given(st.integers(0, 3 * DAY_MS), st.integers(0, 3 * DAY_MS))
def test_a_span_by_pieces_is_the_span_within_the_time(one_ms: int, other_ms: int) -> None:
    found = buckets(MONDAY_MS + DAY_MS, MONDAY_MS + 2 * DAY_MS)
    begin_ms, end_ms = sorted((MONDAY_MS + one_ms, MONDAY_MS + other_ms))
    within_ms = max(0, min(end_ms, found.bounds_ms[-1]) - max(begin_ms, found.bounds_ms[0]))
    parts = list(found.parts(begin_ms, end_ms))
    assert sum(ms for _, ms in parts) == within_ms
    assert all(found.of(max(begin_ms, found.bounds_ms[number])) == number for number, _ in parts)
