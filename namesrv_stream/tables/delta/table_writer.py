"""Commits to one table. Of several writing processes, only the first one to commit continues.

A commit is made for the version after the newest one that the writer knows. If that version exists already, its commit
decides. If it only rearranges files (an OPTIMIZE), the writer accepts it, and makes its own commit after it. Any other
commit means that another job has written, or that the table was changed, and this writer fails. So of two jobs, the
one that commits first continues, and the other one never writes a row. No clock is involved (ADR 0040).

The commit is written here instead of by delta-rs for two reasons (ADR 0049): it is on disk before any reader sees it,
and its cost does not grow with the number of commits.
"""

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from namesrv_stream import __version__
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import StoreUnreachable
from namesrv_stream.route.fold.folded_log import Place, Progress
from namesrv_stream.table_errors import TableSchemaMismatch, TablesTakenOver
from namesrv_stream.tables.delta.commit import (
    LAST_CHECKPOINT,
    Change,
    Checkpoint,
    Identity,
    checkpoint_name,
    checkpointed_version,
    commit_name,
    decode_commit,
    encode_commit,
)
from namesrv_stream.tables.delta.data_file import DataFile, content_hash, digest_of, write_rows
from namesrv_stream.tables.delta.open_table import open_delta
from namesrv_stream.tables.delta.table_version import TableVersion, open_version
from namesrv_stream.tables.layout import app_id, partition_properties
from namesrv_stream.tables.storage import Storage

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_STORE_RETRY_S: Final = 1.0
#: Number of commits that are synced at the start. delta-rs makes two for a VACUUM and does not sync them.
_SYNCED: Final = 3


class TableWriter:
    """The only writer of a table in this process. Any thread may commit.

    Args:
        storage: Storage of the table.
        schema: Columns of the table.

    Attributes:
        version: The newest known version.
        progress: How far the table covers the log.
        topic_id: Kafka's id of the topic from which the table is made.
        removed_below: Partition → the offset below which rows were removed before the table was opened; 0 if none were.
    """

    def __init__(self, storage: Storage, schema: pa.Schema) -> None:
        """Open the table.

        Raises:
            TableSchemaMismatch: There is no table, or it has an unexpected schema.
            StoreUnreachable: The object store does not answer.
        """
        self.storage = storage
        self._schema = schema
        table = self._open()
        self.version = table.version
        self.progress: dict[int, Place] = dict(table.progress)
        self._table_id = table.table_id
        self.topic_id = table.topic_id
        self._files = {file.path: file for file in table.files}
        self._checkpoint = table.checkpoint
        self.removed_below = table.removed_below()
        self._id = uuid.uuid4().hex
        self._newest = self._read(self.version)
        # The commits on which the next one depends must be durable, whichever process wrote them.
        storage.sync(commit_name(version) for version in range(max(0, self.version - _SYNCED), self.version + 1))
        self._lock = threading.Lock()

    def files(self) -> list[DataFile]:
        """Return the data files of the table."""
        with self._lock:
            return list(self._files.values())

    def write_rows(self, rows: pa.Table) -> DataFile:
        """Write rows as a data file for a commit; durable. Waits while an object store does not answer.

        Raises:
            OSError: The file could not be written. No part of it is left.
        """
        return self._retrying(lambda: write_rows(self.storage, rows, SystemClock().now_ms()))

    def commit(self, change: Change) -> None:
        """Commit a change, which is durable when this returns. Waits while an object store does not answer.

        Raises:
            TablesTakenOver: Another job has written, or the table was replaced.
            TableSchemaMismatch: The schema or the properties of the table were changed.
            OSError: The commit could not be written.
            KeyError: A file to remove is not in the table (any more).
        """
        with self._lock:
            while True:
                for file in change.removed:
                    _ = self._files[file.path]
                content = self._encode(change)
                if self._retrying(partial(self._attempt, content, {**self.progress, **change.advanced})):
                    self._apply(change.added, (file.path for file in change.removed), change.advanced)
                    self._newest = content
                    return

    def remove_unused(self, files: Iterable[DataFile]) -> None:
        """Remove data files of a failed commit, unless the newest version of the table contains them.

        Without this, every attempt on a full disk would leave a file for a day. If the table cannot be read now, VACUUM
        removes the files later.
        """
        with contextlib.suppress(DeltaError, OSError, StoreUnreachable):
            used = set(pa.table(open_delta(self.storage).get_add_actions())["path"].to_pylist())
            for file in files:
                if file.path not in used:
                    self.storage.remove(file.path)

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version, sync it, and commit its hash.

        Raises:
            deltalake.exceptions.DeltaError: The checkpoint could not be written.
            StoreUnreachable: The object store does not answer.
        """
        table = open_delta(self.storage)
        with self.storage.reaching():
            table.create_checkpoint()
        name = checkpoint_name(table.version())
        self.storage.sync([name, LAST_CHECKPOINT])
        self._checkpoint = Checkpoint(table.version(), content_hash(self.storage.read(name)))
        self.commit(Change("CHECKPOINT"))

    def _retrying(self, work: Callable[[], _T]) -> _T:
        """Call ``work``, and repeat it while the object store does not answer."""
        is_logged = False
        while True:
            try:
                return work()
            except StoreUnreachable as error:
                if not is_logged:
                    logger.warning("waiting for the object store reason=%s", error)
                is_logged = True
            time.sleep(_STORE_RETRY_S)

    def _encode(self, change: Change) -> bytes:
        now_ms = SystemClock().now_ms()
        files = self._files.keys() - {file.path for file in change.removed}
        digest = digest_of([*(self._files[path] for path in files), *change.added])
        progress = {**self.progress, **change.advanced}
        identity = Identity(self._id, self._table_id, self.progress, progress, digest, self._checkpoint)
        info = {
            "timestamp": now_ms,
            "operation": change.operation,
            "operationParameters": {"mode": "Append", "partitionBy": "[]"} if change.operation == "WRITE" else {},
            "engineInfo": f"namesrv-stream/{__version__}",
            "isBlindAppend": change.operation == "WRITE" and not change.removed,
            **change.metadata,
            **identity.to_info(),
        }
        advanced = {app_id(self.topic_id, p): place.next_offset for p, place in sorted(change.advanced.items())}
        transactions = {**advanced, **change.transactions}
        actions: list[dict[str, Any]] = [
            *([self._metadata(change.begins)] if change.begins else []),
            *({"txn": {"appId": name, "version": version}} for name, version in transactions.items()),
            *({"remove": f.remove_action(now_ms, data_change=change.changes_rows)} for f in change.removed),
            *({"add": f.add_action(data_change=change.changes_rows)} for f in change.added),
        ]
        return encode_commit(info, actions)

    def _metadata(self, begins: Mapping[int, int]) -> dict[str, Any]:
        """Return the action that sets the number of partitions in the table's properties."""
        table = open_delta(self.storage)
        found = table.metadata()
        fields = {
            "id": str(found.id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": [],
            "configuration": {**found.configuration, **partition_properties(len(begins), begins)},
            "createdTime": found.created_time,
        }
        return {"metaData": fields}

    def _attempt(self, content: bytes, progress: Progress) -> bool:
        """Try to commit the version after the known one. If it exists already, make it the known one, and return False.

        Args:
            content: The encoded commit.
            progress: How far the table covers the log after the commit.
        """
        version = self.version + 1
        # If the version before is missing, the table was replaced, or its log was cleaned up after a day. Any new
        # version could then be written without a conflict, so this must be checked.
        if self._read(self.version) != self._newest:
            raise self._taken_over(self.version)
        try:
            self.storage.create(commit_name(version), content)
        except FileExistsError:
            found = self._read(version)
            if found != content:  # otherwise an earlier attempt succeeded, but its answer was lost
                self._accept(version, found)
                return False
        # If this process was suspended for a day before it wrote the commit, the commit is not part of the table.
        if checkpointed_version(self.storage) > version or self.storage.exists(commit_name(version + 1)):
            table = self._open()
            if table.table_id != self._table_id or table.progress != progress:
                raise TablesTakenOver(str(self.storage), table.version)
        self.version = version
        return True

    def _accept(self, version: int, content: bytes) -> None:
        """Accept an unexpected commit, if this writer made it or it only rearranges files.

        Raises:
            TablesTakenOver: The commit of another writer does more than rearrange files.
        """
        commit = decode_commit(self.storage, version, content)
        is_own = commit.identity is not None and commit.identity.writer == self._id
        if commit.changes_table or not (is_own or commit.only_rearranges):
            raise self._taken_over(version)
        # The commit and files on which the next commit depends must be durable.
        self.storage.sync([commit_name(version), *(file.path for file in commit.added)])
        self._apply(commit.added, commit.removed, commit.identity.progress if commit.identity else {})
        self.version, self._newest = version, content

    def _apply(self, added: Iterable[DataFile], removed: Iterable[str], progress: Progress) -> None:
        for path in removed:
            self._files.pop(path, None)
        self._files |= {file.path: file for file in added}
        self.progress.update(progress)

    def _taken_over(self, version: int) -> TableSchemaMismatch | TablesTakenOver:
        try:
            self._open()
        except TableSchemaMismatch as error:
            return error
        return TablesTakenOver(str(self.storage), version)

    def _read(self, version: int) -> bytes:
        try:
            return self.storage.read(commit_name(version))
        except FileNotFoundError:
            return b""

    def _open(self) -> TableVersion:
        table = open_version(self.storage, self._schema)
        if table is None:
            raise TableSchemaMismatch(str(self.storage), "it does not exist any more")
        return table


def grown(table: TableWriter, change: Change, begins: Mapping[int, int]) -> Change:
    """Return the change, extended to record that partitions were added to the topic.

    The table covers an added partition up to its offset in ``begins``.
    """
    new = {partition: Place(offset) for partition, offset in begins.items() if partition not in table.progress}
    return replace(change, begins=begins, advanced={**change.advanced, **new})
