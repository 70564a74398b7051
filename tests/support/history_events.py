"""Rows of ``broker_events`` made without Spark, and their files."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from namesrv_stream.route.fold import Record
from namesrv_stream.tables.delta.file_ranges import FileRanges
from namesrv_stream.tables.schema.history_columns import BROKER_EVENTS, HISTORY_SCHEMAS
from namesrv_stream.tables.storage import Folder

#: Pages of few rows where values are large, as Spark writes them.
_PAGES = WriterProperties(write_batch_size=8, data_page_size_limit=1 << 20)


def event_files(folder: Path, *files: Sequence[Record]) -> FileRanges:
    """Write records to ``broker_events``, each sequence a file; of its columns those that ``events_of`` has."""
    for records in files:
        write_deltalake(folder, events_of(records), mode="append", writer_properties=_PAGES)
    return FileRanges.open(Folder(folder), HISTORY_SCHEMAS[BROKER_EVENTS])


def events_of(records: Sequence[Record]) -> pa.Table:
    """Rows of ``broker_events``, of those columns that matter here; ticks and the like too."""
    values = [_text(record.value) for record in records]
    columns = {
        "partition": pa.array([r.partition for r in records], pa.int32()),
        "offset": pa.array([r.offset for r in records], pa.int64()),
        "at": pa.array([r.at_ms * 1000 for r in records], pa.timestamp("us", tz="UTC")),
        "kind": pa.array([_kind(value) for value in values], pa.string()),
        "value": pa.array(values, pa.string()),
    }
    return pa.table(columns)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _kind(value: str | None) -> str | None:
    try:
        found = json.loads(value or "")
    except json.JSONDecodeError:
        return None
    kind = found.get("kind") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else None
