"""Names, properties and transaction ids of the tables, and the columns of the history tables.

The history process appends to the history tables, and any program may read them. Times are TIMESTAMP in UTC or epoch
milliseconds, in the time of the log. Partition and offset of a row identify its Kafka record. Rows never change.
``schemas/README.md`` says to which tables new versions may add columns.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson
import pyarrow as pa

from namesrv_stream.table_errors import TableSchemaMismatch
from namesrv_stream.tables.change_rows import ROW_SCHEMA

ROUTE_CHANGES: Final = "route_changes"
ROUTE_STATE: Final = "route_state"
#: File of the remaining moves while rebuilt tables replace the old ones.
SWAP_FILE: Final = "rebuild-swap.json"

#: Kafka's id of the topic from which the table is made. Offsets are meaningless for another topic.
TOPIC_ID_PROPERTY: Final = "namesrv_stream.topic_id"
PARTITIONS_PROPERTY: Final = "namesrv_stream.partitions"
#: Set if the topic was given more partitions; JSON of partition → first offset written for this number of partitions.
BEGINS_PROPERTY: Final = "namesrv_stream.begins"

#: VACUUM keeps removed files for this time.
VACUUM_PROPERTY: Final = "delta.deletedFileRetentionDuration"

#: The highest (reader, writer) protocol that Spark, delta-rs, DuckDB and Polars support without table features.
PROTOCOL: Final = (1, 2)
#: The same with CHECK constraints, which readers do not need to know.
HISTORY_PROTOCOL: Final = (1, 3)


def table_properties(topic_id: str, partitions: int, begins: Mapping[int, int] | None = None) -> dict[str, str]:
    """Return the properties of the job's tables. They are explicit, so that no engine's defaults add features.

    Args:
        topic_id: Kafka's id of the events topic.
        begins: Partition → its first offset since the topic got this number of partitions; None if it never changed.
    """
    return partition_properties(partitions, begins or {}) | {
        "delta.appendOnly": "false",
        "delta.checkpointInterval": "100",
        "delta.columnMapping.mode": "none",
        "delta.dataSkippingNumIndexedCols": "4",  # partition, offset, seq, at_ms
        VACUUM_PROPERTY: "interval 1 days",
        "delta.enableChangeDataFeed": "false",
        "delta.enableDeletionVectors": "false",
        "delta.logRetentionDuration": "interval 1 days",
        TOPIC_ID_PROPERTY: topic_id,
    }


def partition_properties(partitions: int, begins: Mapping[int, int]) -> dict[str, str]:
    """Return the properties that change when partitions are added. ``begins`` is as in ``table_properties``."""
    text = orjson.dumps({str(p): offset for p, offset in sorted(begins.items())}).decode()
    return {PARTITIONS_PROPERTY: str(partitions)} | ({BEGINS_PROPERTY: text} if begins else {})


def decode_begins(text: str | None) -> dict[int, int]:
    """Decode the value of ``BEGINS_PROPERTY``; {} if there is none. Raises ValueError if it is damaged."""
    return {int(partition): int(offset) for partition, offset in orjson.loads(text or "{}").items()}


def history_properties(
    topic_id: str, partitions: int, statistics: Sequence[str], vacuum_hours: int = 24
) -> dict[str, str]:
    """Return the properties of a history table. They are explicit, as in ``table_properties``.

    Args:
        topic_id: Kafka's id of the events topic.
        statistics: Columns of which the log lists the minimum and maximum in each file.
        vacuum_hours: How long removed files are kept, hours.
    """
    properties = table_properties(topic_id, partitions)
    del properties["delta.dataSkippingNumIndexedCols"]
    own = {
        "delta.dataSkippingStatsColumns": ",".join(statistics),
        VACUUM_PROPERTY: f"interval {vacuum_hours} hours",
    }
    return dict(sorted({**properties, **own}.items()))


def app_id(topic_id: str, partition: int) -> str:
    """Return the Delta application id that records a partition's progress; its version is the next offset to fold."""
    return f"{topic_id}-{partition}"


def removed_app_id(topic_id: str, partition: int) -> str:
    """Return the Delta application id by which ``route_changes`` records that rows of a partition were removed.

    Its transaction version is the offset below which rows were removed. ``partition_of_app_id`` ignores it.
    """
    return f"{topic_id}-{partition}:removed"


def partition_of_app_id(text: str) -> int | None:
    """Return the partition of an id that ``app_id`` has returned; None for other application ids."""
    _, dash, partition = text.rpartition("-")
    return int(partition) if dash and partition.isdecimal() else None


def check_table(
    path: str,
    protocol: tuple[int, int],
    features: Sequence[str],
    found: pa.Schema,
    expected: pa.Schema,
    newest: tuple[int, int] = PROTOCOL,
) -> None:
    """Refuse a table that this version of the code would misread.

    Args:
        path: Address of the table, for the error.
        protocol: (reader, writer) protocol of the table.
        features: Table features, of readers and writers.
        found: Columns of the table; comments are not compared.
        expected: The expected columns.
        newest: The highest supported (reader, writer) protocol of this table.

    Raises:
        TableSchemaMismatch: Something differs; the text says what.
    """
    if protocol[0] > newest[0] or protocol[1] > newest[1] or features:
        text = f"protocol {protocol} with features {sorted(features)} is not {newest} without any"
        raise TableSchemaMismatch(path, text)
    for name in sorted(set(expected.names) ^ set(found.names)):
        raise TableSchemaMismatch(path, f"column {name} is {'missing' if name in expected.names else 'unknown'}")
    for field in expected:
        if not found.field(field.name).type.equals(field.type):
            text = f"column {field.name} is {found.field(field.name).type}, expected {field.type}"
            raise TableSchemaMismatch(path, text)


BROKER_EVENTS: Final = "broker_events"
ROUTE_ARCHIVE: Final = "route_archive"
HEARTBEAT_MINUTES: Final = "heartbeat_minutes"

_INSTANT: Final = pa.timestamp("us", tz="UTC")

_SEQ: Final = (
    pa.int32(),
    "0, 1, ... among the rows of one record; negative: not from the log but from route_state, after a loss",
)

_Columns = dict[str, tuple[pa.DataType, str]]

_BROKER_EVENTS: Final[_Columns] = {
    "partition": (pa.int32(), "Kafka partition"),
    "offset": (pa.int64(), "Offset in that partition"),
    "at": (_INSTANT, "LogAppendTime: when Kafka appended the record"),
    "kind": (pa.string(), "broker_registered, broker_heartbeats, tick, ...; null if the value has none"),
    "cluster": (pa.string(), "Cluster name"),
    "broker_name": (pa.string(), "Broker name; null if the record concerns several brokers, or none"),
    "broker_id": (pa.int64(), "0 is the master"),
    "broker_addr": (pa.string(), "Address of one broker process, host:port"),
    "server_id": (pa.string(), "Name server that logged it; null for a producer that publishes directly"),
    "server_epoch": (pa.int64(), "Start of that server"),
    "connection_id": (pa.int64(), "Connection at that server"),
    "timeout_ms": (pa.int64(), "broker_registered: heartbeat timeout that the broker requested, milliseconds"),
    "items": (pa.int32(), "broker_heartbeats: number of brokers"),
    "value": (pa.string(), "The record's value, unchanged: JSON; null if it is not UTF-8"),
    "raw": (pa.binary(), "The record's value if it is not UTF-8"),
    "event_day": (pa.date32(), "Day of `at`, UTC"),
}

_ROUTE_ARCHIVE: Final[_Columns] = {
    **{field.name: (field.type, field.metadata[b"comment"].decode()) for field in ROW_SCHEMA},
    "seq": _SEQ,
    "day": (pa.date32(), "Day of `at_ms`, UTC"),
}

_HEARTBEAT_MINUTES: Final[_Columns] = {
    "cluster": (pa.string(), "Cluster name"),
    "broker_name": (pa.string(), "Broker name"),
    "broker_addr": (pa.string(), "Address of the broker process, host:port"),
    "server_id": (pa.string(), "Name server that received the heartbeats; `direct`: the broker published directly"),
    "minute": (_INSTANT, "Start of the minute; the row appears after its end and never changes"),
    "heartbeats": (pa.int64(), "Number of heartbeats and registrations"),
    "gap_p50_ms": (pa.int64(), "Median of the gaps between heartbeats that end in this minute; null if none ends"),
    "gap_p99_ms": (pa.int64(), "99th percentile of these gaps"),
    "gap_max_ms": (pa.int64(), "Longest of these gaps"),
    "first_at": (_INSTANT, "Time of the first heartbeat in this minute"),
    "last_at": (_INSTANT, "Time of the last heartbeat in this minute"),
    "partition": (pa.int32(), "Kafka partition of all of the broker name's records"),
    "day": (pa.date32(), "Day of `minute`, UTC"),
}

_COLUMNS: Final[dict[str, _Columns]] = {
    BROKER_EVENTS: _BROKER_EVENTS,
    ROUTE_ARCHIVE: _ROUTE_ARCHIVE,
    HEARTBEAT_MINUTES: _HEARTBEAT_MINUTES,
}

#: Columns that every row has.
_REQUIRED: Final[dict[str, frozenset[str]]] = {
    BROKER_EVENTS: frozenset({"partition", "offset", "at", "event_day"}),
    ROUTE_ARCHIVE: frozenset({"partition", "offset", "seq", "at_ms", "kind", "gone", "cause", "day"}),
    HEARTBEAT_MINUTES: frozenset(
        {"cluster", "broker_name", "broker_addr", "server_id", "minute", "heartbeats", "first_at", "last_at"}
        | {"partition", "day"}
    ),
}


def _schema(table: str) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, arrow_type, nullable=name not in _REQUIRED[table], metadata={"comment": comment})
            for name, (arrow_type, comment) in _COLUMNS[table].items()
        ]
    )


#: Table → its columns, in order.
HISTORY_SCHEMAS: Final[dict[str, pa.Schema]] = {table: _schema(table) for table in _COLUMNS}

#: Table → its Delta partition column, the only one of type DATE.
DAY_COLUMNS: Final[dict[str, str]] = {
    table: next(field.name for field in schema if field.type == pa.date32())
    for table, schema in HISTORY_SCHEMAS.items()
}

#: Table → description, stored in the table.
DESCRIPTIONS: Final[dict[str, str]] = {
    BROKER_EVENTS: "One row per Kafka record, including ticks; only the history process writes it",
    ROUTE_ARCHIVE: (
        "One row per change of the routes, kept for years; the views of docs/analytics.md derive intervals and "
        "sessions from it; only the history process writes it"
    ),
    HEARTBEAT_MINUTES: (
        "One row per broker process, name server and minute with a heartbeat; only the history process writes it"
    ),
}

#: Table → columns with minimum and maximum per file, by which readers skip files.
STATISTICS_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    BROKER_EVENTS: ("partition", "offset", "at", "kind", "broker_name"),
    ROUTE_ARCHIVE: ("partition", "offset", "at_ms", "kind", "broker_name", "topic"),
    HEARTBEAT_MINUTES: ("partition", "cluster", "broker_name", "minute"),
}
