"""The tables as CREATE TABLE statements: ``schemas/*.sql`` contain this text, for people and for other engines.

After a change of columns, ``python -m tests.support.ddl`` rewrites the files.
"""

from pathlib import Path
from typing import Final

import pyarrow as pa

from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.layout import (
    DAY_COLUMNS,
    DESCRIPTIONS,
    HISTORY_SCHEMAS,
    PARTITIONS_PROPERTY,
    ROUTE_CHANGES,
    ROUTE_STATE,
    STATISTICS_COLUMNS,
    TOPIC_ID_PROPERTY,
    history_properties,
    table_properties,
)

FOLDER: Final = Path(__file__).resolve().parents[2] / "schemas"
SCHEMAS: Final = {ROUTE_CHANGES: CHANGES_SCHEMA, ROUTE_STATE: STATE_SCHEMA, **HISTORY_SCHEMAS}
_DESCRIPTIONS: Final = {
    ROUTE_CHANGES: "One row per change of the routes, in the order of the event log; only the job writes it",
    ROUTE_STATE: "One row per live key, and the fold's state of each partition; the job rewrites the whole table",
    **DESCRIPTIONS,
}
#: Arrow type → Spark's name of it.
TYPES: Final = {
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
    """Return the statement that creates ``table`` in Spark's dialect; it ends with a semicolon and a line feed."""
    properties = (
        history_properties("", 0, STATISTICS_COLUMNS[table]) if table in HISTORY_SCHEMAS else table_properties("", 0)
    )
    for name in (TOPIC_ID_PROPERTY, PARTITIONS_PROPERTY):
        del properties[name]
    columns = ",\n".join(f"  {_column(field)}" for field in SCHEMAS[table])
    partitioned = f"PARTITIONED BY ({_quoted(DAY_COLUMNS[table])})\n" if table in DAY_COLUMNS else ""
    listed = ",\n".join(f"  '{key}' = '{value}'" for key, value in properties.items())
    return (
        f"CREATE TABLE {table} (\n{columns}\n)\nUSING DELTA\n{partitioned}COMMENT '{_escaped(_DESCRIPTIONS[table])}'\n"
        f"TBLPROPERTIES (\n{listed}\n);\n"
    )


def _column(field: pa.Field) -> str:
    not_null = "" if field.nullable else " NOT NULL"
    comment = _escaped(field.metadata[b"comment"].decode())
    return f"{_quoted(field.name)} {TYPES[field.type]}{not_null} COMMENT '{comment}'"


def _escaped(comment: str) -> str:
    return comment.replace("'", "\\'")


def _quoted(name: str) -> str:
    return f"`{name}`" if name in _QUOTED else name


if __name__ == "__main__":
    for name in SCHEMAS:
        (FOLDER / f"{name}.sql").write_text(ddl(name))
