"""Rows of a Delta table in ranges of offsets, read without Spark: no file is opened that can have none."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.delta.table_version import open_delta
from namesrv_stream.tables.storage import Storage

#: What is read of a file at once, bytes.
_BUFFER_BYTES: Final = 1 << 20


class FileRanges:
    """The files of a table at one version, with their statistics of ``partition`` and ``offset``.

    Args:
        storage: Where the table is: a folder.
        files: Its files; they have both columns.
        schema: Columns of its files.
    """

    def __init__(self, storage: Storage, files: Iterable[DataFile], schema: pa.Schema) -> None:
        self._storage = storage
        self._schema = schema
        self._files = list(files)

    @classmethod
    def open(cls, storage: Storage, schema: pa.Schema) -> "FileRanges":
        """Any Delta table at its newest version; raises as ``open_delta``."""
        listed = pa.table(open_delta(storage).get_add_actions(flatten=True)).to_pylist()
        return cls(storage, map(DataFile.from_listing, listed), schema)

    def dataset(
        self, begin: Mapping[int, int], end: Mapping[int, int], since_ms: Mapping[int, int] | None = None
    ) -> ds.Dataset:
        """The files that may have rows in ranges; ``within`` filters the rows themselves.

        Args:
            begin: partition → first offset.
            end: The same partitions → the offset after the last.
            since_ms: Of a table with ``at_ms``: partition → no row from ``begin`` on has a lower one. It tells more
                than offsets, of which a file may hold those of several partitions far from each other.
        """
        ranges = {p: first for p, first in begin.items() if first < end[p]}
        since = {p: (since_ms or {}).get(p, 0) for p in ranges}
        wanted = [f for f in self._files if f.may_have(ranges, end) and f.may_have_since(since)]
        paths = [f"{self._storage}/{unquote(file.path)}" for file in wanted]
        return ds.dataset(paths, schema=self._schema, format="parquet")

    def batches(
        self, begin: Mapping[int, int], end: Mapping[int, int], columns: Sequence[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Rows in ranges, so that only a few of them are in memory at a time; blocks.

        A scan of ``dataset`` decodes whole row groups, of a hundred megabytes maybe, however few rows it hands out.

        Args:
            begin: partition → first offset.
            end: The same partitions → the offset after the last.
            columns: All there in each file, ``partition`` and ``offset`` among them.
            rows: How many at most in a batch.
        """
        wanted = within(begin, end)
        for fragment in self.dataset(begin, end).get_fragments():
            row_groups = [group.id for group in fragment.subset(wanted, schema=self._schema).row_groups]
            with pq.ParquetFile(fragment.path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
                for batch in file.iter_batches(rows, row_groups, list(columns), use_threads=False):
                    yield batch.filter(_is_within(batch, begin, end))


def within(begin: Mapping[int, int], end: Mapping[int, int]) -> Any:
    """The condition on rows in ranges: partition → first offset, → the offset after the last."""
    wanted = pc.scalar(False)
    for partition, first in begin.items():
        offset = pc.field("offset")
        wanted = wanted | ((pc.field("partition") == partition) & (offset >= first) & (offset < end[partition]))
    return wanted


def _is_within(batch: pa.RecordBatch, begin: Mapping[int, int], end: Mapping[int, int]) -> pa.Array:
    """Of each row, what ``within`` says; of few rows Arrow's expressions take a hundred times longer."""
    partition, offset = batch["partition"].to_numpy(), batch["offset"].to_numpy()
    wanted = np.zeros(batch.num_rows, np.bool_)
    for p, first in begin.items():
        wanted |= (partition == p) & (offset >= first) & (offset < end[p])
    return pa.array(wanted)
