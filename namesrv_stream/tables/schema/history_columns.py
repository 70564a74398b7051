"""Columns of the history tables, which the history process writes and anyone may read.

Instants are TIMESTAMP in UTC, of the log's time in milliseconds. Intervals are half-open ``[from, to)``; one that lasts
until now has no end. A row leads back to Kafka by partition and offset. Columns are only ever added, at the end.
"""

from typing import Final

import pyarrow as pa

from namesrv_stream.tables.schema.columns import ROW_SCHEMA

BROKER_EVENTS: Final = "broker_events"
ROUTE_HISTORY: Final = "route_history"
TOPIC_ROUTE_HISTORY: Final = "topic_route_history"
BROKER_SESSIONS: Final = "broker_sessions"
HEARTBEAT_MINUTES: Final = "heartbeat_minutes"

_INSTANT: Final = pa.timestamp("us", tz="UTC")

_PARTITION: Final = (pa.int32(), "Kafka partition of the record that caused the row")
_OFFSET: Final = (pa.int64(), "Offset of that record")
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

_ROUTE_HISTORY: Final[_Columns] = {
    **{field.name: (field.type, field.metadata[b"comment"].decode()) for field in ROW_SCHEMA},
    "seq": _SEQ,
    "valid_from": (_INSTANT, "From when on the key was so: the instant of at_ms"),
    "valid_to": (_INSTANT, "Until when, exclusive: when the key's next row begins; null: it is so now"),
    "from_day": (pa.date32(), "Day of `valid_from`, UTC"),
}

_TOPIC_ROUTE_HISTORY: Final[_Columns] = {
    "topic": (pa.string(), "Topic name"),
    "broker_name": (pa.string(), "Broker name that offers it, or no longer does"),
    "cluster": (pa.string(), "Cluster of that broker name"),
    "valid_from": (_INSTANT, "From when on it was so"),
    "valid_to": (_INSTANT, "Until when, exclusive; null: it is so now"),
    "gone": (pa.bool_(), "Whether the topic was not at that broker name; then the figures are null"),
    "read_queue_nums": (pa.int32(), "readQueueNums"),
    "write_queue_nums": (pa.int32(), "writeQueueNums"),
    "perm": (pa.int32(), "Permission bits, 4 read, 2 write"),
    "topic_sys_flag": (pa.int32(), "topicSysFlag bits"),
    "cause": (pa.string(), "Why it became so: registered, expired, topic_deleted, write_perm_wiped, ..."),
    "detail": (pa.string(), "Figures behind the cause, for people"),
    "partition": _PARTITION,
    "offset": _OFFSET,
    "seq": _SEQ,
    "from_day": (pa.date32(), "Day of `valid_from`, UTC"),
}

_BROKER_SESSIONS: Final[_Columns] = {
    "cluster": (pa.string(), "Cluster name"),
    "broker_name": (pa.string(), "Broker name"),
    "broker_addr": (pa.string(), "Address of the broker process, host:port"),
    "broker_id": (pa.int64(), "Id with which it came up; 0 is the master"),
    "up_at": (_INSTANT, "When it became live"),
    "down_at": (_INSTANT, "When it was no longer; null: it is up"),
    "up_cause": (pa.string(), "Why it came: registered, returned, ..."),
    "down_cause": (pa.string(), "Why it went: expired, disconnected, unregistered, server_lost, ..."),
    "down_detail": (pa.string(), "Figures behind the cause, for people"),
    "timeout_ms": (pa.int64(), "Heartbeat timeout that it last asked for, milliseconds; null: the default"),
    "heartbeats": (pa.int64(), "How often it was heard, by any name server, its first registration included"),
    "longest_gap_ms": (pa.int64(), "Longest time between two hearings by any name server; null: heard less than twice"),
    "last_heard_at": (_INSTANT, "When it was last heard, as far as this row has been brought up to date"),
    "partition": _PARTITION,
    "offset": _OFFSET,
    "seq": _SEQ,
    "down_offset": (pa.int64(), "Offset of the record that ended it"),
    "up_day": (pa.date32(), "Day of `up_at`, UTC"),
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
    ROUTE_HISTORY: _ROUTE_HISTORY,
    TOPIC_ROUTE_HISTORY: _TOPIC_ROUTE_HISTORY,
    BROKER_SESSIONS: _BROKER_SESSIONS,
    HEARTBEAT_MINUTES: _HEARTBEAT_MINUTES,
}

#: Columns that every row has.
_REQUIRED: Final[dict[str, frozenset[str]]] = {
    BROKER_EVENTS: frozenset({"partition", "offset", "at", "event_day"}),
    ROUTE_HISTORY: frozenset(
        {"partition", "offset", "seq", "at_ms", "kind", "gone", "cause", "valid_from", "from_day"}
    ),
    TOPIC_ROUTE_HISTORY: frozenset(
        {"topic", "broker_name", "valid_from", "gone", "cause", "partition", "offset", "seq", "from_day"}
    ),
    BROKER_SESSIONS: frozenset(
        {"cluster", "broker_name", "broker_addr", "up_at", "up_cause", "heartbeats", "partition", "offset", "seq"}
        | {"up_day"}
    ),
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

#: Table of intervals → the columns of their begin and end.
INTERVAL_COLUMNS: Final[dict[str, tuple[str, str]]] = {
    ROUTE_HISTORY: ("valid_from", "valid_to"),
    TOPIC_ROUTE_HISTORY: ("valid_from", "valid_to"),
    BROKER_SESSIONS: ("up_at", "down_at"),
}

#: Table → what holds for each of its rows: name of a CHECK constraint to its expression.
CONSTRAINTS: Final[dict[str, dict[str, str]]] = {
    table: {f"{end}_after_{begin}": f"{end} IS NULL OR {begin} < {end}"}
    for table, (begin, end) in INTERVAL_COLUMNS.items()
}

#: Table → columns whose extremes each file tells, so that readers skip files.
STATISTICS_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    BROKER_EVENTS: ("partition", "offset", "at", "kind", "broker_name"),
    ROUTE_HISTORY: ("partition", "offset", "kind", "broker_name", "topic", "valid_from", "valid_to"),
    TOPIC_ROUTE_HISTORY: ("partition", "offset", "topic", "broker_name", "cluster", "valid_from", "valid_to"),
    BROKER_SESSIONS: ("partition", "offset", "cluster", "broker_name", "broker_addr", "up_at", "down_at"),
    HEARTBEAT_MINUTES: ("partition", "cluster", "broker_name", "minute"),
}
