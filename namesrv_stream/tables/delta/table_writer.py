"""Commits to one table; of all processes that try, one goes on.

A commit is made for the version behind the newest that the writer knows. Where that version is taken, the commit that
took it decides: one that only rearranges files (an OPTIMIZE) is taken over and the own commit is made behind it; any
other is of another job, or somebody has changed the table, and this writer ends. So of two jobs the one that commits
first goes on, the other never writes a row, and no clock has a part in it (ADR 0040).

The file is written here and not by delta-rs for two reasons (ADR 0049): it is on disk before anybody sees it, and its
cost does not grow with the number of commits.
"""

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from namesrv_stream import __version__
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import StoreUnreachable, TableSchemaMismatch, TablesTakenOver
from namesrv_stream.route.fold.folded_log import Place, Progress
from namesrv_stream.tables.delta.commit import (
    LAST_CHECKPOINT,
    Checkpoint,
    Commit,
    Identity,
    checkpoint_name,
    checkpointed_version,
    commit_name,
    decode_commit,
    encode_commit,
)
from namesrv_stream.tables.delta.data_file import DataFile, content_hash, digest_of, write_rows
from namesrv_stream.tables.delta.table_version import TableVersion, open_delta, open_version
from namesrv_stream.tables.schema.layout import app_id, partition_properties
from namesrv_stream.tables.storage import Storage

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")
_STORE_RETRY_S: Final = 1.0
#: delta-rs makes two commits for a VACUUM and does not sync them.
_SYNCED: Final = 3


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit is to change.

    Attributes:
        operation: Delta's name of it: WRITE, OPTIMIZE, DELETE; or CHECKPOINT, which changes nothing.
        added: Data files, already written.
        removed: Data files that the table has.
        advanced: Partitions that are covered further with it.
        transactions: Application id → version, of more than progress.
        metadata: More fields of ``commitInfo``.
        begins: Where the topic has more partitions from now on: each to the first offset written for so many.
    """

    operation: str
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    advanced: Progress = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)

    @property
    def changes_rows(self) -> bool:
        """Whether it is more than a rearrangement."""
        return self.operation != "OPTIMIZE"


class TableWriter:
    """The one writer of a table in this process; any thread may commit.

    Args:
        storage: Where the table is.
        schema: Its columns.

    Attributes:
        version: The newest version that is known.
        progress: How far the table covers the log.
        topic_id: Kafka's id of the topic from which it is made.
        removed_below: partition → first offset from which on no row had been removed for its age when it was opened.
    """

    def __init__(self, storage: Storage, schema: pa.Schema) -> None:
        """Open the table.

        Raises:
            TableSchemaMismatch: There is none, or it is not as this version of the code expects.
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
        # What the next commit builds on must not be lost without it, no matter which process wrote it.
        storage.sync(commit_name(version) for version in range(max(0, self.version - _SYNCED), self.version + 1))
        self._lock = threading.Lock()

    def files(self) -> list[DataFile]:
        """The table's data files."""
        with self._lock:
            return list(self._files.values())

    def write_rows(self, rows: pa.Table) -> DataFile:
        """Write rows as a data file, to be committed; durable. Waits for an object store that does not answer.

        Raises:
            OSError: It could not be written. Nothing of it is left.
        """
        return self._outlast(lambda: write_rows(self.storage, rows, SystemClock().now_ms()))

    def commit(self, change: Change) -> None:
        """Make a change; durable when this returns. Waits for an object store that does not answer.

        Raises:
            TablesTakenOver: Another job has written, or this is not the table any more that it was.
            TableSchemaMismatch: Somebody has changed what the table is.
            OSError: It could not be written.
            KeyError: A file to remove is not in the table (any more).
        """
        with self._lock:
            while True:
                for file in change.removed:
                    _ = self._files[file.path]
                content = self._encode(change)
                if self._outlast(partial(self._attempt, content, {**self.progress, **change.advanced})):
                    self._apply(change.added, (file.path for file in change.removed), change.advanced)
                    self._newest = content
                    return

    def remove_unused(self, files: Iterable[DataFile]) -> None:
        """Remove data files of a commit that failed, unless the table has them at its newest version.

        On a full disk each attempt would leave one, for a day. What cannot be told here, VACUUM knows later.
        """
        with contextlib.suppress(DeltaError, OSError, StoreUnreachable):
            used = set(pa.table(open_delta(self.storage).get_add_actions())["path"].to_pylist())
            for file in files:
                if file.path not in used:
                    self.storage.remove(file.path)

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version, sync it, and commit its hash.

        Raises:
            deltalake.exceptions.DeltaError: It cannot be made.
            StoreUnreachable: The object store does not answer.
        """
        table = open_delta(self.storage)
        with self.storage.reaching():
            table.create_checkpoint()
        name = checkpoint_name(table.version())
        self.storage.sync([name, LAST_CHECKPOINT])
        self._checkpoint = Checkpoint(table.version(), content_hash(self.storage.read(name)))
        self.commit(Change("CHECKPOINT"))

    def _outlast(self, work: Callable[[], _T]) -> _T:
        """Do something; while the object store does not answer, wait and try again."""
        is_logged = False
        while True:
            try:
                return work()
            except StoreUnreachable as error:
                if not is_logged:
                    _LOG.warning("waiting for the object store: %s", error)
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
        """The action that gives the table another number of partitions."""
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
        """Commit behind the version that is known; False where another one is known now.

        Args:
            content: The commit.
            progress: How far the table reaches with it.
        """
        version = self.version + 1
        # Without the version before, this is another table, or the log was cleaned up, a day later: any name is free.
        if self._read(self.version) != self._newest:
            raise self._taken_over(self.version)
        try:
            self.storage.create(commit_name(version), content)
        except FileExistsError:
            found = self._read(version)
            if found != content:  # else the answer of an earlier attempt was lost
                self._take_over(version, found)
                return False
        # This process may have slept for a day before it wrote the commit, which then is no part of the table.
        if checkpointed_version(self.storage) > version or self.storage.exists(commit_name(version + 1)):
            table = self._open()
            if table.table_id != self._table_id or table.progress != progress:
                raise TablesTakenOver(str(self.storage), table.version)
        self.version = version
        return True

    def _take_over(self, version: int, content: bytes) -> None:
        """Go on behind a commit that was not expected.

        Raises:
            TablesTakenOver: It says more than that files were rearranged.
        """
        commit = decode_commit(self.storage, version, content)
        is_own = commit.identity is not None and commit.identity.writer == self._id
        if commit.changes_table or not (is_own or _only_rearranges(commit)):
            raise self._taken_over(version)
        # What the next commit builds on must not be lost without it.
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
            raise TableSchemaMismatch(str(self.storage), "it is gone")
        return table


def grown(table: TableWriter, change: Change, begins: Mapping[int, int]) -> Change:
    """The change, and more partitions with it: the new ones are covered up to their beginning."""
    new = {partition: Place(offset) for partition, offset in begins.items() if partition not in table.progress}
    return replace(change, begins=begins, advanced={**change.advanced, **new})


def _only_rearranges(commit: Commit) -> bool:
    """Whether a commit leaves rows and progress as they are: an OPTIMIZE or a VACUUM."""
    return not commit.changes_rows and not commit.transactions
