"""Rows of ``route_changes`` above a mark, a bounded number at a time; read without Spark, which need not follow it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.tables.delta.file_ranges import FileRanges, within
from namesrv_stream.tables.delta.table_version import open_version
from namesrv_stream.tables.schema.columns import CHANGES_SCHEMA, ROW_SCHEMA
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES
from namesrv_stream.tables.schema.rows import in_log_order
from namesrv_stream.tables.storage import Storage


@dataclass(frozen=True, slots=True)
class ChangesSource:
    """``route_changes`` at one version.

    Attributes:
        topic_id: Of the topic it was made from.
        changes_id: Delta's id of the table: another one after a rebuild.
        committed: partition → first offset that it does not cover.
        removed_below: partition → first offset from which on no row has been removed for its age.
    """

    topic_id: str
    changes_id: str
    committed: Mapping[int, int]
    removed_below: Mapping[int, int]
    _files: FileRanges

    @classmethod
    def open(cls, tables: Storage) -> "ChangesSource | None":
        """The newest version; None where the job has not made the table yet; blocks.

        Raises:
            TableSchemaMismatch: It is not as this version of the code expects.
        """
        table = open_version(tables / ROUTE_CHANGES, CHANGES_SCHEMA)
        if table is None:
            return None
        files = FileRanges(table.storage, table.files, CHANGES_SCHEMA)
        return cls(table.topic_id, table.table_id, table.next_offsets, table.removed_below(), files)

    def rows(
        self,
        kinds: Collection[str],
        begin: Mapping[int, int],
        end: Mapping[int, int],
        since_ms: Mapping[int, int],
        limit: int,
    ) -> tuple[pa.Table, dict[int, int]]:
        """Rows of some kinds in ranges of offsets; blocks.

        Args:
            kinds: Values of ``kind``.
            begin: partition → first offset.
            end: The same partitions → the offset after the last.
            since_ms: partition → no row from ``begin`` on has a lower ``at_ms``.
            limit: How many rows at most; of a record all or none, and of each partition at least one record.

        Returns:
            The rows in log order, columns of ``RouteChange``, and ``end`` as far as they reach.
        """
        dataset = self._files.dataset(begin, end, since_ms)
        if not dataset.files:
            return ROW_SCHEMA.empty_table(), dict(end)
        of_kind = pc.field("kind").isin(sorted(kinds))
        places = dataset.to_table(columns=["partition", "offset"], filter=of_kind & within(begin, end))
        reached = _bounded(places, end, limit) if places.num_rows > limit else dict(end)
        found = dataset.to_table(columns=ROW_SCHEMA.names, filter=of_kind & within(begin, reached))
        return in_log_order(found.cast(ROW_SCHEMA)), reached


def _bounded(places: pa.Table, end: Mapping[int, int], limit: int) -> dict[int, int]:
    """``end``, lowered so far that each partition has no more than its share of the limit, or one record."""
    partitions = places["partition"].to_numpy()
    offsets = places["offset"].to_numpy()
    present = np.unique(partitions)
    share = max(1, limit // len(present))
    reached = dict(end)
    for partition in present.tolist():
        own = np.sort(offsets[partitions == partition])
        if len(own) > share:
            # The record of the first row too many is left out, unless it is the first record of all.
            reached[partition] = int(own[share]) if own[share] > own[0] else int(own[0]) + 1
    return reached
