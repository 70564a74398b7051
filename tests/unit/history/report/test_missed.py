"""Missed heartbeats, against values computed by hand and gap by gap."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.history.answer import Window
from namesrv_stream.history.database import TABLE_VIEWS, Database, Past, Row
from namesrv_stream.history.report.figures import read_heartbeats
from namesrv_stream.history.sessions import sessions_between
from namesrv_stream.tables.history_files import HistoryMark, encode_mark
from namesrv_stream.tables.layout import HEARTBEAT_MINUTES, HISTORY_SCHEMAS
from tests.support.builders import Log
from tests.support.examples import examples
from tests.support.history_tables import HistoryOfLogs, instant_of
from tests.support.report_figures import DAY_MS, HOUR_MS, MONDAY_MS, a_session, period_of, sessions_table
from tests.support.tables import TOPIC_ID

MINUTE_MS = 60_000
UNTIL = MONDAY_MS + 4 * HOUR_MS


def a_minute(
    number: int,
    gap_ms: int | None,
    *,
    first_ms: int = 5_000,
    last_ms: int | None = None,
    heartbeats: int = 2,
    server_id: str = "ns1",
    addr: str = "10.0.0.1:10911",
) -> dict[str, Any]:
    """Return a row of ``heartbeat_minutes``; first and last heartbeat are within the minute."""
    begin_ms = MONDAY_MS + number * MINUTE_MS
    return {
        "cluster": "c0",
        "broker_name": "broker-a",
        "broker_addr": addr,
        "server_id": server_id,
        "minute": instant_of(begin_ms),
        "heartbeats": heartbeats,
        "gap_p50_ms": gap_ms,
        "gap_p99_ms": gap_ms,
        "gap_max_ms": gap_ms,
        "first_at": instant_of(begin_ms + first_ms),
        "last_at": instant_of(begin_ms + (first_ms if last_ms is None else last_ms)),
        "partition": 0,
        "day": instant_of(begin_ms).date(),
    }


def database_of(
    rows: Sequence[Row], sessions: Sequence[Row], since_ms: int = MONDAY_MS, until_ms: int = UNTIL
) -> Database:
    database = period_of(sessions, since_ms, until_ms)
    database.register(
        f"{HEARTBEAT_MINUTES}_files", pa.Table.from_pylist(list(rows), HISTORY_SCHEMAS[HEARTBEAT_MINUTES])
    )
    database.execute(next(view for view in TABLE_VIEWS if f"VIEW {HEARTBEAT_MINUTES} " in view))
    return database


def day(rows: Sequence[Row], downs_ms: Sequence[int] = (), addr: str = "10.0.0.1:10911") -> list[Row]:
    """Return the sums of Monday's rows, with sessions of the broker that ended at these times."""
    database = database_of(rows, [a_session(MONDAY_MS, down_ms, addr=addr) for down_ms in downs_ms])
    return database.rows("heartbeats_of_day", day=instant_of(MONDAY_MS).date(), cluster=None)


def sums(rows: Sequence[Row]) -> tuple[int, int, int | None]:
    """Return missed heartbeats, number of silences, and the longest one."""
    longest = [row["longest_ms"] for row in rows if row["longest_ms"] is not None]
    return sum(row["missed"] for row in rows), sum(row["silences"] for row in rows), max(longest, default=None)


@pytest.mark.parametrize(
    ("gap_ms", "missed"), [(30_000, 0), (44_999, 0), (45_000, 1), (60_000, 1), (74_999, 1), (75_000, 2), (115_000, 3)]
)
def test_missed_heartbeats_are_those_that_fit_into_the_gap(gap_ms: int, missed: int) -> None:
    rows = [a_minute(n, 30_000) for n in range(5)] + [a_minute(7, gap_ms)]
    assert sums(day(rows))[0] == missed


def test_the_usual_gap_is_the_median_of_the_days_longest_gaps() -> None:
    rows = [a_minute(n, gap) for n, gap in enumerate([1_000, 1_100, 1_100, 1_200, 9_900])]
    found = day(rows)
    assert {row["usual_ms"] for row in found} == {1_100}
    assert sums(found) == (8, 1, 9_900)


def test_silence_that_ended_the_session_is_an_absence() -> None:
    rows = [a_minute(n, 30_000) for n in range(5)] + [a_minute(20, 600_000, first_ms=5_000)]
    end_ms = MONDAY_MS + 20 * MINUTE_MS + 5_000
    assert sums(day(rows, [end_ms - 300_000]))[0] == 0
    assert sums(day(rows, [end_ms - 600_000]))[0] == 0
    assert sums(day(rows, [end_ms - 600_001]))[0] == 19
    assert sums(day(rows, [end_ms + 1]))[0] == 19


def test_another_brokers_end_does_not_matter() -> None:
    rows = [a_minute(n, 30_000) for n in range(5)] + [a_minute(20, 600_000)]
    assert sums(day(rows, [MONDAY_MS + 15 * MINUTE_MS], addr="10.0.0.9:10911"))[0] == 19


def test_missed_heartbeats_are_counted_per_server() -> None:
    rows = [a_minute(n, 30_000, server_id=s) for n in range(5) for s in ("ns1", "ns2")]
    rows.append(a_minute(7, 90_000, server_id="ns2"))
    found = sorted(day(rows), key=lambda row: row["server_id"])
    assert [(row["missed"], row["heartbeats"]) for row in found] == [(0, 10), (2, 12)]


def test_missed_heartbeats_count_in_the_hour_in_which_the_silence_ended() -> None:
    rows = [a_minute(n, 30_000) for n in range(5)] + [a_minute(61, 90_000)]
    found = sorted(day(rows), key=lambda row: row["number"])
    assert [(row["number"], row["missed"], row["heartbeats"]) for row in found] == [(1, 0, 10), (2, 2, 2)]


def test_a_first_heartbeat_has_no_gap() -> None:
    assert sums(day([a_minute(0, None)])) == (0, 0, None)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 239), st.integers(1, 200_000)), min_size=1, max_size=40, unique_by=lambda g: g[0]
    ),
    st.sets(st.integers(0, 4 * HOUR_MS), max_size=5),
)
def test_missed_heartbeats_equal_those_counted_gap_by_gap(gaps: list[tuple[int, int]], downs: set[int]) -> None:
    usual = median(gap for _, gap in gaps)
    downs_ms = {MONDAY_MS + down for down in downs}
    missed = []
    for number, gap in gaps:
        end_ms = MONDAY_MS + number * MINUTE_MS + 5_000
        is_absence = any(end_ms - gap <= down_ms <= end_ms for down_ms in downs_ms)
        # The product checks only the last end before the end of the gap: if an earlier one is within the gap, so is it.
        if gap >= 1.5 * usual and not is_absence:
            missed.append(math.floor(gap / usual + 0.5) - 1)
    found = sums(day([a_minute(n, gap) for n, gap in gaps], sorted(downs_ms)))
    assert found[:2] == (sum(missed), len(missed))


def past_of(data_dir: Path, rows: Sequence[Row], reaches_ms: int) -> Past:
    """Tables of one broker that is up from Monday on, with the given minutes instead of its own."""
    tables = HistoryOfLogs(data_dir, Log())
    tables.write_all()
    mark = encode_mark(HistoryMark(TOPIC_ID, "", {0: 1}, {0: reaches_ms}))
    write_deltalake(
        tables.settings.data.tables_dir / HEARTBEAT_MINUTES,
        pa.Table.from_pylist(list(rows), HISTORY_SCHEMAS[HEARTBEAT_MINUTES]),
        mode="overwrite",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": mark}),
    )
    return Past(tables.settings)


def read(past: Past, since_ms: int, until_ms: int) -> list[Row]:
    """Return the sums of the days of a period."""
    window = Window(since_ms, until_ms)
    past.set_period(sessions_table([a_session(since_ms)]), window)
    read_heartbeats(past, window, None)
    return past.rows("name_servers")


def test_days_are_added_up(tmp_path: Path) -> None:
    a_day = DAY_MS // MINUTE_MS
    rows = [a_minute(n, 30_000) for n in [*range(10), *range(a_day, a_day + 10)]]
    rows += [a_minute(20, 60_000), a_minute(a_day + 20, 120_000)]
    past = past_of(tmp_path, rows, MONDAY_MS + 2 * DAY_MS)
    (server,) = read(past, MONDAY_MS, MONDAY_MS + 2 * DAY_MS)
    assert (server["heartbeats"], server["missed"], server["brokers"], server["missing_brokers"]) == (44, 4, 1, 1)
    (of,) = past.rows("missed")
    assert (of["heartbeats"], of["missed"], of["silences"], of["longest_ms"], of["usual_ms"]) == (
        *(44, 4, 2),
        *(120_000, 30_000),
    )


def test_nothing_outside_the_period_is_counted(tmp_path: Path) -> None:
    past = past_of(tmp_path, [a_minute(n, 30_000) for n in range(60)], MONDAY_MS + HOUR_MS)
    (server,) = read(past, MONDAY_MS + 10 * MINUTE_MS, MONDAY_MS + 19 * MINUTE_MS)
    assert server["heartbeats"] == 20


def test_period_with_known_heartbeats_is_reported(tmp_path: Path) -> None:
    past = past_of(tmp_path, [a_minute(n, 30_000) for n in range(60, 90)], MONDAY_MS + 2 * HOUR_MS)
    assert past.heartbeat_window(Window(MONDAY_MS, MONDAY_MS + DAY_MS)) == Window(
        MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * HOUR_MS
    )
    assert past.heartbeat_window(Window(MONDAY_MS, MONDAY_MS + HOUR_MS)) is None


def test_heartbeats_of_a_real_log_are_counted(morning: HistoryOfLogs) -> None:
    begin_ms = morning.logs[0].records[0].at_ms
    past, window = Past(morning.settings), Window(begin_ms, begin_ms + 3 * HOUR_MS)
    past.set_period(sessions_between(past, window), window)
    read_heartbeats(past, window, None)
    (server,) = past.rows("name_servers")
    assert (server["server_id"], server["brokers"]) == ("s1", 4)
    segments = past.rows("segments", objective=None, heard_from_ms=window.since_ms, heard_to_ms=window.until_ms)
    assert server["heartbeats"] == sum(row["heartbeats"] for row in segments) > 1_000
