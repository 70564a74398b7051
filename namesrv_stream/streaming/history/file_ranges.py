"""Rows of a Delta table in ranges of offsets, read without Spark: no file is opened that can have none."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

#: What is read of a file at once, bytes.
_BUFFER_BYTES: Final = 1 << 20


class FileRanges:
    """The files of a table at one version, with their statistics of ``partition`` and ``offset``.

    Args:
        table: The table; its files have both columns.
        folder: Its folder.
        schema: Columns of its files.
    """

    def __init__(self, table: DeltaTable, folder: Path, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = schema
        self._files: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()

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
        paths = [
            str(self._folder / unquote(file["path"])) for file in self._files if _may_have(file, begin, end, since_ms)
        ]
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


def _may_have(
    file: Mapping[str, Any],
    begin: Mapping[int, int],
    end: Mapping[int, int],
    since_ms: Mapping[int, int] | None,
) -> bool:
    lowest, highest = file.get("min.partition"), file.get("max.partition")
    first, last = file.get("min.offset"), file.get("max.offset")
    if lowest is None or highest is None or first is None or last is None:
        return True
    at_ms = file.get("max.at_ms")
    return any(
        last >= begin[p] and first < end[p] and (since_ms is None or at_ms is None or at_ms >= since_ms.get(p, 0))
        for p in begin
        if lowest <= p <= highest and begin[p] < end[p]
    )
