"""The archive returns the original records, whatever the order of its rows."""

from pathlib import Path
from random import Random

import pyarrow.compute as pc
import pytest

from namesrv_stream.route.fold.step import Record
from namesrv_stream.table_errors import NotInHistory, TableSchemaMismatch
from namesrv_stream.tables.layout import BROKER_EVENTS
from namesrv_stream.tools.replay import log_archive as archive_module
from namesrv_stream.tools.replay.log_archive import ArchivedEvents
from tests.support.builders import Log
from tests.support.history_tables import HistoryOfLogs, write_archive
from tests.support.random_events import append_random_events
from tests.support.table_edits import rewrite_rows
from tests.support.tables import TOPIC_ID


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> HistoryOfLogs:
    """Two partitions with each kind of event, invalid records and a clock that jumps over days."""
    logs = [Log(partition=partition, partitions=2) for partition in (0, 1)]
    for log in logs:
        append_random_events(log, Random(log.state.partition), 400)
        log.now_ms += 86_400_000
        append_random_events(log, Random(log.state.partition + 2), 200)
    return HistoryOfLogs(tmp_path_factory.mktemp("data"), *logs)


@pytest.fixture(scope="module")
def archive(history: HistoryOfLogs) -> ArchivedEvents:
    write_archive(history.settings, [record for log in history.logs for record in log.records], files=4)
    return ArchivedEvents.open(history.settings)


def _read(archive: ArchivedEvents, partition: int, begin: int, end: int) -> list[Record]:
    return [record for batch in archive.batches(partition, begin, end) for record in batch]


def test_records_are_read_back_byte_for_byte_in_the_order_of_offsets(
    history: HistoryOfLogs, archive: ArchivedEvents
) -> None:
    values = {record.value for record in history.logs[0].records}
    assert {b"", b"\xff\xfe no JSON"} <= values
    for partition, log in enumerate(history.logs):
        assert _read(archive, partition, 0, len(log.records)) == log.records
        assert _read(archive, partition, 17, 403) == log.records[17:403]


def test_reading_in_small_steps_returns_the_same_records(
    history: HistoryOfLogs, archive: ArchivedEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {"_SPAN_RECORDS": 100, "_SIZED_RECORDS": 150, "_READ_RECORDS": 40, "_READ_BYTES": 3_000}
    for name, value in {**steps, "_BATCH_RECORDS": 7}.items():
        monkeypatch.setattr(archive_module, name, value)
    log = history.logs[1]
    assert archive.spans(1) == [(0, len(log.records))]
    assert max(len(batch) for batch in archive.batches(1, 3, 500)) == 7
    assert _read(archive, 1, 3, 500) == log.records[3:500]


def test_offset_of_an_instant_is_found_as_by_kafka(history: HistoryOfLogs, archive: ArchivedEvents) -> None:
    log = history.logs[0]
    for record in log.records[::37]:
        first = next(other.offset for other in log.records if other.at_ms >= record.at_ms)
        assert archive.offset_at(0, record.at_ms) == first
    assert archive.offset_at(0, 0) == 0
    assert archive.offset_at(0, max(record.at_ms for record in log.records) + 1) is None


def test_archive_has_its_topic_and_offsets(history: HistoryOfLogs, archive: ArchivedEvents) -> None:
    assert archive.topic_id == TOPIC_ID
    assert [archive.spans(p) for p in (0, 1, 2)] == [[(0, len(log.records))] for log in history.logs] + [[]]


def test_missing_offsets_are_in_no_span(history: HistoryOfLogs, tmp_path: Path) -> None:
    log = history.logs[0]
    own = HistoryOfLogs(tmp_path, log)
    write_archive(own.settings, [*log.records[5:40], *log.records[41:90], *log.records[200:]])
    found = ArchivedEvents.open(own.settings)
    assert found.spans(0) == [(5, 40), (41, 90), (200, len(log.records))]
    with pytest.raises(TableSchemaMismatch, match="has 9 rows of the 10 records 35 to 44 of partition 0"):
        _read(found, 0, 35, 45)


def test_duplicate_rows_are_refused(history: HistoryOfLogs, tmp_path: Path) -> None:
    log = history.logs[0]
    own = HistoryOfLogs(tmp_path, log)
    write_archive(own.settings, log.records)
    write_archive(own.settings, log.records[10:11], files=1)
    with pytest.raises(TableSchemaMismatch, match="rows of the 600 records"):
        _read(ArchivedEvents.open(own.settings), 0, 0, 600)


def test_empty_table_has_no_span(tmp_path: Path) -> None:
    own = HistoryOfLogs(tmp_path, Log())
    write_archive(own.settings, [])
    found = ArchivedEvents.open(own.settings)
    assert found.spans(0) == []
    assert found.offset_at(0, 0) is None


def test_missing_archive_is_reported_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(NotInHistory, match="there is no table broker_events"):
        ArchivedEvents.open(HistoryOfLogs(tmp_path, Log()).settings)


def test_the_error_about_a_damaged_or_missing_file_names_the_table(history: HistoryOfLogs, tmp_path: Path) -> None:
    own = HistoryOfLogs(tmp_path, history.logs[0])
    write_archive(own.settings, history.logs[0].records)
    found = ArchivedEvents.open(own.settings)
    for path in (own.settings.data.tables_dir / BROKER_EVENTS).rglob("*.parquet"):
        path.unlink()
    for ask in (lambda: _read(found, 0, 0, 9), lambda: found.spans(0), lambda: found.offset_at(0, 0)):
        with pytest.raises(TableSchemaMismatch, match="broker_events: cannot be read"):
            ask()


def test_edited_row_is_returned_unchanged(history: HistoryOfLogs, tmp_path: Path) -> None:
    log = history.logs[0]
    own = HistoryOfLogs(tmp_path, log)
    write_archive(own.settings, log.records)
    tables = own.settings.data.tables_dir
    assert rewrite_rows(tables, BROKER_EVENTS, "value", "edited", pc.field("offset") == 7) == 1
    assert _read(ArchivedEvents.open(own.settings), 0, 7, 8) == [log.records[7]._replace(value=b"edited")]
