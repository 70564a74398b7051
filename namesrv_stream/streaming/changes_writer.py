"""Commits rows and progress to ``route_changes``, each row once whatever Spark delivers twice.

Progress is in the table itself: a commit carries, per partition, the offset below which every row is there. A batch
id decides nothing, for a lost checkpoint starts those again at 0.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from namesrv_stream.tables import CHANGES_SCHEMA, ROUTE_CHANGES, app_id, from_offsets, table_path

_STATISTICS = ("partition", "offset", "seq", "at_ms")
# Checkpoints and clean-up are the compaction thread's: they must not hold up a batch.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class ChangesWriter:
    """The one writer of ``route_changes``.

    Args:
        tables_dir: Folder of the tables.
        topic_id: Kafka's id of the events topic.
        partitions: Of that topic.
        progress_interval_ms: How often progress alone is committed.
    """

    def __init__(self, tables_dir: Path, topic_id: str, partitions: int, progress_interval_ms: int) -> None:
        self._folder = table_path(tables_dir, ROUTE_CHANGES)
        self._table = DeltaTable(self._folder)
        self._app_ids = {p: app_id(topic_id, p) for p in range(partitions)}
        self.committed = {p: self._table.transaction_version(a) or 0 for p, a in self._app_ids.items()}
        self._reached = dict(self.committed)
        self._progress_interval_s = progress_interval_ms / 1000
        self._committed_s = time.monotonic()
        # Set to 0 by whoever has the files joined.
        self.files_since_join = len(self._table.file_uris())

    def write(
        self,
        rows: pa.Table,
        next_offsets: Mapping[int, int],
        batch_id: int,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> pa.Table:
        """Commit what the table lacks of one batch; nothing where only progress was made and was told of just now.

        Args:
            rows: Columns of ``RouteChange``, in log order within each partition.
            next_offsets: partition → offset that the batch reaches there.
            batch_id: Recorded with each row.
            metadata: Told with the commit, if there is one.

        Returns:
            The rows written.
        """
        fresh = from_offsets(rows, self.committed) if rows.num_rows else rows
        for partition, offset in next_offsets.items():
            self._reached[partition] = max(self._reached[partition], offset)
        is_due = time.monotonic() - self._committed_s >= self._progress_interval_s
        if fresh.num_rows or (is_due and self._reached != self.committed):
            self._commit(fresh, batch_id, metadata)
        return fresh

    def _commit(self, rows: pa.Table, batch_id: int, metadata: Mapping[str, str]) -> None:
        actions: list[AddAction | RemoveAction] = [self._write_file(rows, batch_id)] if rows.num_rows else []
        advanced = {p: o for p, o in self._reached.items() if o != self.committed[p]}
        transactions = [Transaction(self._app_ids[p], o) for p, o in sorted(advanced.items())]
        try:
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=CHANGES_SCHEMA,
                commit_properties=CommitProperties(dict(metadata), app_transactions=transactions),
                post_commithook_properties=_NO_HOOKS,
            )
        except Exception:
            self._remove_uncommitted(actions)
            raise
        # The handle stays at the version it committed on; without this the next commit would conflict with this one.
        self._table.update_incremental()
        self.files_since_join += len(actions)
        self.committed.update(advanced)
        self._committed_s = time.monotonic()

    def _remove_uncommitted(self, files: list[AddAction | RemoveAction]) -> None:
        """Remove the file of a commit that failed: on a full disk each attempt would leave one, for a day."""
        with contextlib.suppress(DeltaError, OSError):  # a table that cannot be read may have the file: vacuum knows
            used = {a["path"] for a in pa.table(DeltaTable(self._folder).get_add_actions()).to_pylist()}
            for file in files:
                if file.path not in used:
                    (self._folder / file.path).unlink()

    def _write_file(self, rows: pa.Table, batch_id: int) -> AddAction:
        name = f"changes-{uuid.uuid4()}.parquet"
        path = self._folder / name
        batch_ids = pa.repeat(pa.scalar(batch_id, pa.int64()), rows.num_rows)
        whole = rows.append_column(CHANGES_SCHEMA.field("batch_id"), batch_ids).cast(CHANGES_SCHEMA)
        try:
            pq.write_table(whole, path, compression="zstd", store_schema=False)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        status = os.stat(path)
        return AddAction(name, status.st_size, {}, int(status.st_mtime * 1000), True, _statistics(whole))


def _statistics(rows: pa.Table) -> str:
    """Delta's statistics of a file, by which readers skip it."""
    extremes = {name: pc.min_max(rows[name]).as_py() for name in _STATISTICS}
    return json.dumps(
        {
            "numRecords": rows.num_rows,
            "minValues": {name: e["min"] for name, e in extremes.items()},
            "maxValues": {name: e["max"] for name, e in extremes.items()},
            "nullCount": dict.fromkeys(_STATISTICS, 0),
        }
    )
