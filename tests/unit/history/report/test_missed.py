"""Missed heartbeats: by hand, and against going through the gaps one by one."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.history.past import open_history_table
from namesrv_stream.history.report.buckets import buckets
from namesrv_stream.history.report.missed import DayFigures, Heard, day_figures, heard
from namesrv_stream.tables.history_mark import HistoryMark, encode_mark, read_mark
from namesrv_stream.tables.schema.history_columns import HEARTBEAT_MINUTES, HISTORY_SCHEMAS
from tests.support.examples import examples
from tests.support.history_tables import HistoryOfLogs, instant_of
from tests.support.report_figures import DAY_MS, HOUR_MS, MONDAY_MS, a_session
from tests.support.tables import TOPIC_ID, settings_in

MINUTE_MS = 60_000
PIECES = buckets(MONDAY_MS, MONDAY_MS + 4 * HOUR_MS)
SCHEMA = pl.DataFrame(HISTORY_SCHEMAS[HEARTBEAT_MINUTES].empty_table()).schema


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
    """A row of ``heartbeat_minutes``; first and last within the minute."""
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


def day(rows: Sequence[dict[str, Any]], downs_ms: Sequence[int] = (), addr: str = "10.0.0.1:10911") -> DayFigures:
    of_downs = [("c0", "broker-a", addr, down_ms) for down_ms in sorted(downs_ms)]
    schema = {"cluster": pl.String, "broker_name": pl.String, "broker_addr": pl.String, "down_ms": pl.Int64}
    downs = pl.DataFrame(of_downs, schema=schema, orient="row")
    return day_figures(pl.DataFrame(rows, schema=SCHEMA), downs, PIECES)


def sums(figures: DayFigures) -> tuple[int, int, int | None]:
    """Missed, in how many silences, the longest."""
    row = figures.of.row(0, named=True)
    return row["missed"] or 0, row["silences"] or 0, row["longest_ms"]


@pytest.mark.parametrize(
    ("gap_ms", "missed"), [(30_000, 0), (44_999, 0), (45_000, 1), (60_000, 1), (74_999, 1), (75_000, 2), (115_000, 3)]
)
def test_as_many_are_missed_as_would_have_fitted(gap_ms: int, missed: int) -> None:
    rows = [a_minute(n, 30_000) for n in range(5)] + [a_minute(7, gap_ms)]
    assert sums(day(rows))[0] == missed


def test_the_usual_gap_is_the_median_of_the_days_longest_gaps() -> None:
    rows = [a_minute(n, gap) for n, gap in enumerate([1_000, 1_100, 1_100, 1_200, 9_900])]
    found = day(rows)
    assert found.of["usual_ms"].to_list() == [1_100]
    assert sums(found) == (8, 1, 9_900)


def test_a_silence_in_which_the_session_ended_is_an_absence() -> None:
    rows = [a_minute(n, 30_000) for n in range(5)] + [a_minute(20, 600_000, first_ms=5_000)]
    end_ms = MONDAY_MS + 20 * MINUTE_MS + 5_000
    assert sums(day(rows, [end_ms - 300_000]))[0] == 0
    assert sums(day(rows, [end_ms - 600_000]))[0] == 0
    assert sums(day(rows, [end_ms - 600_001]))[0] == 19
    assert sums(day(rows, [end_ms + 1]))[0] == 19


def test_another_brokers_end_does_not_matter() -> None:
    rows = [a_minute(n, 30_000) for n in range(5)] + [a_minute(20, 600_000)]
    assert sums(day(rows, [MONDAY_MS + 15 * MINUTE_MS], addr="10.0.0.9:10911"))[0] == 19


def test_each_server_is_a_listener_of_its_own() -> None:
    rows = [a_minute(n, 30_000, server_id=s) for n in range(5) for s in ("ns1", "ns2")]
    rows.append(a_minute(7, 90_000, server_id="ns2"))
    found = day(rows).of.sort("server_id")
    assert found["missed"].to_list() == [None, 2]
    assert found["heartbeats"].to_list() == [10, 12]


def test_they_are_counted_in_the_hour_in_which_the_silence_ended() -> None:
    rows = [a_minute(n, 30_000) for n in range(5)] + [a_minute(61, 90_000)]
    by_bucket = day(rows).by_bucket.group_by("bucket").sum().sort("bucket")
    assert by_bucket["missed"].to_list() == [0, 2]
    assert by_bucket["heartbeats"].to_list() == [10, 2]


def test_a_first_hearing_has_no_gap() -> None:
    assert sums(day([a_minute(0, None)])) == (0, 0, None)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 239), st.integers(1, 200_000)), min_size=1, max_size=40, unique_by=lambda g: g[0]
    ),
    st.sets(st.integers(0, 4 * HOUR_MS), max_size=5),
)
def test_they_are_what_going_through_the_gaps_says(gaps: list[tuple[int, int]], downs: set[int]) -> None:
    usual = median(gap for _, gap in gaps)
    downs_ms = {MONDAY_MS + down for down in downs}
    missed = []
    for number, gap in gaps:
        end_ms = MONDAY_MS + number * MINUTE_MS + 5_000
        is_absence = any(end_ms - gap <= down_ms <= end_ms for down_ms in downs_ms)
        # Only the last end before the gap's end is looked at: an earlier one within it implies that one is, too.
        if gap >= 1.5 * usual and not is_absence:
            missed.append(math.floor(gap / usual + 0.5) - 1)
    found = sums(day([a_minute(n, gap) for n, gap in gaps], sorted(downs_ms)))
    assert found[:2] == (sum(missed), len(missed))


def table_of(data_dir: Path, rows: Sequence[dict[str, Any]], reaches_ms: int) -> None:
    mark = encode_mark(HistoryMark(TOPIC_ID, "", {0: 1}, {0: reaches_ms}))
    write_deltalake(
        (settings_in(data_dir).data.tables_dir / HEARTBEAT_MINUTES),
        pa.Table.from_pylist(list(rows), HISTORY_SCHEMAS[HEARTBEAT_MINUTES]),
        partition_by=["day"],
        commit_properties=CommitProperties(custom_metadata={"userMetadata": mark}),
    )


def test_days_are_added_up(tmp_path: Path) -> None:
    a_day = DAY_MS // MINUTE_MS
    rows = [a_minute(n, 30_000) for n in [*range(10), *range(a_day, a_day + 10)]]
    rows += [a_minute(20, 60_000), a_minute(a_day + 20, 120_000)]
    table_of(tmp_path, rows, MONDAY_MS + 2 * DAY_MS)
    found = read(tmp_path, MONDAY_MS, MONDAY_MS + 2 * DAY_MS)
    (of,) = found.of
    assert (of.heartbeats, of.missed, of.silences, of.longest_ms, of.usual_ms) == (44, 4, 2, 120_000, 30_000)
    assert sum(found.heartbeats) == 44
    assert sum(found.missed) == 4
    assert len(found.minutes) == 22
    assert (found.begin_ms, found.end_ms) == (MONDAY_MS, MONDAY_MS + 2 * DAY_MS)


def test_nothing_outside_of_the_time_is_counted(tmp_path: Path) -> None:
    table_of(tmp_path, [a_minute(n, 30_000) for n in range(60)], MONDAY_MS + HOUR_MS)
    found = read(tmp_path, MONDAY_MS + 10 * MINUTE_MS, MONDAY_MS + 19 * MINUTE_MS)
    assert sum(found.heartbeats) == 20


def test_it_is_said_from_when_to_when_heartbeats_are_known(tmp_path: Path) -> None:
    table_of(tmp_path, [a_minute(n, 30_000) for n in range(60, 90)], MONDAY_MS + 2 * HOUR_MS)
    found = read(tmp_path, MONDAY_MS, MONDAY_MS + DAY_MS)
    assert (found.begin_ms, found.end_ms) == (MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * HOUR_MS)


def test_of_a_real_log_it_counts_what_was_heard(morning: HistoryOfLogs) -> None:
    begin_ms = morning.logs[0].records[0].at_ms
    found = heard(
        open_history_table(morning.settings, HEARTBEAT_MINUTES), {}, [], buckets(begin_ms, begin_ms + 3 * HOUR_MS)
    )
    assert {(of.key.broker_name, of.server_id) for of in found.of} == {
        ("broker-a", "s1"),
        ("broker-b", "s1"),
        ("loner", "s1"),
    }
    assert sum(of.heartbeats for of in found.of) == sum(found.heartbeats)


def read(data_dir: Path, since_ms: int, until_ms: int) -> Heard:
    table = open_history_table(settings_in(data_dir), HEARTBEAT_MINUTES)
    mark = read_mark(table.storage)
    assert mark is not None
    return heard(table, mark.at_ms, [a_session(since_ms)], buckets(since_ms, until_ms))
