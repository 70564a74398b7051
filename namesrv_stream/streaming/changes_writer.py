"""Commits rows and progress to ``route_changes``, each row once whatever Spark delivers twice.

Progress is in the table itself: a commit carries, per partition, the offset below which every row is there. A batch
id decides nothing, for a lost checkpoint starts those again at 0.

It is also the fence between two jobs where no lock reaches both. A commit is made for the version behind the one that
the writer knows; where that is taken, or more have followed, the progress that the table has says whether another job
made it: then this one ends. Where it was somebody's OPTIMIZE, the commit is made behind it. So of two jobs the one that
commits first goes on, the other never writes a row, and no clock has a part in it (ADR 0040).

A commit's file is written here and not by delta-rs, whose cost grows with the files and commits that there are: it is
three kinds of action as the protocol has them, for a table whose protocol is verified whenever it is opened (ADR 0043).
"""

import contextlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from namesrv_stream import __version__
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import NamesrvStreamError, StoreUnreachable, TableSchemaMismatch, TablesTakenOver
from namesrv_stream.location import Location
from namesrv_stream.snapshot import open_table
from namesrv_stream.snapshot.log_files import checkpointed_version, commit_file, log_dir, read_commit
from namesrv_stream.snapshot.table_files import (
    create_file,
    exists,
    names_in,
    open_delta,
    remove,
    transaction_versions,
    write_parquet,
)
from namesrv_stream.tables import (
    CHANGES_SCHEMA,
    ROUTE_CHANGES,
    TABLE_ID_KEY,
    WRITER_KEY,
    app_id,
    from_offsets,
    table_path,
)

_LOG = logging.getLogger(__name__)

_STATISTICS: Final = ("partition", "offset", "seq", "at_ms")
_STORE_RETRY_S: Final = 1.0

_Action = dict[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Commit:
    """What one commit says, and which progress the table has with it."""

    marks: dict[str, str]
    actions: list[_Action]
    reached: dict[int, int]

    def content(self) -> bytes:
        """Its file, made now."""
        info = {
            "timestamp": SystemClock().now_ms(),
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            "engineInfo": f"namesrv-stream/{__version__}",
            "isBlindAppend": True,
            **self.marks,
        }
        lines = [{"commitInfo": info}, *self.actions]
        return b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)


class ChangesWriter:
    """The one writer of ``route_changes``.

    Args:
        tables_dir: Where the tables are.
        topic_id: Kafka's id of the events topic.
        partitions: Of that topic.
        progress_interval_ms: How often progress alone is committed.
    """

    def __init__(self, tables_dir: Location, topic_id: str, partitions: int, progress_interval_ms: int) -> None:
        self._folder = table_path(tables_dir, ROUTE_CHANGES)
        table = self._open()
        # What is at or below it, this job has seen or written.
        self._version = table.version()
        self._app_ids = {p: app_id(topic_id, p) for p in range(partitions)}
        self.committed = self._progress(table)
        self._reached = dict(self.committed)
        self._progress_interval_s = progress_interval_ms / 1000
        self._committed_s = time.monotonic()
        self._id = uuid.uuid4().hex
        self._marks = {WRITER_KEY: self._id, TABLE_ID_KEY: str(table.metadata().id)}
        # Set to 0 by whoever has the files joined.
        self.files_since_join = len(table.file_uris())
        # Why no more can be written, once that is so.
        self.failure: NamesrvStreamError | None = None

    def write(
        self,
        rows: pa.Table,
        next_offsets: Mapping[int, int],
        batch_id: int,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> pa.Table:
        """Commit what the table lacks of one batch; nothing where only progress was made and was told of just now.

        Blocks, for as long as an object store does not answer.

        Args:
            rows: Columns of ``RouteChange``, in log order within each partition.
            next_offsets: partition → offset that the batch reaches there.
            batch_id: Recorded with each row.
            metadata: Told with the commit, if there is one.

        Returns:
            The rows written.

        Raises:
            TablesTakenOver: Another job has written, or this is not the table any more that it was.
            TableSchemaMismatch: Somebody has changed what the table is.
            DeltaError: The table cannot be read.
            OSError: The rows or the commit could not be written.
        """
        fresh = from_offsets(rows, self.committed) if rows.num_rows else rows
        for partition, offset in next_offsets.items():
            self._reached[partition] = max(self._reached[partition], offset)
        is_due = time.monotonic() - self._committed_s >= self._progress_interval_s
        if fresh.num_rows or (is_due and self._reached != self.committed):
            self._commit(fresh, batch_id, metadata)
        return fresh

    def _commit(self, rows: pa.Table, batch_id: int, metadata: Mapping[str, str]) -> None:
        files = [self._outlasting(lambda: self._write_file(rows, batch_id))] if rows.num_rows else []
        advanced = {p: o for p, o in self._reached.items() if o != self.committed[p]}
        actions = [
            *({"add": file} for file in files),
            *({"txn": {"appId": self._app_ids[p], "version": o}} for p, o in sorted(advanced.items())),
        ]
        commit = _Commit({**metadata, **self._marks}, actions, self.committed | advanced)
        try:
            is_made = self._outlasting(lambda: self._attempt(commit, has_looked=False))
            while not is_made:
                is_made = self._outlasting(lambda: self._attempt(commit, has_looked=True))
        except NamesrvStreamError as error:
            self.failure = error
            self._remove_uncommitted(files)
            raise
        except Exception:
            if isinstance(self._folder, Path):  # an object store may make the commit yet
                self._remove_uncommitted(files)
            raise
        self.files_since_join += len(files)
        self.committed.update(advanced)
        self._committed_s = time.monotonic()

    def _attempt(self, commit: _Commit, *, has_looked: bool) -> bool:
        """Commit behind the version that is known; False where something else is known now.

        Args:
            commit: What is to be committed.
            has_looked: Whether the table was opened just now.

        Raises:
            StoreUnreachable: Whether it was made is not known; another attempt finds out, and makes it if not.
            Exception: As ``write``.
        """
        version = self._version + 1
        # Where the version before is gone, this is another table or the log was cleaned up, a day later: behind it any
        # name is free.
        if has_looked or exists(commit_file(self._folder, self._version)):
            with contextlib.suppress(FileExistsError):
                create_file(commit_file(self._folder, version), commit.content())
                # Others may be further on: this may have slept in between.
                if checkpointed_version(self._folder) <= version and not exists(commit_file(self._folder, version + 1)):
                    self._version = version
                    return True
        table = self._open()
        progress = self._progress(table)
        is_same = str(table.metadata().id) == self._marks[TABLE_ID_KEY]
        # Of a commit that was made, the answer may have been lost.
        is_made = is_same and progress == commit.reached and _writer_of(self._folder, version) == self._id
        if not is_made and not (is_same and progress == self.committed):
            raise TablesTakenOver(str(self._folder), table.version())
        self._version = table.version()
        return is_made

    def _open(self) -> DeltaTable:
        """The table at its newest version, verified.

        Raises:
            TableSchemaMismatch: It is none, or not as this version of the code expects.
            StoreUnreachable: The object store does not answer.
            DeltaError: It cannot be read.
        """
        try:
            table = open_table(self._folder, CHANGES_SCHEMA)
        except DeltaError:
            if isinstance(self._folder, Path):
                raise
            # Of a store that does not answer delta-rs says what other clients do not: one of them finds out.
            names_in(log_dir(self._folder))
            table = open_table(self._folder, CHANGES_SCHEMA)
        if table is None:
            raise TableSchemaMismatch(str(self._folder), "it is gone")
        if columns := table.metadata().partition_columns:
            raise TableSchemaMismatch(str(self._folder), f"it is partitioned by {', '.join(columns)}")
        return table

    def _progress(self, table: DeltaTable) -> dict[int, int]:
        """partition → offset, as the table has it; raises StoreUnreachable."""
        return transaction_versions(self._folder, table, self._app_ids)

    def _outlasting(self, work: Callable[[], _T]) -> _T:
        """Do it; while an object store does not answer, again and again: Spark waits meanwhile."""
        is_told = False
        while True:
            try:
                return work()
            except StoreUnreachable as error:
                if not is_told:
                    _LOG.warning("%s; the batch waits for it", error)
                is_told = True
            time.sleep(_STORE_RETRY_S)

    def _remove_uncommitted(self, files: list[_Action]) -> None:
        """Remove the file of a commit that failed: on a full disk each attempt would leave one, for a day."""
        with contextlib.suppress(DeltaError, OSError, StoreUnreachable):  # what it cannot tell, vacuum knows
            used = {a["path"] for a in pa.table(open_delta(self._folder).get_add_actions()).to_pylist()}
            for file in files:
                if file["path"] not in used:
                    remove(self._folder / file["path"])

    def _write_file(self, rows: pa.Table, batch_id: int) -> _Action:
        name = f"changes-{uuid.uuid4()}.parquet"
        batch_ids = pa.repeat(pa.scalar(batch_id, pa.int64()), rows.num_rows)
        whole = rows.append_column(CHANGES_SCHEMA.field("batch_id"), batch_ids).cast(CHANGES_SCHEMA)
        size = write_parquet(self._folder / name, whole)
        return {
            "path": name,
            "partitionValues": {},
            "size": size,
            "modificationTime": SystemClock().now_ms(),
            "dataChange": True,
            "stats": _statistics(whole),
        }


def _writer_of(table: Location, version: int) -> str:
    """Which writer made a commit; "" where it does not say, or was cleaned up: then this job was away for a day."""
    actions = map(orjson.loads, (read_commit(commit_file(table, version)) or b"").splitlines())
    return next((str(action["commitInfo"].get(WRITER_KEY, "")) for action in actions if "commitInfo" in action), "")


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
