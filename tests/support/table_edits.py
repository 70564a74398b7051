"""Edits Delta tables without the product: rows, while the recorded progress stays correct, and whole commits."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.delta.commit import Change
from namesrv_stream.tables.delta.table_writer import TableWriter
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.storage import Folder

#: Tables whose commits the product checks.
_SCHEMAS = {ROUTE_CHANGES: CHANGES_SCHEMA, ROUTE_STATE: STATE_SCHEMA}


def rewrite_rows(tables_dir: Path, name: str, column: str, value: object, where: pc.Expression) -> int:
    """Change ``column`` of the rows that match; returns their number. ``where`` must not be null for any row."""
    rows = _read(tables_dir, name)
    hit, at = rows.filter(where), rows.schema.get_field_index(column)
    field = rows.schema.field(column)
    hit = hit.set_column(at, field, pa.array([value] * hit.num_rows, field.type))
    _replace(tables_dir, name, pa.concat_tables([rows.filter(~where), hit]))
    return int(hit.num_rows)


def drop_rows(tables_dir: Path, where: pc.Expression) -> None:
    """Remove rows of ``route_changes``."""
    _replace(tables_dir, ROUTE_CHANGES, _read(tables_dir, ROUTE_CHANGES).filter(~where))


def add_rows(tables_dir: Path, rows: pa.Table) -> None:
    """Add rows to ``route_changes``."""
    _replace(tables_dir, ROUTE_CHANGES, pa.concat_tables([_read(tables_dir, ROUTE_CHANGES), rows]))


def _read(tables_dir: Path, name: str) -> pa.Table:
    return DeltaTable(tables_dir / name).to_pyarrow_table()


def _replace(tables_dir: Path, name: str, rows: pa.Table) -> None:
    if name not in _SCHEMAS:  # history tables accept any writer
        write_deltalake(tables_dir / name, rows, mode="overwrite")
        return
    table = TableWriter(Folder(tables_dir) / name, _SCHEMAS[name])
    file = table.write_rows(rows.cast(_SCHEMAS[name]))
    old = tuple(known for known in table.files() if known.path != file.path)  # a file with equal rows has the same name
    table.commit(Change("OPTIMIZE", (file,) if len(old) == len(table.files()) else (), old))


def write_commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    """Write the log entry of a commit with these actions; creates the folder of the table if it is absent."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
