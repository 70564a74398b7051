"""Data files of the history tables, in a folder or an object store. Spark's tasks write and read them.

A task imports only this module and its imports, so neither delta-rs nor Polars may be among these.
"""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any, Final
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from namesrv_stream.tables.delta.data_file import read_content
from namesrv_stream.tables.layout import DAY_COLUMNS, HISTORY_SCHEMAS, STATISTICS_COLUMNS
from namesrv_stream.tables.storage import Storage

#: What ``write_files`` returns for each file: the fields of an ``add`` action that differ between files.
FILE_SCHEMA: Final = pa.schema(
    [("path", pa.string()), ("size", pa.int64()), ("day", pa.string()), ("rows", pa.int64()), ("stats", pa.string())]
)
#: Number of rows in memory at a time. A registration with many topics takes hundreds of kilobytes.
_ROWS_AT_ONCE: Final = 1_000


def write_files(tables: Storage, table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows as one data file per day. They become part of the table with a commit.

    Args:
        tables: Storage of the tables.
        table: Name of a history table.
        batches: Rows with all columns of the table.

    Yields:
        The written files, columns of ``FILE_SCHEMA``.

    Raises:
        OSError: A file could not be written.
        StoreUnreachable: The object store does not answer.
    """
    day_column, schema = DAY_COLUMNS[table], HISTORY_SCHEMAS[table]
    in_file = pa.schema([field for field in schema if field.name != day_column]).remove_metadata()
    contents: dict[Any, tuple[BytesIO, pq.ParquetWriter]] = {}
    for batch in batches:
        for day in pc.unique(batch[day_column]).to_pylist():
            if day not in contents:
                content = BytesIO()
                contents[day] = (content, pq.ParquetWriter(content, in_file, compression="zstd", store_schema=False))
            of_day = pa.Table.from_batches([batch]).filter(pc.field(day_column) == day)
            contents[day][1].write_table(of_day.select(in_file.names).cast(in_file))
    found = []
    for day, (content, writer) in contents.items():
        writer.close()
        path = f"{day_column}={day}/part-{uuid4().hex}.parquet"
        (tables / table / f"{day_column}={day}").make()
        (tables / table).write(path, content.getvalue())
        rows, stats = _statistics(content, STATISTICS_COLUMNS[table])
        found.append({"path": path, "size": content.tell(), "day": str(day), "rows": rows, "stats": stats})
    yield from pa.Table.from_pylist(found, FILE_SCHEMA).to_batches()


def _statistics(content: BytesIO, columns: Iterable[str]) -> tuple[int, str]:
    metadata = pq.read_metadata(pa.BufferReader(content.getbuffer()))
    number_of = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        groups = [metadata.row_group(g).column(number_of[name]).statistics for g in range(metadata.num_row_groups)]
        nulls[name] = sum(group.null_count for group in groups)
        if any(group.has_min_max for group in groups):
            low[name] = _json_value(min(group.min for group in groups if group.has_min_max))
            high[name] = _json_value(max(group.max for group in groups if group.has_min_max))
    stats = {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return metadata.num_rows, orjson.dumps(stats).decode()


def _json_value(value: Any) -> Any:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if hasattr(value, "strftime") else value


def read_batches(table: Storage, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file, some thousand at a time. Raises the errors of ``read_content``.

    Args:
        table: Storage of the table.
        path: Path of the file, as in the table's log.
        schema: The columns to read. Columns that the file does not have are null.
    """
    file = pq.ParquetFile(pa.BufferReader(read_content(table, path)))
    existing = [name for name in schema.names if name in file.schema_arrow.names]
    for rows in file.iter_batches(_ROWS_AT_ONCE, columns=existing, use_threads=False):
        columns = [
            rows[field.name].cast(field.type) if field.name in existing else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
