"""Division of a period into hours, days or weeks."""

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.history.database import Row
from tests.support.examples import examples
from tests.support.report_figures import DAY_MS, HOUR_MS, MONDAY_MS, a_session, period_of, register_heartbeats


def segments(since_ms: int, until_ms: int) -> list[Row]:
    database = period_of([a_session(since_ms - 1)], since_ms, until_ms)
    register_heartbeats(database)
    return database.rows("segments", objective=None, heard_from_ms=None, heard_to_ms=None)


def test_day_is_divided_into_hours() -> None:
    found = segments(MONDAY_MS + 600_000, MONDAY_MS + 3 * HOUR_MS)
    assert {row["unit"] for row in found} == {"hour"}
    assert [((row["begin_ms"] - MONDAY_MS) // 60_000, row["end_ms"] - MONDAY_MS) for row in found] == [
        (10, HOUR_MS),
        (60, 2 * HOUR_MS),
        (120, 3 * HOUR_MS),
    ]


def test_month_is_divided_at_midnight() -> None:
    found = segments(MONDAY_MS + 5 * HOUR_MS, MONDAY_MS + 30 * DAY_MS)
    assert (found[0]["unit"], len(found)) == ("day", 30)
    inner = [datetime.fromtimestamp(row["begin_ms"] / 1000, UTC) for row in found[1:]]
    assert {(at.hour, at.minute) for at in inner} == {(0, 0)}


def test_year_is_divided_into_weeks() -> None:
    found = segments(MONDAY_MS, MONDAY_MS + 364 * DAY_MS)
    assert (found[0]["unit"], len(found)) == ("week", 52)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 400 * DAY_MS), st.integers(1, 500 * DAY_MS))
def test_segments_follow_each_other_and_fill_the_time(begin_ms: int, length_ms: int) -> None:
    since_ms = MONDAY_MS + begin_ms
    found = segments(since_ms, since_ms + length_ms)
    begins, ends = [row["begin_ms"] for row in found], [row["end_ms"] for row in found]
    assert (begins[0], ends[-1]) == (since_ms, since_ms + length_ms)
    assert begins[1:] == ends[:-1]
    assert begins == sorted(set(begins))
    assert [row["known_ms"] for row in found] == [row["end_ms"] - row["begin_ms"] for row in found]
