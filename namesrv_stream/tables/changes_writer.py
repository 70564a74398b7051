"""Commits rows and progress to ``route_changes``, each row once whatever Spark delivers twice.

Progress is in the table itself: a commit carries, per partition, the offset below which every row is there. A batch id
decides nothing, for it starts again at 0 with each start of the job.
"""

import time
from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.route.fold.folded_log import Progress
from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.delta.table_writer import Change, TableWriter, grown
from namesrv_stream.tables.schema.columns import CHANGES_SCHEMA
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES
from namesrv_stream.tables.schema.rows import from_offsets
from namesrv_stream.tables.storage import Storage


class ChangesWriter:
    """The one writer of ``route_changes``.

    Args:
        tables: Where the tables are.
        progress_interval_ms: How often progress alone is committed.

    Attributes:
        table: What commits.
        has_committed: Whether this writer has made a commit.
    """

    def __init__(self, tables: Storage, progress_interval_ms: int) -> None:
        """Open the table; raises as ``TableWriter``."""
        self.table = TableWriter(tables / ROUTE_CHANGES, CHANGES_SCHEMA)
        self.has_committed = False
        self._reached = dict(self.table.progress)
        self._progress_interval_s = progress_interval_ms / 1000
        self._committed_s = time.monotonic()

    @property
    def committed(self) -> dict[int, int]:
        """partition → first offset that the table does not cover."""
        return {partition: place.next_offset for partition, place in self.table.progress.items()}

    def write(
        self,
        rows: pa.Table,
        reached: Progress,
        batch_id: int,
        metadata: Mapping[str, str] = MappingProxyType({}),
        *,
        is_due: bool = False,
    ) -> pa.Table:
        """Commit what the table lacks of one batch; nothing where only progress was made and was told of just now.

        Blocks, for as long as an object store does not answer.

        Args:
            rows: Columns of ``RouteChange``, in log order within each partition.
            reached: How far the batch comes in the partitions that it is of.
            batch_id: Recorded with each row.
            metadata: Told with the commit, if there is one.
            is_due: Whether to commit progress alone, however short the interval since the last commit was.

        Returns:
            The rows written.

        Raises:
            TablesTakenOver: Another job has written, or this is not the table any more that it was.
            TableSchemaMismatch: Somebody has changed what the table is.
            OSError: The rows or the commit could not be written.
        """
        fresh = from_offsets(rows, self.committed) if rows.num_rows else rows
        for partition, place in reached.items():
            if place.next_offset > self._reached[partition].next_offset:
                self._reached[partition] = place
        advanced = {p: place for p, place in self._reached.items() if place != self.table.progress[p]}
        is_due |= time.monotonic() - self._committed_s >= self._progress_interval_s
        if fresh.num_rows or (is_due and advanced):
            self._commit(fresh, advanced, batch_id, metadata)
        return fresh

    def grow(self, begins: Mapping[int, int]) -> None:
        """Commit that the topic has more partitions from now on.

        Args:
            begins: Each partition to the first offset written for so many, which is how far the table covers it.

        Raises:
            NamesrvStreamError: As ``write``.
        """
        self.table.commit(grown(self.table, Change("WRITE"), begins))

    def _commit(self, rows: pa.Table, advanced: Progress, batch_id: int, metadata: Mapping[str, str]) -> None:
        files: tuple[DataFile, ...] = ()
        try:
            if rows.num_rows:
                batch_ids = pa.repeat(pa.scalar(batch_id, pa.int64()), rows.num_rows)
                whole = rows.append_column(CHANGES_SCHEMA.field("batch_id"), batch_ids).cast(CHANGES_SCHEMA)
                files = (self.table.write_rows(whole),)
            self.table.commit(Change("WRITE", files, advanced=advanced, metadata=metadata))
        except (NamesrvStreamError, OSError):
            self.table.remove_unused(files)
            raise
        self._committed_s = time.monotonic()
        self.has_committed = True
