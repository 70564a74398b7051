"""Columns of the history tables, which the history process appends to and anyone may read.

Instants are TIMESTAMP in UTC, or epoch milliseconds, of the log's time. A row leads back to Kafka by partition and
offset. No row is ever changed. Columns are only ever added, at the end.
"""

from typing import Final

import pyarrow as pa

from namesrv_stream.tables.schema.columns import ROW_SCHEMA

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
    "offset": (pa.int64(), "Offset in it"),
    "at": (_INSTANT, "LogAppendTime: when Kafka took the record"),
    "kind": (pa.string(), "broker_registered, broker_heartbeats, tick, ...; null where the value says none"),
    "cluster": (pa.string(), "Cluster name"),
    "broker_name": (pa.string(), "Broker name; null where the record is of several brokers, or of none"),
    "broker_id": (pa.int64(), "0 is the master"),
    "broker_addr": (pa.string(), "Address of one broker process, host:port"),
    "server_id": (pa.string(), "Name server that logged it; null: a producer that publishes by itself"),
    "server_epoch": (pa.int64(), "Start of that server"),
    "connection_id": (pa.int64(), "Connection at that server"),
    "timeout_ms": (pa.int64(), "broker_registered: heartbeat timeout that the broker asked for, milliseconds"),
    "items": (pa.int32(), "broker_heartbeats: how many brokers it is of"),
    "value": (pa.string(), "The record's value, exactly: JSON; null where it is no UTF-8"),
    "raw": (pa.binary(), "The record's value where it is no UTF-8"),
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
    "server_id": (pa.string(), "Name server that heard it; `direct`: the broker published by itself"),
    "minute": (_INSTANT, "Begin of the minute; it has ended when the row appears, and the row never changes"),
    "heartbeats": (pa.int64(), "How often it was heard: heartbeats and registrations"),
    "gap_p50_ms": (pa.int64(), "Median of the gaps that end in this minute; null: none does"),
    "gap_p99_ms": (pa.int64(), "99th percentile of them"),
    "gap_max_ms": (pa.int64(), "Longest of them"),
    "first_at": (_INSTANT, "When it was first heard in this minute"),
    "last_at": (_INSTANT, "When it was last heard in this minute"),
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

#: Table → the column by which its files are kept apart: the only DATE.
DAY_COLUMNS: Final[dict[str, str]] = {
    table: next(field.name for field in schema if field.type == pa.date32())
    for table, schema in HISTORY_SCHEMAS.items()
}

#: Table → what it holds, stored as its description.
DESCRIPTIONS: Final[dict[str, str]] = {
    BROKER_EVENTS: "One row per event as Kafka has it, ticks included; only the history process writes it",
    ROUTE_ARCHIVE: (
        "One row per change of the routes, kept for years; the views of docs/analytics.md derive intervals and "
        "sessions from it; only the history process writes it"
    ),
    HEARTBEAT_MINUTES: (
        "One row per broker process, name server and minute with a heartbeat; only the history process writes it"
    ),
}

#: Table → columns whose extremes each file tells, so that readers skip files.
STATISTICS_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    BROKER_EVENTS: ("partition", "offset", "at", "kind", "broker_name"),
    ROUTE_ARCHIVE: ("partition", "offset", "at_ms", "kind", "broker_name", "topic"),
    HEARTBEAT_MINUTES: ("partition", "cluster", "broker_name", "minute"),
}
