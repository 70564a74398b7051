"""Tables opened for queries: which files are read, and what is refused."""

import shutil
from datetime import date
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from namesrv_stream.instants import utc
from namesrv_stream.table_errors import TableSchemaMismatch
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.storage import Folder

DAY_MS = 86_400_000
SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("valid_from", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("valid_to", pa.timestamp("us", "UTC")),
        pa.field("later", pa.string()),
        pa.field("day", pa.date32(), nullable=False),
    ]
)


def a_table(folder: Path, schema: pa.Schema = SCHEMA) -> Path:
    """A table with one file per day, 1970-01-01 to 1970-01-04: a row valid on that day; the last one is still valid."""
    path = folder / "intervals"
    for number in range(4):
        rows = [
            {
                "name": name,
                "valid_from": number * DAY_MS * 1_000,
                "valid_to": end and end * 1_000,
                "day": date(1970, 1, 1 + number),
            }
            for name, end in [(f"short-{number}", (number + 1) * DAY_MS), ("lasting", None)][: 1 + (number == 3)]
        ]
        write_deltalake(path, pa.Table.from_pylist(rows, schema), mode="append", partition_by=["day"])
    return path


def opened(folder: Path, schema: pa.Schema = SCHEMA) -> StoredTable:
    table = StoredTable.open(Folder(folder), "intervals", schema)
    assert table is not None
    return table


def names(table: StoredTable, *conditions: pl.Expr) -> list[str]:
    return sorted(table.rows(*conditions, columns=["name"])["name"].to_list())


def valid_at(at_ms: int) -> pl.Expr:
    return (pl.col("valid_from") <= utc(at_ms)) & (pl.col("valid_to").is_null() | (pl.col("valid_to") > utc(at_ms)))


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (valid_at(DAY_MS + 5), ["short-1"]),
        (pl.col("name") == "short-1", ["short-1"]),
        (pl.col("day") == date(1970, 1, 2), ["short-1"]),
        (pl.col("name").is_in(["short-1", "absent"]), ["short-1"]),
        (pl.col("name").is_in([]), []),
    ],
    ids=str,
)
def test_query_opens_only_files_that_may_have_its_rows(condition: pl.Expr, found: list[str], tmp_path: Path) -> None:
    path = a_table(tmp_path)
    for file in [*path.glob("day=1970-01-01/*.parquet"), *path.glob("day=1970-01-03/*.parquet")]:
        file.unlink()
    assert names(opened(tmp_path), condition) == found


def test_another_engine_opens_only_files_that_may_have_its_rows(tmp_path: Path) -> None:
    path = a_table(tmp_path)
    for file in path.glob("day=1970-01-01/*.parquet"):
        file.unlink()
    rows = opened(tmp_path).dataset(pc.field("valid_from") > pa.scalar(utc(1))).to_table()
    assert sorted(rows["name"].to_pylist()) == ["lasting", "short-1", "short-2", "short-3"]


def test_an_open_interval_is_found_at_a_much_later_instant(tmp_path: Path) -> None:
    a_table(tmp_path)
    assert names(opened(tmp_path), valid_at(100 * DAY_MS)) == ["lasting"]


def test_a_column_that_the_table_does_not_have_yet_is_null(tmp_path: Path) -> None:
    a_table(tmp_path, pa.schema([f for f in SCHEMA if f.name != "later"]))
    rows = opened(tmp_path).rows(pl.col("name") == "lasting", columns=["name", "later"]).to_dicts()
    assert rows == [{"name": "lasting", "later": None}]


def test_unknown_column_is_ignored(tmp_path: Path) -> None:
    a_table(tmp_path)
    known = pa.schema([f for f in SCHEMA if f.name != "later"])
    assert "later" not in opened(tmp_path, known).rows().columns


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.field("name", pa.int64(), nullable=False), "column name is string, expected int64"),
        (pa.field("needed", pa.string(), nullable=False), "column needed is missing"),
    ],
)
def test_a_table_that_would_be_misread_is_refused(tmp_path: Path, column: pa.Field, words: str) -> None:
    a_table(tmp_path)
    schema = pa.schema([*(f for f in SCHEMA if f.name != column.name), column])
    with pytest.raises(TableSchemaMismatch, match=words):
        StoredTable.open(Folder(tmp_path), "intervals", schema)


def test_a_missing_file_is_an_error_that_names_the_table(tmp_path: Path) -> None:
    path = a_table(tmp_path)
    table = opened(tmp_path)
    for file in path.glob("day=*/*.parquet"):
        file.unlink()
    with pytest.raises(TableSchemaMismatch, match=r"intervals: cannot be read"):
        table.rows()


def test_an_error_of_delta_has_no_escapes_for_a_terminal(tmp_path: Path) -> None:
    log_dir = a_table(tmp_path) / "_delta_log"
    shutil.rmtree(log_dir)
    log_dir.touch()
    with pytest.raises(TableSchemaMismatch, match=r"intervals: cannot be read") as error:
        opened(tmp_path)
    assert str(error.value).isprintable()


def test_maintenance_does_not_change_the_progress_of_the_table(tmp_path: Path) -> None:
    path = a_table(tmp_path)
    before_ms = opened(tmp_path).committed_ms()
    DeltaTable(path).optimize.compact()
    DeltaTable(path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert opened(tmp_path).committed_ms() == before_ms


def test_opening_a_missing_table_returns_none(tmp_path: Path) -> None:
    assert StoredTable.open(Folder(tmp_path), "intervals", SCHEMA) is None


def test_without_a_condition_every_row_is_read(tmp_path: Path) -> None:
    a_table(tmp_path)
    assert len(names(opened(tmp_path))) == 5
