"""The tables as SQL, for people and for other engines; ``schemas/*.sql`` hold this text."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from namesrv_stream.tables.schema.columns import CHANGES_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.schema.history_columns import (
    BROKER_EVENTS,
    DAY_COLUMNS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_ARCHIVE,
    STATISTICS_COLUMNS,
)
from namesrv_stream.tables.schema.layout import (
    PARTITIONS_PROPERTY,
    ROUTE_CHANGES,
    ROUTE_STATE,
    TOPIC_ID_PROPERTY,
    history_properties,
    table_properties,
)

_SCHEMAS: Final = {ROUTE_CHANGES: CHANGES_SCHEMA, ROUTE_STATE: STATE_SCHEMA, **HISTORY_SCHEMAS}
#: Table → what it is, for people.
COMMENTS: Final = {
    ROUTE_CHANGES: "One row a change of the routes, in the order of the event log; written by the job only",
    ROUTE_STATE: "One row a live key, and per partition the state of the fold; rewritten whole by the job",
    BROKER_EVENTS: "One row an event as Kafka has it, ticks included; written by the history process only",
    ROUTE_ARCHIVE: (
        "One row a change of the routes, kept for years; the views of docs/analytics.md make intervals and sessions of "
        "it; written by the history process only"
    ),
    HEARTBEAT_MINUTES: (
        "One row a broker process, name server and minute in which it was heard; written by the history process only"
    ),
}
_TYPES: Final = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
    pa.map_(pa.int64(), pa.string()): "MAP<BIGINT, STRING>",
    pa.list_(pa.string()): "ARRAY<STRING>",
}
_QUOTED: Final = frozenset({"partition", "offset", "key", "value", "state", "at", "minute", "day"})


def ddl(table: str) -> str:
    """The statement that makes ``table``, in Spark's dialect; it ends with a semicolon and a line feed."""
    pinned = (
        table_properties("", 0)
        if table not in HISTORY_SCHEMAS
        else history_properties("", 0, STATISTICS_COLUMNS[table])
    )
    properties = {k: v for k, v in pinned.items() if k not in (TOPIC_ID_PROPERTY, PARTITIONS_PROPERTY)}
    return create_statement(table, table, properties) + ";\n"


def create_statement(table: str, name: str, properties: Mapping[str, str]) -> str:
    """CREATE TABLE.

    Args:
        table: Which of ours.
        name: What to call it there, for example ``delta.`/path` ``.
        properties: Its TBLPROPERTIES.
    """
    columns = ",\n".join(f"  {column_definition(field)}" for field in _SCHEMAS[table])
    partitioned = f"PARTITIONED BY ({_quoted(DAY_COLUMNS[table])})\n" if table in DAY_COLUMNS else ""
    listed = ",\n".join(f"  '{key}' = '{value}'" for key, value in properties.items())
    return (
        f"CREATE TABLE {name} (\n{columns}\n)\nUSING DELTA\n{partitioned}COMMENT '{_escaped(COMMENTS[table])}'\n"
        f"TBLPROPERTIES (\n{listed}\n)"
    )


def column_definition(field: pa.Field) -> str:
    """A column as CREATE TABLE and ADD COLUMNS have it."""
    not_null = "" if field.nullable else " NOT NULL"
    comment = _escaped(field.metadata[b"comment"].decode())
    return f"{_quoted(field.name)} {sql_type(field.type)}{not_null} COMMENT '{comment}'"


def sql_type(arrow_type: pa.DataType) -> str:
    """A column's type in Spark's SQL."""
    return _TYPES[arrow_type]


def _escaped(comment: str) -> str:
    return comment.replace("'", "\\'")


def _quoted(name: str) -> str:
    return f"`{name}`" if name in _QUOTED else name
