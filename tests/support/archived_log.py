"""``broker_events`` made without Spark, with its rows in no order, as joined files have them."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.tables.history_files import HistoryMark, commit_metadata
from namesrv_stream.tables.layout import (
    BROKER_EVENTS,
    DAY_COLUMNS,
    HISTORY_SCHEMAS,
    STATISTICS_COLUMNS,
    history_properties,
)
from tests.support.history_tables import instant_of
from tests.support.tables import TOPIC_ID


def write_archive(settings: Settings, records: Iterable[Record], *, files: int = 3, topic_id: str = TOPIC_ID) -> None:
    """Append the records, shuffled and in so many commits."""
    path, schema = settings.data.tables_dir / BROKER_EVENTS, HISTORY_SCHEMAS[BROKER_EVENTS]
    if not path.exists():
        properties = history_properties(topic_id, settings.kafka.partitions, STATISTICS_COLUMNS[BROKER_EVENTS])
        days = [DAY_COLUMNS[BROKER_EVENTS]]
        DeltaTable.create(path, schema, partition_by=days, configuration=properties, raise_if_key_not_exists=False)
    rows = [_row(record) for record in records]
    Random(len(rows)).shuffle(rows)
    for number in range(files):
        _append(settings, rows[number::files], topic_id)


def _append(settings: Settings, rows: Sequence[dict[str, Any]], topic_id: str) -> None:
    write_deltalake(
        settings.data.tables_dir / BROKER_EVENTS,
        pa.Table.from_pylist(list(rows), HISTORY_SCHEMAS[BROKER_EVENTS]),
        mode="append",
        commit_properties=CommitProperties(custom_metadata=commit_metadata(HistoryMark(topic_id))),
    )


def _row(record: Record) -> dict[str, Any]:
    at = instant_of(record.at_ms)
    try:
        value, raw = record.value.decode(), None
    except UnicodeDecodeError:
        value, raw = None, record.value
    place = {"partition": record.partition, "offset": record.offset, "at": at, "event_day": at.date()}
    return {**place, "value": value, "raw": raw}
