"""The tables as SQL, for people and for other engines; ``schemas/*.sql`` hold this text."""

from typing import Final

import pyarrow as pa

from namesrv_stream.tables.columns import CHANGES_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.layout import (
    PARTITIONS_PROPERTY,
    ROUTE_CHANGES,
    ROUTE_STATE,
    TOPIC_ID_PROPERTY,
    table_properties,
)

_SCHEMAS: Final = {ROUTE_CHANGES: CHANGES_SCHEMA, ROUTE_STATE: STATE_SCHEMA}
_COMMENTS: Final = {
    ROUTE_CHANGES: "One row a change of the routes, in the order of the event log; written by the job only",
    ROUTE_STATE: "One row a live key, and per partition the state of the fold; rewritten whole by the job",
}
_TYPES: Final = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.binary(): "BINARY",
    pa.map_(pa.int64(), pa.string()): "MAP<BIGINT, STRING>",
    pa.list_(pa.string()): "ARRAY<STRING>",
}


def ddl(table: str) -> str:
    """The CREATE TABLE statement of ``table``, in Spark's dialect."""
    columns = []
    for field in _SCHEMAS[table]:
        comment = field.metadata[b"comment"].decode().replace("'", "\\'")
        not_null = "" if field.nullable else " NOT NULL"
        columns.append(f"  {_quoted(field.name)} {_TYPES[field.type]}{not_null} COMMENT '{comment}'")
    pinned = [
        f"  '{name}' = '{value}'"
        for name, value in table_properties("", 0).items()
        if name not in (TOPIC_ID_PROPERTY, PARTITIONS_PROPERTY)
    ]
    return (
        f"CREATE TABLE {table} (\n" + ",\n".join(columns) + f"\n)\nUSING DELTA\nCOMMENT '{_COMMENTS[table]}'\n"
        "TBLPROPERTIES (\n" + ",\n".join(pinned) + "\n);\n"
    )


def _quoted(name: str) -> str:
    return f"`{name}`" if name in ("partition", "offset", "key", "value", "state") else name
