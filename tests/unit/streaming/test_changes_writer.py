"""Rows are committed once, and progress without rows."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from namesrv_stream.route.events import TopicDeleted
from namesrv_stream.snapshot import read_tables
from namesrv_stream.streaming.changes_writer import ChangesWriter
from namesrv_stream.tables import ROUTE_CHANGES, app_id, decode_changes, table_path
from tests.support.builders import S1, a_registration
from tests.support.tables import TOPIC_ID, TablesOfLog


def test_a_batch_delivered_twice_is_written_once(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    assert tables.commit() > 0
    rows, offsets = tables.rows_from(0), {0: tables.log.state.next_offset}
    assert tables.writer.write(rows, offsets, 7).num_rows == 0
    assert tables.new_writer().write(rows, offsets, 7).num_rows == 0
    assert decode_changes(read_tables(tables.dir).changes) == tables.log.output.changes


def test_a_batch_cut_otherwise_after_a_restart_adds_only_what_is_new(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    new = tables.log.say(TopicDeleted(S1, "TopicTest", None))
    written = tables.new_writer().write(tables.rows_from(0), {0: tables.log.state.next_offset}, 0)
    assert written.num_rows == len(new)
    assert decode_changes(read_tables(tables.dir).changes) == tables.log.output.changes


def test_progress_without_rows_is_a_commit_without_files(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.tick()
    tables.commit()
    table = DeltaTable(table_path(tables.dir, ROUTE_CHANGES))
    assert table.transaction_version(app_id(TOPIC_ID, 0)) == 1
    assert table.file_uris() == []
    assert read_tables(tables.dir).next_offsets == {0: 1}


def test_progress_alone_is_committed_no_more_often_than_asked(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    writer = ChangesWriter(tables.dir, TOPIC_ID, 1, progress_interval_ms=3_600_000)
    tables.log.tick()
    writer.write(tables.rows_from(0), {0: 1}, 0)
    assert writer.committed == {0: 0}
    tables.log.register(a_registration())
    writer.write(tables.rows_from(0), {0: 2}, 1)
    assert writer.committed == {0: 2}


def test_commits_go_on_beside_a_compaction(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    for number in range(5):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
    DeltaTable(table_path(tables.dir, ROUTE_CHANGES)).optimize.compact()
    tables.log.register(a_registration("10.0.1.1:1", broker_name="after"))
    tables.commit()
    rows = read_tables(tables.dir)
    assert decode_changes(rows.changes) == tables.log.output.changes
    assert rows.next_offsets == {0: 6}


def test_two_writers_cannot_both_commit_and_the_loser_leaves_no_file(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    assert tables.new_writer().write(tables.rows_from(0), {0: 1}, 9).num_rows > 0
    with pytest.raises(DeltaError, match="Concurrent transaction"):
        tables.commit()
    assert len(list(table_path(tables.dir, ROUTE_CHANGES).glob("*.parquet"))) == 1
    assert decode_changes(read_tables(tables.dir).changes) == tables.log.output.changes
