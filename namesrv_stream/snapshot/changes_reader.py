"""Rows of ``route_changes`` of one kind, all that the table still has, for whoever looks back."""

from typing import Any

from namesrv_stream.location import Location
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.snapshot.log_files import has_log
from namesrv_stream.snapshot.table_files import open_delta, scan_options
from namesrv_stream.tables import ROUTE_CHANGES, table_path

_NESTED = ("broker_addrs", "clusters", "filter_servers")


def read_rows(tables_dir: Location, kind: ChangeKind) -> list[RouteChange]:
    """In log order of each partition; none before there is a table. Nested columns are left out."""
    import polars as pl  # a server, which imports this module too, starts without

    path = table_path(tables_dir, ROUTE_CHANGES)
    if not has_log(path):
        return []
    columns = [name for name in RouteChange._fields if name not in _NESTED]
    frame = (
        pl.scan_delta(open_delta(path), storage_options=scan_options(path))
        .filter(pl.col("kind") == kind.value)
        .select(columns)
        .sort("partition", "offset", "seq")
        .collect()
    )
    rows: list[dict[str, Any]] = frame.to_dicts()
    return [RouteChange(**row) for row in rows]
