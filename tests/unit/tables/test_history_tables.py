"""Tables of older versions get new columns, and the history of version 0.1.0 is migrated completely and once."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from namesrv_stream.errors import ConfigError
from namesrv_stream.history.database import Past
from namesrv_stream.history.past_route import route_as_of
from namesrv_stream.table_errors import NotInHistory
from namesrv_stream.tables.change_rows import ROW_SCHEMA
from namesrv_stream.tables.history_files import HistoryMark, commit_metadata, read_mark
from namesrv_stream.tables.history_tables import KEPT, ensure_history_tables
from namesrv_stream.tables.layout import (
    DAY_COLUMNS,
    HISTORY_SCHEMAS,
    ROUTE_ARCHIVE,
    STATISTICS_COLUMNS,
    history_properties,
)
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import BEGIN_MS, Log, a_registration
from tests.support.history_oracle import instant, intervals
from tests.support.history_tables import HistoryOfLogs
from tests.support.history_views import ROUTE_HISTORY, rows_of
from tests.support.released_tables import released_schema
from tests.support.tables import TOPIC_ID, settings_in

_BROKER = a_registration()
_INSTANT = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [*ROW_SCHEMA, pa.field("valid_from", _INSTANT), pa.field("valid_to", _INSTANT), pa.field("from_day", pa.date32())]
)


def _former(tmp_path: Path, log: Log) -> HistoryOfLogs:
    """Tables of version 0.1.0: ``route_changes`` of the job, and the old history tables."""
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    rows = [
        change._asdict()
        | {
            "valid_from": instant(change.at_ms),
            "valid_to": end and instant(end),
            "from_day": datetime.fromtimestamp(change.at_ms / 1000, UTC).date(),
        }
        for change, end in intervals(log.output.changes)
    ]
    mark = CommitProperties(commit_metadata(HistoryMark(TOPIC_ID, "", tables.ends(), {0: log.now_ms})))
    for name in ("route_history", "topic_route_history", "broker_sessions"):
        path = tables.settings.data.tables_dir / name
        path.mkdir()
        properties = history_properties(TOPIC_ID, 1, ("partition", "offset"))
        DeltaTable.create(
            path, _SCHEMA, partition_by=["from_day"], configuration=properties, raise_if_key_not_exists=False
        )
        write_deltalake(path, pa.Table.from_pylist(rows, _SCHEMA), mode="append", commit_properties=mark)
    return tables


def _a_life() -> Log:
    log = Log()
    log.register(_BROKER)
    log.pass_time(130_000)
    log.register(_BROKER)
    return log


def test_rows_of_version_0_1_0_become_the_archive_and_its_tables_are_moved_aside(tmp_path: Path) -> None:
    log = _a_life()
    tables = _former(tmp_path, log)
    storage = tables_of(tables.settings)
    before = DeltaTable(tables.settings.data.tables_dir / "route_history").to_pyarrow_table()
    for _ in range(2):
        ensure_history_tables(tables.settings, TOPIC_ID)
        found = rows_of(storage, ROUTE_HISTORY)
        assert [(r["offset"], r["seq"], r["valid_to"]) for r in found] == [
            (change.offset, change.seq, end and instant(end)) for change, end in intervals(log.output.changes)
        ]
        assert len(rows_of(storage, ROUTE_ARCHIVE)) == before.num_rows
        mark = read_mark(storage / ROUTE_ARCHIVE)
        assert mark is not None
        assert mark.next_offsets == tables.ends()
    kept = DeltaTable(tables.settings.data.tables_dir / KEPT / "route_history").to_pyarrow_table()
    assert kept.num_rows == before.num_rows
    assert not (storage / "broker_sessions").has("_delta_log")
    route_as_of(Past(tables.settings), "TopicTest", BEGIN_MS + 60_000)


def test_error_before_the_migration_names_its_command(tmp_path: Path) -> None:
    tables = _former(tmp_path, _a_life())
    with pytest.raises(NotInHistory, match=r"`namesrv-stream history-job --once` converts it"):
        Past(tables.settings)


def test_history_of_another_topic_is_refused_and_not_moved(tmp_path: Path) -> None:
    tables = _former(tmp_path, _a_life())
    with pytest.raises(ConfigError, match="the topic's id is other"):
        ensure_history_tables(tables.settings, "other")
    assert (tables_of(tables.settings) / "route_history").has("_delta_log")


@pytest.mark.parametrize("name", HISTORY_SCHEMAS)
def test_table_of_the_latest_release_gets_later_columns(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, statistics = settings_in(tmp_path), STATISTICS_COLUMNS[name]
    schema = HISTORY_SCHEMAS[name].append(pa.field("a_later_one", pa.string()))
    path = settings.data.tables_dir / name
    path.mkdir(parents=True)
    properties, day = history_properties(TOPIC_ID, settings.kafka.partitions, statistics), DAY_COLUMNS[name]
    columns = released_schema(name)
    DeltaTable.create(path, columns, partition_by=[day], configuration=properties, raise_if_key_not_exists=False)
    monkeypatch.setitem(HISTORY_SCHEMAS, name, schema)
    ensure_history_tables(settings, TOPIC_ID)
    assert {field.name for field in DeltaTable(path).schema().fields} == set(schema.names)
