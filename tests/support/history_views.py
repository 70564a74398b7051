"""The history tables and their views, queried in DuckDB as an analyst does."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa

from namesrv_stream.history.database import TABLE_VIEWS, sql_text
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.tables.change_rows import in_log_order
from namesrv_stream.tables.delta.commit import LOG
from namesrv_stream.tables.delta.open_table import open_delta
from namesrv_stream.tables.layout import BROKER_EVENTS, HISTORY_SCHEMAS, ROUTE_CHANGES
from namesrv_stream.tables.storage import Storage

ROUTE_HISTORY = "route_history"
TOPIC_ROUTE_HISTORY = "topic_route_history"
BROKER_SESSIONS = "broker_sessions"


def rows_of(tables: Storage, table: str) -> list[dict[str, Any]]:
    """Return all rows of a history table or view, in log order if they have one."""
    found = query(tables, f"SELECT * FROM {table}")
    # Instants are also stored in epoch milliseconds.
    twice = {n for n in found.column_names if n.endswith("_ms") and n.removesuffix("_ms") in found.column_names}
    found = found.drop_columns([*sorted(twice - {"at_ms"}), *(["at"] if "at_ms" in twice else [])])
    rows: list[dict[str, Any]] = (in_log_order(found) if "seq" in found.column_names else found).to_pylist()
    return rows


def query(tables: Storage, sql: str) -> pa.Table:
    """Run a statement in DuckDB on the tables and their views."""
    with closing(duckdb.connect()) as connection:
        for name in (*HISTORY_SCHEMAS, ROUTE_CHANGES):
            rows = open_delta(tables / name).to_pyarrow_dataset() if (tables / name).has(LOG) else None
            files = name if name == BROKER_EVENTS else f"{name}_files"
            connection.register(files, HISTORY_SCHEMAS[name].empty_table() if rows is None else rows)
        for statement in (*TABLE_VIEWS, sql_text("views")):
            connection.execute(statement)
        return connection.execute(sql).to_arrow_table()


def change_of(row: Mapping[str, Any]) -> RouteChange:
    """Convert a row of any engine to the change that it stores."""
    values = {name: row[name] for name in RouteChange._fields}
    for name in ("clusters", "filter_servers"):
        values[name] = None if values[name] is None else tuple(values[name])
    if values["broker_addrs"] is not None:
        values["broker_addrs"] = tuple(dict(values["broker_addrs"]).items())
    return RouteChange(**values)
