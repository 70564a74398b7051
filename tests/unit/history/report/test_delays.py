"""Delays, computed from columns of the tables."""

import math
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.history.answer import Window
from namesrv_stream.history.database import Row, open_changes
from namesrv_stream.history.report.figures import changed_records
from namesrv_stream.tables.job_commits import JobCommit, job_commits
from namesrv_stream.tables.layout import ROUTE_CHANGES
from tests.support.builders import BEGIN_MS, a_registration
from tests.support.examples import examples
from tests.support.report_figures import MONDAY_MS, RECORDS, a_session, ask_delays
from tests.support.tables import TablesOfLog

UNTIL = MONDAY_MS + 10_000_000


def records_of(*records: tuple[int, int, int], is_route: bool = True) -> pa.Table:
    """Return a table of records, given as (partition, offset, at_ms)."""
    rows = [dict(zip(RECORDS.names, (*record, is_route), strict=True)) for record in records]
    return pa.Table.from_pylist(rows, RECORDS)


def commit_delays(records: pa.Table, commits: list[JobCommit]) -> Row:
    return ask_delays([], UNTIL, records=records, commits=commits)["commit"]


def spread(durations_ms: list[int]) -> Row:
    """Return the spread of silences of these lengths."""
    down_ms = MONDAY_MS + 1_000_000
    sessions = [a_session(MONDAY_MS, down_ms, "disconnected", last_heard_ms=down_ms - ms) for ms in durations_ms]
    return ask_delays(sessions, UNTIL)["silence"]


def test_delay_of_an_expiry_is_the_silence_beyond_the_timeout() -> None:
    sessions = [
        a_session(MONDAY_MS, MONDAY_MS + 500_000, last_heard_ms=MONDAY_MS + 379_400, timeout_ms=120_000),
        a_session(MONDAY_MS, MONDAY_MS + 500_000, last_heard_ms=MONDAY_MS + 469_000, timeout_ms=30_000),
    ]
    expiry = ask_delays(sessions, UNTIL)["expiry"]
    assert (expiry["count"], expiry["p50_ms"], expiry["max_ms"]) == (2, 600, 1_000)


def test_broker_without_a_timeout_has_the_default_of_that_time() -> None:
    sessions = [
        a_session(MONDAY_MS, MONDAY_MS + at_ms, last_heard_ms=MONDAY_MS + at_ms - 61_000)
        for at_ms in (100_000, 300_000)
    ]
    expiry = ask_delays(sessions, UNTIL, timeouts=[(0, 50_000), (MONDAY_MS + 200_000, 60_000)])["expiry"]
    assert (expiry["count"], expiry["p50_ms"], expiry["max_ms"]) == (2, 1_000, 11_000)


@pytest.mark.parametrize("cause", ["unregistered", "disconnected", "server_lost"])
def test_broker_that_did_not_expire_has_no_delay(cause: str) -> None:
    session = a_session(MONDAY_MS, MONDAY_MS + 500_000, cause, last_heard_ms=MONDAY_MS)
    assert ask_delays([session], UNTIL)["expiry"]["count"] == 0


def test_a_record_is_in_the_table_with_the_first_commit_above_it() -> None:
    commits = [JobCommit(1_000, {0: 10, 1: 5}), JobCommit(2_000, {0: 12}), JobCommit(3_000, {0: 20, 1: 6})]
    found = commit_delays(records_of((0, 10, 1_400), (0, 11, 1_900), (0, 12, 2_500), (1, 5, 2_990)), commits)
    assert (found["count"], found["mean_ms"]) == (4, (10 + 100 + 500 + 600) / 4)
    assert (found["p50_ms"], found["max_ms"]) == (100, 600)


def test_records_committed_before_the_known_commits_are_ignored() -> None:
    commits = [JobCommit(1_000, {0: 10}), JobCommit(2_000, {0: 12})]
    assert commit_delays(records_of((0, 3, 500), (0, 12, 1_900), (1, 0, 700)), commits)["count"] == 0


def behind(records: pa.Table, *commits: JobCommit, until_ms: int = UNTIL) -> tuple[int | None, float | None]:
    found = ask_delays([], until_ms, records=records, commits=commits)["behind"]
    return found["behind_ms"], found["behind_share"]


def test_the_tables_are_behind_from_a_change_to_its_commit() -> None:
    at = MONDAY_MS
    commits = [JobCommit(at, {0: 10, 1: 10}), JobCommit(at + 300, {0: 12}), JobCommit(at + 450, {1: 11})]
    # 100 to 300, 200 to 450 and 150 to 300: together 100 to 450.
    records = records_of((0, 10, at + 100), (1, 10, at + 200), (0, 11, at + 150))
    assert behind(records, *commits, until_ms=at + 1_000) == (350, 0.35)


def test_changes_of_other_kinds_than_routes_and_unknown_commits_are_ignored() -> None:
    at = MONDAY_MS
    commits = [JobCommit(at, {0: 10}), JobCommit(at + 300, {0: 12})]
    assert behind(records_of((0, 10, at + 100), is_route=False), *commits) == (0, 0.0)
    assert behind(records_of((0, 3, at - 500)), *commits) == (0, 0.0)
    assert behind(records_of((0, 10, at + 100))) == (None, None)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 2_000)), min_size=1, max_size=30),
    st.integers(0, 3),
)
def test_delays_equal_those_computed_commit_by_commit(steps: list[tuple[int, int]], forgotten: int) -> None:
    at_ms, offset = 0, 0
    commits, records, expected = [], [], []
    for number, (count, after_ms) in enumerate(steps):
        at_ms += after_ms
        for n in range(count):
            records.append((0, offset + n, at_ms - 7 * n))
            if number > forgotten:
                expected.append(7 * n)
        offset += count
        commits.append(JobCommit(at_ms, {0: offset}))
    found = commit_delays(records_of(*records), commits[forgotten:])
    assert (found["count"], found["max_ms"]) == (len(expected), max(expected, default=None))
    assert (found["mean_ms"] or 0) * len(expected) == pytest.approx(sum(expected))


def test_commits_are_read_from_deltas_log(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    tables.log.tick(1_000)
    tables.log.unregister(a_registration())
    tables.commit()
    changes = open_changes(tables.settings)
    found = job_commits(changes, 0)
    assert [c.next_offsets for c in found] == [{0: 1}, {0: 3}]
    stamps = [
        action["commitInfo"]["timestamp"]
        for path in sorted((tables.dir / ROUTE_CHANGES).glob("_delta_log/*.json"))
        for action in map(orjson.loads, path.read_bytes().splitlines())
        if "commitInfo" in action
    ]
    assert [c.at_ms for c in found] == stamps[-2:]
    records = changed_records(changes, Window(BEGIN_MS - 1, tables.log.now_ms))
    assert sorted(records["offset"].to_pylist()) == [0, 2]
    assert records["is_route"].to_pylist() == [True, True]
    delays = commit_delays(records, found)
    assert (delays["count"], delays["max_ms"]) == (1, found[1].at_ms - tables.log.now_ms)


def test_only_the_requested_part_of_the_log_is_read(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    for _ in range(3):
        tables.log.register(a_registration(), after_ms=1_000)
        tables.commit()
    whole = job_commits(open_changes(tables.settings), 0)
    assert job_commits(open_changes(tables.settings), whole[-1].at_ms) == whole[-1:]


def test_spread_has_count_mean_and_nearest_rank_quantiles() -> None:
    found = spread(list(range(1, 101)))
    figures = ("count", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")
    assert [found[key] for key in figures] == [100, 50.5, 50, 95, 99, 100]
    assert [spread([7])[key] for key in figures] == [1, 7, 7, 7, 7, 7]
    assert [spread([])[key] for key in figures] == [0, None, None, None, None, None]


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(-100, 10_000), min_size=1))
def test_quantiles_of_any_durations_are_nearest_rank_values(durations: list[int]) -> None:
    found = spread(durations)
    for share, value in ((0.5, found["p50_ms"]), (0.95, found["p95_ms"]), (0.99, found["p99_ms"])):
        assert value == sorted(durations)[math.ceil(share * len(durations)) - 1]
