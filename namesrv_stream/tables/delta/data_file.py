"""Writes, reads and verifies the data files of tables.

The name of a file contains a hash of its content, so a reader detects every altered byte. Files that other programs
wrote have no such names and are not verified.
The table's log lists each file with the lowest and highest values of four columns, by which readers skip files.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from io import BytesIO
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from namesrv_stream.table_errors import TableDamaged
from namesrv_stream.tables.change_rows import as_read
from namesrv_stream.tables.storage import Storage

#: Columns whose lowest and highest values the log contains per file; ``delta.dataSkippingNumIndexedCols`` is 4.
STATISTICS: Final = ("partition", "offset", "seq", "at_ms")
_PARTITION, _OFFSET, _, _AT_MS = range(len(STATISTICS))
#: Name of the job's files, which contains the hash of the content. Files of other writers are not verified.
_NAMED_BY_CONTENT: Final = re.compile(r"rows-([0-9a-f]{32})\.parquet")
_HASH_BYTES: Final = 16

_Extremes = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table, as the table's log lists it.

    Attributes:
        path: Path relative to the table, URL-encoded.
        size: Size, bytes.
        modified_ms: Time of writing, epoch milliseconds.
        rows: Number of rows; None if the log does not contain it.
        lowest: Lowest value of each column of ``STATISTICS``; None if the log does not contain it.
        highest: Highest values, in the same form.
    """

    path: str
    size: int
    modified_ms: int
    rows: int | None
    lowest: _Extremes
    highest: _Extremes

    @classmethod
    def from_listing(cls, row: Mapping[str, Any]) -> "DataFile":
        """Create the object from a row of delta-rs's flattened list of files."""
        return cls(
            path=row["path"],
            size=row["size_bytes"],
            modified_ms=row["modification_time"],
            rows=row.get("num_records"),
            lowest=tuple(row.get(f"min.{name}") for name in STATISTICS),
            highest=tuple(row.get(f"max.{name}") for name in STATISTICS),
        )

    @classmethod
    def from_add(cls, add: Mapping[str, Any]) -> "DataFile":
        """Create the object from an ``add`` action of a commit."""
        stats = json.loads(add.get("stats") or "{}")
        lowest, highest = stats.get("minValues", {}), stats.get("maxValues", {})
        return cls(
            path=add["path"],
            size=add["size"],
            modified_ms=add["modificationTime"],
            rows=stats.get("numRecords"),
            lowest=tuple(lowest.get(name) for name in STATISTICS),
            highest=tuple(highest.get(name) for name in STATISTICS),
        )

    def add_action(self, *, data_change: bool) -> dict[str, Any]:
        """Return the action that adds the file to the table."""
        stats = {
            "numRecords": self.rows,
            "minValues": dict(zip(STATISTICS, self.lowest, strict=True)),
            "maxValues": dict(zip(STATISTICS, self.highest, strict=True)),
            "nullCount": dict.fromkeys(STATISTICS, 0),
        }
        return {
            "path": self.path,
            "partitionValues": {},
            "size": self.size,
            "modificationTime": self.modified_ms,
            "dataChange": data_change,
            "stats": json.dumps(stats),
        }

    def remove_action(self, now_ms: int, *, data_change: bool) -> dict[str, Any]:
        """Return the action that removes the file from the table."""
        return {
            "path": self.path,
            "deletionTimestamp": now_ms,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": self.size,
        }

    def may_have(self, begin: Mapping[int, int], end: Mapping[int, int] | None = None) -> bool:
        """Whether the file may contain rows in these ranges of offsets, according to its statistics.

        Args:
            begin: Partition → first offset.
            end: Partition → the offset after the last one; None if the ranges have no end.
        """
        lowest, highest = self.lowest[_PARTITION], self.highest[_PARTITION]
        first, last = self.lowest[_OFFSET], self.highest[_OFFSET]
        if lowest is None or highest is None or first is None or last is None:
            return True
        return any(
            last >= offset and (end is None or first < end[partition])
            for partition, offset in begin.items()
            if lowest <= partition <= highest
        )

    def may_have_since(self, at_ms: Mapping[int, int]) -> bool:
        """Whether the file may contain rows that are not older than these times, according to its statistics.

        Offsets alone are not selective: a file has rows of several partitions, and one may be millions of records ahead
        of another. ``at_ms`` never decreases within a partition, and all partitions are at about the same time.

        Args:
            at_ms: Partition → lowest ``at_ms``, epoch milliseconds.
        """
        lowest, highest, newest = self.lowest[_PARTITION], self.highest[_PARTITION], self.highest[_AT_MS]
        if lowest is None or highest is None or newest is None:
            return True
        return any(newest >= since for partition, since in at_ms.items() if lowest <= partition <= highest)

    @property
    def newest_at_ms(self) -> int:
        """Highest ``at_ms`` of its rows, epoch milliseconds; 0 if the log does not contain it."""
        return self.highest[_AT_MS] or 0

    @property
    def oldest_at_ms(self) -> int:
        """Lowest ``at_ms`` of its rows, epoch milliseconds; 0 if the log does not contain it."""
        return self.lowest[_AT_MS] or 0


def digest_of(files: Iterable[DataFile]) -> int:
    """Return a 64-bit digest of a set of files and their statistics, independent of their order."""
    digest = 0
    for file in files:
        text = repr((file.path, file.size, file.rows, file.lowest, file.highest))
        digest ^= int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return digest


def write_rows(table: Storage, rows: pa.Table, now_ms: int) -> DataFile:
    """Write rows as a new data file; durable. It becomes part of the table with a commit.

    Args:
        rows: Columns of the table.
        now_ms: Time of writing, epoch milliseconds.

    Raises:
        OSError: The file could not be written. No part of it is left.
        StoreUnreachable: The object store does not answer.
    """
    content = BytesIO()
    pq.write_table(rows, content, compression="zstd", store_schema=False)
    extremes = [pc.min_max(rows[name]).as_py() for name in STATISTICS]
    lowest, highest = tuple(e["min"] for e in extremes), tuple(e["max"] for e in extremes)
    return write_content(table, content.getvalue(), DataFile("", 0, now_ms, rows.num_rows, lowest, highest))


def write_content(table: Storage, content: bytes, listed: DataFile) -> DataFile:
    """Write the bytes of a Parquet file; durable.

    Args:
        listed: Statistics of the file, without path and size.

    Returns:
        ``listed`` with path and size.
    """
    path = f"rows-{content_hash(content)}.parquet"
    table.write(path, content)
    return replace(listed, path=path, size=len(content))


def read_content(table: Storage, path: str) -> bytes:
    """Return the bytes of a data file, verified if its name contains their hash.

    Args:
        path: Path of the file, as in the table's log.

    Raises:
        TableDamaged: The file is missing, or its content does not have the hash in its name.
        StoreUnreachable: The object store does not answer.
    """
    name = unquote(path)
    try:
        content = table.read(name)
    except FileNotFoundError:
        raise TableDamaged(str(table), name, "is missing") from None
    expected = _NAMED_BY_CONTENT.fullmatch(name)
    if expected is not None and content_hash(content) != expected[1]:
        raise TableDamaged(str(table), name, f"is damaged: its {len(content)} bytes are not those that were written")
    return content


def read_rows(table: Storage, path: str, dictionaries: Sequence[str] = ()) -> pa.Table:
    """Return all rows of a data file. Raises the errors of ``read_content``.

    Args:
        path: Path of the file, as in the table's log.
        dictionaries: Columns to read as dictionaries.
    """
    content = read_content(table, path)
    try:
        # ``pq.read_table`` does the same, but loads pyarrow's dataset library, which servers do not need.
        return pq.ParquetFile(pa.BufferReader(content), read_dictionary=list(dictionaries)).read()
    except (pa.ArrowException, OSError) as error:
        raise TableDamaged(str(table), unquote(path), f"cannot be read: {error}") from None


def read_files(table: Storage, files: Iterable[DataFile], schema: pa.Schema) -> pa.Table:
    """Return the rows of data files, with the columns of ``as_read(schema)``. Raises the errors of ``read_content``."""
    wanted = as_read(schema)
    dictionaries = [field.name for field in wanted if pa.types.is_dictionary(field.type)]
    tables = [read_rows(table, file.path, dictionaries).cast(wanted) for file in files]
    return pa.concat_tables(tables) if tables else wanted.empty_table()


def content_hash(content: bytes) -> str:
    """Return the hash of a file's bytes: 128 bits, in hexadecimal digits."""
    return blake2b(content, digest_size=_HASH_BYTES).hexdigest()
