"""Rows of a Delta table in ranges of offsets, read without Spark: no file is opened that can have none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable


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


def within(begin: Mapping[int, int], end: Mapping[int, int]) -> Any:
    """The condition on rows in ranges: partition → first offset, → the offset after the last."""
    wanted = pc.scalar(False)
    for partition, first in begin.items():
        offset = pc.field("offset")
        wanted = wanted | ((pc.field("partition") == partition) & (offset >= first) & (offset < end[partition]))
    return wanted


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
