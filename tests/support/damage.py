"""Tables damaged on purpose; their progress stays as it was."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from namesrv_stream.tables import ROUTE_CHANGES, table_path


def rewrite_rows(tables_dir: Path, name: str, column: str, value: object, where: pc.Expression) -> int:
    """Give ``column`` of some rows another value; returns how many. ``where`` must not be null for any row."""
    path = table_path(tables_dir, name)
    rows = DeltaTable(path).to_pyarrow_table()
    hit, at = rows.filter(where), rows.schema.get_field_index(column)
    field = rows.schema.field(column)
    hit = hit.set_column(at, field, pa.array([value] * hit.num_rows, field.type))
    write_deltalake(path, pa.concat_tables([rows.filter(~where), hit]), mode="overwrite")
    return int(hit.num_rows)


def drop_rows(tables_dir: Path, where: pc.Expression) -> None:
    """Take rows of ``route_changes`` away."""
    path = table_path(tables_dir, ROUTE_CHANGES)
    write_deltalake(path, DeltaTable(path).to_pyarrow_table().filter(~where), mode="overwrite")
