"""Rows of ``route_changes`` between offsets, some at a time, and no file read in vain."""

from pathlib import Path

import pytest

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.streaming.history.changes_step import unseen_partitions
from namesrv_stream.tables.changes_source import ChangesSource
from namesrv_stream.tables.history_mark import HistoryMark
from namesrv_stream.tables.schema.rows import decode_changes
from namesrv_stream.tables.storage import Folder
from tests.support.builders import RW, a_registration
from tests.support.tables import TablesOfLog

_KINDS = frozenset({ChangeKind.QUEUE_DATA, ChangeKind.BROKER_LIVE})


@pytest.fixture
def tables(tmp_path: Path) -> TablesOfLog:
    """Ten registrations, a commit each, each of 20 new topics."""
    made = TablesOfLog(tmp_path)
    for number in range(10):
        topics = {f"t{number}-{i}": RW for i in range(20)}
        made.log.register(a_registration(topics=topics, registration_hash=f"h{number}"), after_ms=1_000)
        made.commit()
    return made


def _source(tables: TablesOfLog) -> ChangesSource:
    source = ChangesSource.open(tables.storage)
    assert source is not None
    return source


def _expected(tables: TablesOfLog, begin: int, end: int) -> list[RouteChange]:
    return [c for c in tables.log.output.changes if begin <= c.offset < end and c.kind in _KINDS]


def test_without_a_table_there_is_no_source(tmp_path: Path) -> None:
    assert ChangesSource.open(Folder(tmp_path)) is None


def test_rows_of_the_wanted_kinds_between_the_offsets_come_in_log_order(tables: TablesOfLog) -> None:
    rows, reached = _source(tables).rows(_KINDS, {0: 3}, {0: 8}, {}, 1_000_000)
    assert decode_changes(rows) == _expected(tables, 3, 8)
    assert reached == {0: 8}


def test_more_rows_than_the_limit_come_in_steps_of_whole_records(tables: TablesOfLog) -> None:
    source, begin, steps = _source(tables), {0: 0}, 0
    found: list[RouteChange] = []
    while begin != {0: 10}:
        rows, begin = source.rows(_KINDS, begin, {0: 10}, {}, 50)
        found += decode_changes(rows)
        assert rows.num_rows <= 50
        steps += 1
    assert found == _expected(tables, 0, 10)
    assert steps > 4


def test_a_record_of_more_rows_than_the_limit_comes_whole(tables: TablesOfLog) -> None:
    rows, reached = _source(tables).rows(_KINDS, {0: 4}, {0: 10}, {}, 3)
    assert decode_changes(rows) == _expected(tables, 4, 5)
    assert reached == {0: 5}


def test_files_of_before_are_not_read(tables: TablesOfLog) -> None:
    newest = tables.log.now_ms
    for path in sorted(tables.dir.glob("route_changes/*.parquet"), key=lambda p: p.stat().st_mtime_ns)[:-1]:
        path.unlink()
    rows, _ = _source(tables).rows(_KINDS, {0: 9}, {0: 10}, {0: newest}, 1_000_000)
    assert decode_changes(rows) == _expected(tables, 9, 10)


def test_a_table_that_has_seen_all_misses_nothing(tables: TablesOfLog) -> None:
    source = _source(tables)
    assert unseen_partitions(HistoryMark("t-opic", source.changes_id, {0: 10}), source) == []
    assert unseen_partitions(HistoryMark(), source) == []


def test_a_table_of_changes_that_were_made_anew_has_to_catch_up(tables: TablesOfLog) -> None:
    assert unseen_partitions(HistoryMark("t-opic", "another", {0: 10}), _source(tables)) == [0]
