"""Data files: written once, named after their content, and verified whenever they are read.

The name contains a hash of the content, so a reader notices every altered byte. Each file is listed in the table's log
with the lowest and highest values of four columns, by which readers skip it.
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

from namesrv_stream.errors import TableDamaged
from namesrv_stream.tables.schema.columns import as_read
from namesrv_stream.tables.storage import Storage

#: Columns whose lowest and highest values the log has for each file: ``delta.dataSkippingNumIndexedCols`` is 4.
STATISTICS: Final = ("partition", "offset", "seq", "at_ms")
_PARTITION, _OFFSET, _, _AT_MS = range(len(STATISTICS))
#: A file of ours: its name ends with the hash of its content. Files of other writers are not verified.
_NAMED_BY_CONTENT: Final = re.compile(r"rows-([0-9a-f]{32})\.parquet")
_HASH_BYTES: Final = 16

_Extremes = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table, as the table's log lists it.

    Attributes:
        path: Relative to the table, URL-encoded.
        size: Bytes.
        modified_ms: When it was written, epoch milliseconds.
        rows: How many it has; None where the log does not say.
        lowest: Lowest value of each column of ``STATISTICS``; None where the log does not say.
        highest: Highest values.
    """

    path: str
    size: int
    modified_ms: int
    rows: int | None
    lowest: _Extremes
    highest: _Extremes

    @classmethod
    def from_listing(cls, row: Mapping[str, Any]) -> "DataFile":
        """From a row of delta-rs's flattened list of files."""
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
        """From an ``add`` action of a commit."""
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
        """The action that makes it part of the table."""
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
        """The action that removes it from the table."""
        return {
            "path": self.path,
            "deletionTimestamp": now_ms,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": self.size,
        }

    def may_have(self, begin: Mapping[int, int], end: Mapping[int, int] | None = None) -> bool:
        """Whether it may have rows of these ranges of offsets.

        Args:
            begin: partition → first offset.
            end: partition → the offset after the last; where absent, the range has no end.
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
        """Whether it may have rows that are not older: partition → lowest ``at_ms``.

        Offsets alone do not tell: a file has rows of several partitions, of which one may be millions of records ahead
        of another. ``at_ms`` never falls within a partition, and all partitions are near the same moment.
        """
        lowest, highest, newest = self.lowest[_PARTITION], self.highest[_PARTITION], self.highest[_AT_MS]
        if lowest is None or highest is None or newest is None:
            return True
        return any(newest >= since for partition, since in at_ms.items() if lowest <= partition <= highest)

    @property
    def newest_at_ms(self) -> int:
        """Highest ``at_ms`` of its rows, epoch milliseconds; 0 where the log does not say."""
        return self.highest[_AT_MS] or 0

    @property
    def oldest_at_ms(self) -> int:
        """Lowest ``at_ms`` of its rows, epoch milliseconds; 0 where the log does not say."""
        return self.lowest[_AT_MS] or 0


def digest_of(files: Iterable[DataFile]) -> int:
    """One number for a set of files, in any order; another one if any file or figure differs (64 bits)."""
    digest = 0
    for file in files:
        text = repr((file.path, file.size, file.rows, file.lowest, file.highest))
        digest ^= int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return digest


def write_rows(table: Storage, rows: pa.Table, now_ms: int) -> DataFile:
    """Write rows as a new data file; durable. It becomes part of the table with a commit.

    Args:
        table: Where.
        rows: Columns of the table.
        now_ms: Epoch milliseconds.

    Raises:
        OSError: It could not be written. Nothing of it is left.
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
        table: Where.
        content: The file.
        listed: Its figures; path and size are filled in.

    Returns:
        ``listed`` with path and size.
    """
    path = f"rows-{content_hash(content)}.parquet"
    table.write(path, content)
    return replace(listed, path=path, size=len(content))


def read_content(table: Storage, path: str) -> bytes:
    """The bytes of a data file, verified.

    Args:
        table: Where.
        path: As the log has it.

    Raises:
        TableDamaged: It is missing, cut short or altered.
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
    """All rows of a data file; raises as ``read_content``.

    Args:
        table: Where.
        path: As the log has it.
        dictionaries: Columns to be read as dictionaries.
    """
    content = read_content(table, path)
    try:
        # ``pq.read_table`` would do the same, and load the datasets' library for it, which no server needs.
        return pq.ParquetFile(pa.BufferReader(content), read_dictionary=list(dictionaries)).read()
    except (pa.ArrowException, OSError) as error:
        raise TableDamaged(str(table), unquote(path), f"cannot be read: {error}") from None


def read_files(table: Storage, files: Iterable[DataFile], schema: pa.Schema) -> pa.Table:
    """Rows of some data files, columns of ``as_read(schema)``; raises as ``read_content``."""
    wanted = as_read(schema)
    dictionaries = [field.name for field in wanted if pa.types.is_dictionary(field.type)]
    tables = [read_rows(table, file.path, dictionaries).cast(wanted) for file in files]
    return pa.concat_tables(tables) if tables else wanted.empty_table()


def content_hash(content: bytes) -> str:
    """What tells the bytes of a file from others: 128 bits, in hexadecimal digits."""
    return blake2b(content, digest_size=_HASH_BYTES).hexdigest()
