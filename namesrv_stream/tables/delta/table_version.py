"""Opens a table of the job at one version, and verifies it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from namesrv_stream.errors import TableDamaged, TableSchemaMismatch
from namesrv_stream.route.fold.folded_log import Place, Progress
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
    BEGINS_PROPERTY,
    PARTITIONS_PROPERTY,
    PROTOCOL,
    TOPIC_ID_PROPERTY,
    app_id,
    check_table,
    decode_begins,
    removed_app_id,
)
from namesrv_stream.tables.storage import Storage, one_line

#: What reading a table may raise where it, or a part of it, is damaged or absent; not where its store does not answer.
UNREADABLE: Final = (TableSchemaMismatch, DeltaError, OSError, pa.ArrowException)
#: The job commits at least once a second; in between there may be commits of others that only rearrange files.
_COMMITS_OF_OTHERS: Final = 50
#: Where the newest version is damaged, so many before it are tried, and then those at distances of powers of two: to
#: go back further than needed costs the job a longer fold, and a day of versions is tried within 20 steps more.
_EACH_TRIED: Final = 100
#: Commits in which damage is looked for, to name its file: more than there ever are since the newest checkpoint.
_COMMITS_SEARCHED: Final = 300
#: What delta-rs and Polars raise where they panic; it is no ``Exception``.
PANIC: Final = "PanicException"

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
        begins: partition → first offset written for so many; {} where the topic always had them.
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
    begins: Mapping[int, int]
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
            TableDamaged: The log is damaged.
            StoreUnreachable: The object store does not answer.
        """
        return _transactions(
            self._table, self.storage, [removed_app_id(self.topic_id, p) for p in range(self.partitions)]
        )

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
            if type(error).__name__ != PANIC:
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
    check_delta_table(storage, table, schema)
    metadata = table.metadata()
    if metadata.partition_columns:
        raise TableSchemaMismatch(str(storage), f"it is partitioned by {', '.join(metadata.partition_columns)}")
    try:
        files = tuple(map(DataFile.from_listing, pa.table(table.get_add_actions(flatten=True)).to_pylist()))
    except ValueError as error:  # a name that is no text
        raise _damage(storage, f"cannot be read: {error}") from None
    if identity is not None and identity.table_id != str(metadata.id):
        raise TableDamaged(str(storage), LOG, "is damaged: its commits are of a table with another id")
    if identity is not None and not is_rearranged and identity.files_digest != digest_of(files):
        raise _damage(storage, "is damaged: the files that it makes up are not those that the job has listed")
    try:
        topic_id = str(metadata.configuration[TOPIC_ID_PROPERTY])
        partitions = int(metadata.configuration[PARTITIONS_PROPERTY] or "")
        begins = decode_begins(metadata.configuration.get(BEGINS_PROPERTY))
    except (LookupError, ValueError):
        raise TableSchemaMismatch(str(storage), f"it has no {TOPIC_ID_PROPERTY}: it is no table of the job") from None
    if identity is not None and identity.progress:
        progress = identity.progress
    else:
        next_offsets = _transactions(table, storage, [app_id(topic_id, p) for p in range(partitions)])
        progress = {partition: Place(offset) for partition, offset in next_offsets.items()}
    return TableVersion(
        storage=storage,
        version=table.version(),
        table_id=str(metadata.id),
        topic_id=topic_id,
        partitions=partitions,
        begins=begins,
        progress=progress,
        files=files,
        schema=schema,
        checkpoint=Checkpoint() if identity is None else identity.checkpoint,
        _table=table,
    )


def check_delta_table(
    storage: Storage,
    table: DeltaTable,
    schema: pa.Schema,
    newest: tuple[int, int] = PROTOCOL,
    *,
    may_differ: bool = False,
) -> None:
    """Refuse a table that this version of the code would misread; raises as ``check_table``.

    Args:
        storage: For the error.
        table: As it was opened.
        schema: Its columns as this version knows them.
        newest: Highest protocol that we know for this table.
        may_differ: Whether it may have more columns, and lack those that may be null.
    """
    protocol, found = table.protocol(), pa.schema(table.schema())
    features = [*(protocol.reader_features or ()), *(protocol.writer_features or ())]
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    if may_differ:
        schema = pa.schema([f for f in schema if f.name in found.names or not f.nullable])
        found = pa.schema([f for f in found if f.name in schema.names])
    check_table(str(storage), versions, features, found, schema, newest)


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
    except TableDamaged as error:
        damage = error
    except TableSchemaMismatch:
        raise  # another layout is not mended by an older version
    except UNREADABLE as error:
        damage = _damage(storage, f"cannot be read: {one_line(error)}")
    for distance, version in enumerate(reversed(commit_versions(storage))):
        if distance > _EACH_TRIED and distance & (distance - 1):
            continue
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
    is_rearranged, changed_by = False, -1
    for number in range(version, max(-1, version - _COMMITS_OF_OTHERS), -1):
        commit = read_commit(storage, number)
        if commit is None or commit.is_of_first_release:
            break
        if commit.identity is not None:
            if changed_by >= 0:
                reason = "is of another program and changes rows, which only the job may do"
                raise TableDamaged(str(storage), commit_name(changed_by), reason)
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
        found = content_hash(storage.read(name))
    except FileNotFoundError:
        raise TableDamaged(str(storage), name, "is missing") from None
    if found != expected.content_hash:
        raise TableDamaged(str(storage), name, "is damaged: its bytes are not those that were written")


def _transactions(table: DeltaTable, storage: Storage, app_ids: Sequence[str]) -> dict[int, int]:
    """Index of an application id → version of its transaction; 0 where it has none."""
    try:
        with storage.reaching():
            return {index: table.transaction_version(name) or 0 for index, name in enumerate(app_ids)}
    except DeltaError as error:  # delta-rs has not read the transactions before
        raise _damage(storage, f"cannot be read: {one_line(error)}") from None


def _damage(storage: Storage, reason: str) -> TableDamaged:
    """What is wrong, with the file that cannot be read: a commit, else the newest checkpoint."""
    for version in reversed(commit_versions(storage)[-_COMMITS_SEARCHED:]):
        try:
            read_commit(storage, version)
        except TableDamaged as damaged:
            return damaged
        except OSError as error:
            return TableDamaged(str(storage), commit_name(version), f"cannot be read: {error}")
    version = checkpointed_version(storage)
    file = LOG if version < 0 else checkpoint_name(version)
    return TableDamaged(str(storage), file, reason)
