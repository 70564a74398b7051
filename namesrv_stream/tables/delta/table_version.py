"""Opens a table of the job at one version, and verifies it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from namesrv_stream.errors import TableDamaged, TableSchemaMismatch
from namesrv_stream.route.folded_log import Place, Progress
from namesrv_stream.tables.delta.commit import (
    LOG,
    Checkpoint,
    Identity,
    checkpoint_name,
    checkpointed_version,
    commit_name,
    commit_versions,
    read_commit,
)
from namesrv_stream.tables.delta.data_file import DataFile, content_hash, digest_of, read_files
from namesrv_stream.tables.schema.layout import (
    PARTITIONS_PROPERTY,
    TOPIC_ID_PROPERTY,
    app_id,
    check_table,
    removed_app_id,
)
from namesrv_stream.tables.storage import Storage, one_line

#: What reading a table may raise where it, or a part of it, is damaged or absent; not where its store does not answer.
UNREADABLE: Final = (TableSchemaMismatch, DeltaError, OSError, pa.ArrowException)
#: The job commits at least once a second; in between there may be commits of others that only rearrange files.
_COMMITS_OF_OTHERS: Final = 50
#: Versions that are tried where the newest is damaged.
_VERSIONS_TRIED: Final = 300

#: What delta-rs raises where it panics; it is no ``Exception``.
_PANIC: Final = "PanicException"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table of the job at one version.

    Attributes:
        storage: Where the table is.
        version: Delta's version.
        table_id: Delta's id of the table: another one where it was recreated.
        topic_id: Kafka's id of the topic from which it was made.
        partitions: Number of partitions of that topic.
        progress: How far it covers them.
        files: Its data files.
        schema: Columns of the table.
        checkpoint: The newest one that the job says it has made.
    """

    storage: Storage
    version: int
    table_id: str
    topic_id: str
    partitions: int
    progress: Progress
    files: tuple[DataFile, ...]
    schema: pa.Schema
    checkpoint: Checkpoint
    _table: DeltaTable

    @property
    def next_offsets(self) -> dict[int, int]:
        """partition → first offset that the table does not cover."""
        return {partition: place.next_offset for partition, place in self.progress.items()}

    def removed_below(self) -> dict[int, int]:
        """partition → first offset from which on no row was removed for its age.

        Raises:
            StoreUnreachable: The object store does not answer.
        """
        return self._transactions({p: removed_app_id(self.topic_id, p) for p in range(self.partitions)})

    def read(self, wanted: Callable[[DataFile], bool] = lambda _: True) -> pa.Table:
        """The rows of its files, or of some of them; the oldest first.

        Args:
            wanted: Which files.

        Raises:
            TableDamaged: A file is missing, cut short or altered.
            StoreUnreachable: The object store does not answer.
        """
        ordered = sorted(self.files, key=lambda file: tuple(value or 0 for value in file.lowest[:2]))
        return read_files(self.storage, filter(wanted, ordered), self.schema)

    def check_files(self) -> None:
        """Check that every file is there and has its size.

        Raises:
            TableDamaged: One is not, or does not.
            StoreUnreachable: The object store does not answer.
        """
        sizes = self.storage.sizes()
        for file in self.files:
            if file.path not in sizes:
                raise TableDamaged(str(self.storage), file.path, "is missing")
            if sizes[file.path] != file.size:
                reason = f"is damaged: it has {sizes[file.path]} bytes instead of {file.size}"
                raise TableDamaged(str(self.storage), file.path, reason)

    def _transactions(self, app_ids: Mapping[int, str]) -> dict[int, int]:
        with self.storage.reaching():
            return {p: self._table.transaction_version(name) or 0 for p, name in app_ids.items()}


def open_delta(storage: Storage, version: int | None = None) -> DeltaTable:
    """Any Delta table at its newest version, or at the one given.

    Raises:
        deltalake.exceptions.TableNotFoundError: There is none.
        StoreUnreachable: Its object store does not answer.
    """
    with storage.reaching():
        try:
            return DeltaTable(str(storage), version=version, storage_options=storage.delta_options)
        except TableNotFoundError:
            raise
        except DeltaError:
            # Of a store that does not answer, delta-rs says what other clients do not: one of them finds out.
            storage.exists(LOG)
            raise
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            raise DeltaError(f"delta-rs panicked: {error}") from None


def open_version(storage: Storage, schema: pa.Schema, version: int | None = None) -> TableVersion | None:
    """A table of the job at its newest version, or at ``version``; None where there is none.

    Raises:
        TableSchemaMismatch: It is not as this version of the code expects.
        TableDamaged: Its log is damaged.
        StoreUnreachable: The object store does not answer.
    """
    try:
        table = open_delta(storage, version)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise _damage(storage, f"cannot be read: {one_line(error)}") from None
    identity, is_rearranged = _newest_identity(storage, table.version())
    if identity is not None:
        _verify_checkpoint(storage, identity.checkpoint)
    protocol = table.protocol()
    features = [*(protocol.reader_features or ()), *(protocol.writer_features or ())]
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    check_table(str(storage), versions, features, pa.schema(table.schema()), schema)
    metadata = table.metadata()
    if metadata.partition_columns:
        raise TableSchemaMismatch(str(storage), f"it is partitioned by {', '.join(metadata.partition_columns)}")
    files = _files(storage, table)
    if identity is not None:
        _verify(storage, table, identity, None if is_rearranged else files)
    topic_id, partitions = _made_from(storage, metadata.configuration)
    return TableVersion(
        storage=storage,
        version=table.version(),
        table_id=str(metadata.id),
        topic_id=topic_id,
        partitions=partitions,
        progress=_progress(storage, table, identity, topic_id, partitions),
        files=files,
        schema=schema,
        checkpoint=Checkpoint() if identity is None else identity.checkpoint,
        _table=table,
    )


def newest_readable(
    storage: Storage, schema: pa.Schema, read: Callable[[TableVersion], _T]
) -> tuple[_T | None, TableDamaged | None]:
    """What is read from the newest version that can be read, and why that is not the newest of all, if so.

    Args:
        storage: Where the table is.
        schema: Columns of the table.
        read: Reads from one version; raises what is in ``UNREADABLE`` where it cannot.

    Returns:
        (what was read, None), or of an older version with the damage of the newer ones; (None, None) where there is
        no table.

    Raises:
        TableSchemaMismatch: It is not as this version of the code expects, or no version can be read.
        StoreUnreachable: The object store does not answer.
    """
    try:
        found = open_version(storage, schema)
        return (None, None) if found is None else (read(found), None)
    except UNREADABLE as error:
        damage = (
            error if isinstance(error, TableSchemaMismatch) else _damage(storage, f"cannot be read: {one_line(error)}")
        )
    if not isinstance(damage, TableDamaged):
        raise damage  # another layout is not mended by an older version
    for version in reversed(commit_versions(storage)[-_VERSIONS_TRIED:]):
        try:
            found = open_version(storage, schema, version)
            if found is not None:
                return read(found), damage
        except UNREADABLE:
            continue
    raise damage


def _newest_identity(storage: Storage, version: int) -> tuple[Identity | None, bool]:
    """What the job's newest commit says, and whether another program has rearranged files since.

    Returns:
        None for the identity where the commit was cleaned up, or is of version 0.1.0.

    Raises:
        TableDamaged: A commit is damaged, or somebody else has changed rows since.
    """
    is_rearranged = False
    changed_by = -1
    for number in range(version, max(-1, version - _COMMITS_OF_OTHERS), -1):
        commit = read_commit(storage, number)
        if commit is None or commit.is_of_first_release:
            break
        if commit.identity is not None and changed_by >= 0:
            reason = "is of another program and changes rows, which only the job may do"
            raise TableDamaged(str(storage), commit_name(changed_by), reason)
        if commit.identity is not None:
            return commit.identity, is_rearranged
        if commit.changes_rows:  # version 0.1.0 said nothing of itself where it rewrote route_state
            changed_by = number
        is_rearranged |= bool(commit.added or commit.removed)
    return None, is_rearranged


def _verify_checkpoint(storage: Storage, expected: Checkpoint) -> None:
    """Compare the checkpoint from which the table is opened with the one that the job has made, if it is that one."""
    if expected.version < 0 or checkpointed_version(storage) != expected.version:
        return
    name = checkpoint_name(expected.version)
    try:
        found = content_hash(storage.buffer(name))
    except FileNotFoundError:
        raise TableDamaged(str(storage), name, "is missing") from None
    if found != expected.content_hash:
        raise TableDamaged(str(storage), name, "is damaged: its bytes are not those that were written")


def _verify(storage: Storage, table: DeltaTable, identity: Identity, files: tuple[DataFile, ...] | None) -> None:
    """Compare what delta-rs makes of the log with what the job says of it.

    Args:
        storage: Where the table is.
        table: As it was opened.
        identity: Of the job's newest commit.
        files: The table's files; None where another program has rearranged them since.
    """
    if identity.table_id != str(table.metadata().id):
        raise TableDamaged(str(storage), LOG, "is damaged: its commits are of a table with another id")
    if files is not None and identity.files_digest != digest_of(files):
        reason = "is damaged: the files that it makes up are not those that the job has listed"
        raise _damage(storage, reason)


def _files(storage: Storage, table: DeltaTable) -> tuple[DataFile, ...]:
    try:
        listed = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return tuple(DataFile.from_listing(row) for row in listed)
    except ValueError as error:  # a name that is no text
        raise _damage(storage, f"cannot be read: {error}") from None


def _progress(
    storage: Storage, table: DeltaTable, identity: Identity | None, topic_id: str, partitions: int
) -> Progress:
    if identity is not None and identity.progress:
        return identity.progress
    with storage.reaching():
        return {p: Place(table.transaction_version(app_id(topic_id, p)) or 0) for p in range(partitions)}


def _made_from(storage: Storage, properties: Mapping[str, str | None]) -> tuple[str, int]:
    try:
        return str(properties[TOPIC_ID_PROPERTY]), int(properties[PARTITIONS_PROPERTY] or "")
    except (LookupError, ValueError):
        raise TableSchemaMismatch(str(storage), f"it has no {TOPIC_ID_PROPERTY}: it is no table of the job") from None


def _damage(storage: Storage, reason: str) -> TableDamaged:
    """What is wrong, with the file that cannot be read: a commit, else the newest checkpoint."""
    for version in reversed(commit_versions(storage)[-_VERSIONS_TRIED:]):
        try:
            read_commit(storage, version)
        except TableDamaged as damaged:
            return damaged
        except OSError as error:
            return TableDamaged(str(storage), commit_name(version), f"cannot be read: {error}")
    version = checkpointed_version(storage)
    file = LOG if version < 0 else checkpoint_name(version)
    return TableDamaged(str(storage), file, reason)
