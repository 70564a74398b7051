"""Data files of the history tables, and marks: how far a table covers the log.

Spark's tasks write and read the files, in a folder or an object store. A task imports only this module and its imports,
so neither delta-rs nor Polars may be among these.

Every commit of the history process carries the mark in ``userMetadata``, so that rows and mark change together. Commits
of other programs carry none.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from namesrv_stream.table_errors import TableDamaged, TableSchemaMismatch
from namesrv_stream.tables.delta.commit import checkpoint_name, commit_name, commit_versions, read_commit
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


_NAME = "history"
_USER_METADATA = "userMetadata"
#: Attempts to read a log that is cleaned up at the same time, which happens once a day.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class HistoryMark:
    """How far a table covers the log.

    Attributes:
        topic_id: Kafka's id of the topic to which the offsets belong.
        changes_id: Delta's id of the ``route_changes`` that was read; "" in tables that are made from events only.
        next_offsets: Partition → first offset that the table does not cover; 0 for partitions that are not named.
        at_ms: Partition → LogAppendTime up to which the table has data, epoch milliseconds.
    """

    topic_id: str = ""
    changes_id: str = ""
    next_offsets: Mapping[int, int] = field(default_factory=dict)
    at_ms: Mapping[int, int] = field(default_factory=dict)

    @property
    def newest_ms(self) -> int:
        """End of the data, epoch milliseconds; 0 without data."""
        return max(self.at_ms.values(), default=0)

    def next_offset(self, partition: int) -> int:
        """Return the first offset of a partition that the table does not cover."""
        return self.next_offsets.get(partition, 0)


def encode_mark(mark: HistoryMark) -> str:
    """Return the mark as a commit's ``userMetadata``."""
    fields = {
        "topic_id": mark.topic_id,
        "changes_id": mark.changes_id,
        "next_offsets": {str(p): offset for p, offset in sorted(mark.next_offsets.items())},
        "at_ms": {str(p): at_ms for p, at_ms in sorted(mark.at_ms.items())},
    }
    return orjson.dumps({_NAME: fields}).decode()


def commit_metadata(mark: HistoryMark) -> dict[str, str]:
    """Return the mark as metadata of a commit, in the form that delta-rs expects."""
    return {_USER_METADATA: encode_mark(mark)}


def decode_mark(text: str | None) -> HistoryMark | None:
    """Inverse of ``encode_mark``; None if the history process did not write the text.

    Raises:
        ValueError: The mark is damaged, or another version wrote it in another format. The mark of an earlier commit
            must not be used instead, because the table contains more rows.
    """
    try:
        fields = orjson.loads(text or "")[_NAME]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    try:
        return HistoryMark(
            topic_id=fields["topic_id"],
            changes_id=fields["changes_id"],
            next_offsets={int(p): int(offset) for p, offset in fields["next_offsets"].items()},
            at_ms={int(p): int(at_ms) for p, at_ms in fields["at_ms"].items()},
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{text!r} is not a valid mark") from error


def read_mark(table: Storage) -> HistoryMark | None:
    """Return the mark of a table at its newest version; None if the table is missing or has no rows.

    Raises:
        TableSchemaMismatch: The table has rows, but no commit with a mark; or it is damaged.
    """
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):  # a commit was cleaned up after they were listed; newer ones exist
            return _mark_of_log(table)
    raise TableSchemaMismatch(str(table), "commits of its log cannot be opened")


def _mark_of_log(table: Storage) -> HistoryMark | None:
    has_rows = False
    for version in reversed(commit_versions(table)):
        commit = read_commit(table, version)
        if commit is None:
            raise FileNotFoundError(commit_name(version))
        try:
            mark = decode_mark(commit.info.get(_USER_METADATA))
        except ValueError as error:
            raise TableDamaged(str(table), commit_name(version), f"is damaged: {error}") from None
        if mark is not None:
            return mark
        has_rows |= bool(commit.added)
        # Commits before a checkpoint may have been cleaned up.
        has_rows |= version > 0 and table.exists(checkpoint_name(version))
    if has_rows:
        raise TableSchemaMismatch(str(table), "it has rows, but no commit of the history process")
    return None
