"""Opens and verifies a table of the job at one version."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from namesrv_stream.route.fold.folded_log import Place, Progress
from namesrv_stream.table_errors import TableDamaged, TableSchemaMismatch
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
from namesrv_stream.tables.delta.open_table import UNREADABLE, check_delta_table, open_delta
from namesrv_stream.tables.layout import (
    BEGINS_PROPERTY,
    PARTITIONS_PROPERTY,
    TOPIC_ID_PROPERTY,
    app_id,
    decode_begins,
    removed_app_id,
)
from namesrv_stream.tables.storage import Storage, one_line

#: The job commits at least once a second. In between, other programs may make commits that only rearrange files.
_COMMITS_OF_OTHERS: Final = 50
#: If the newest version is damaged, this many versions before it are tried, then those at distances of powers of two.
#: Going back too far costs the job only a longer fold, and 20 more steps cover a day of versions.
_EACH_TRIED: Final = 100
#: Number of commits that are searched for the damaged file; more than there are since the newest checkpoint.
_COMMITS_SEARCHED: Final = 300
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table of the job at one version.

    Attributes:
        storage: Storage of the table.
        version: Delta's version.
        table_id: Delta's id of the table, which changes if the table is recreated.
        topic_id: Kafka's id of the topic from which it was made.
        partitions: Number of partitions of that topic.
        begins: Partition → its first offset since the topic got this number of partitions; {} if it never changed.
        progress: How far the table covers the log.
        files: The data files of the table.
        schema: Columns of the table.
        checkpoint: The job's newest checkpoint, as the job's newest commit records it.
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
        """Partition → first offset that the table does not cover."""
        return {partition: place.next_offset for partition, place in self.progress.items()}

    def removed_below(self) -> dict[int, int]:
        """Return partition → the offset below which rows were removed after their retention; 0 if none were.

        Raises:
            TableDamaged: The log is damaged.
            StoreUnreachable: The object store does not answer.
        """
        return _transactions(
            self._table, self.storage, [removed_app_id(self.topic_id, p) for p in range(self.partitions)]
        )

    def read(self, wanted: Callable[[DataFile], bool] = lambda _: True) -> pa.Table:
        """Read the rows of the files, oldest first.

        Args:
            wanted: Predicate that selects the files to read.

        Raises:
            TableDamaged: A file is missing, truncated or altered.
            StoreUnreachable: The object store does not answer.
        """
        ordered = sorted(self.files, key=lambda file: tuple(value or 0 for value in file.lowest[:2]))
        return read_files(self.storage, filter(wanted, ordered), self.schema)

    def check_files(self) -> None:
        """Check that every file exists and has the size that the log records.

        Raises:
            TableDamaged: A file is missing or has a different size.
            StoreUnreachable: The object store does not answer.
        """
        sizes = self.storage.sizes()
        for file in self.files:
            if file.path not in sizes:
                raise TableDamaged(str(self.storage), file.path, "is missing")
            if sizes[file.path] != file.size:
                reason = f"is damaged: it has {sizes[file.path]} bytes instead of {file.size}"
                raise TableDamaged(str(self.storage), file.path, reason)


def open_version(storage: Storage, schema: pa.Schema, version: int | None = None) -> TableVersion | None:
    """Open a table of the job at its newest version, or at ``version``; None if there is none.

    Raises:
        TableSchemaMismatch: The table has an unexpected schema.
        TableDamaged: The log of the table is damaged.
        StoreUnreachable: The object store does not answer.
    """
    try:
        table = open_delta(storage, version)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise _damage(storage, f"cannot be read: {one_line(error)}", version) from None
    identity, is_rearranged = _newest_identity(storage, table.version())
    if identity is not None:
        _verify_checkpoint(storage, identity.checkpoint)
    check_delta_table(storage, table, schema)
    metadata = table.metadata()
    if metadata.partition_columns:
        raise TableSchemaMismatch(str(storage), f"it is partitioned by {', '.join(metadata.partition_columns)}")
    if identity is not None and identity.table_id != str(metadata.id):
        raise TableDamaged(str(storage), LOG, "is damaged: its commits belong to a table with a different id")
    files = _listed_files(storage, table, None if is_rearranged else identity, version)
    topic_id, partitions, begins = _topic(storage, metadata.configuration)
    progress = {} if identity is None else identity.progress
    if not progress:
        next_offsets = _transactions(table, storage, [app_id(topic_id, p) for p in range(partitions)], version)
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


def newest_readable(
    storage: Storage, schema: pa.Schema, read: Callable[[TableVersion], _T]
) -> tuple[_T | None, TableDamaged | None]:
    """Read the newest readable version of a table.

    Args:
        storage: Storage of the table.
        schema: Columns of the table.
        read: Reads from one version; raises one of the ``UNREADABLE`` errors if that fails.

    Returns:
        (result of ``read``, None) for the newest version; (result of ``read``, damage of the newest version) for an
        older one; (None, None) if there is no table.

    Raises:
        TableSchemaMismatch: The table has an unexpected schema, or no version can be read.
        StoreUnreachable: The object store does not answer.
    """
    try:
        found = open_version(storage, schema)
        return (None, None) if found is None else (read(found), None)
    except TableDamaged as error:
        damage = error
    except TableSchemaMismatch:
        raise  # an older version would not have the expected schema either
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
    """Return the identity of the job's newest commit, and whether another program has rearranged files since.

    The identity is None if that commit was cleaned up, or is of version 0.1.0.

    Raises:
        TableDamaged: A commit is damaged, or another program has changed rows since.
    """
    is_rearranged, changed_by = False, -1
    for number in range(version, max(-1, version - _COMMITS_OF_OTHERS), -1):
        commit = read_commit(storage, number)
        if commit is None or commit.is_of_first_release:
            break
        if commit.identity is not None:
            if changed_by >= 0:
                reason = "was made by another program and changes rows, which only the job may do"
                raise TableDamaged(str(storage), commit_name(changed_by), reason)
            return commit.identity, is_rearranged
        if commit.changes_rows:  # version 0.1.0 recorded no writer when it rewrote route_state
            changed_by = number
        is_rearranged |= bool(commit.added or commit.removed)
    return None, is_rearranged


def _verify_checkpoint(storage: Storage, expected: Checkpoint) -> None:
    """Verify the checkpoint from which the table is opened, if it is the one that the job has recorded."""
    if expected.version < 0 or checkpointed_version(storage) != expected.version:
        return
    name = checkpoint_name(expected.version)
    try:
        found = content_hash(storage.read(name))
    except FileNotFoundError:
        raise TableDamaged(str(storage), name, "is missing") from None
    if found != expected.content_hash:
        raise TableDamaged(str(storage), name, "is damaged: its bytes differ from those that were written")


def _listed_files(
    storage: Storage, table: DeltaTable, recorded: Identity | None, version: int | None
) -> tuple[DataFile, ...]:
    """Return the files that the log of the table lists, after checking them against the digest in ``recorded``."""
    try:
        files = tuple(map(DataFile.from_listing, pa.table(table.get_add_actions(flatten=True)).to_pylist()))
    except ValueError as error:  # a name that is not valid UTF-8
        raise _damage(storage, f"cannot be read: {error}", version) from None
    if recorded is not None and recorded.files_digest != digest_of(files):
        raise _damage(storage, "is damaged: it does not list the files that the job has recorded", version)
    return files


def _topic(storage: Storage, properties: Mapping[str, str | None]) -> tuple[str, int, Mapping[int, int]]:
    """Return ``topic_id``, ``partitions`` and ``begins`` of a table with these properties."""
    try:
        topic_id = str(properties[TOPIC_ID_PROPERTY])
        partitions = int(properties[PARTITIONS_PROPERTY] or "")
        return topic_id, partitions, decode_begins(properties.get(BEGINS_PROPERTY))
    except (LookupError, ValueError):
        reason = f"it has no {TOPIC_ID_PROPERTY}: it is not a table of the job"
        raise TableSchemaMismatch(str(storage), reason) from None


def _transactions(
    table: DeltaTable, storage: Storage, app_ids: Sequence[str], version: int | None = None
) -> dict[int, int]:
    """Return the index of each id in ``app_ids`` → the version of its transaction; 0 if it has none."""
    try:
        with storage.reaching():
            return {index: table.transaction_version(name) or 0 for index, name in enumerate(app_ids)}
    except DeltaError as error:  # delta-rs reads the transactions only now
        raise _damage(storage, f"cannot be read: {one_line(error)}", version) from None


def _damage(storage: Storage, reason: str, version: int | None = None) -> TableDamaged:
    """Return an error that names the damaged file: an unreadable commit, otherwise the newest checkpoint.

    If a ``version`` was to be opened, the error names its commit without a search, because ``newest_readable`` tries
    about a hundred versions.
    """
    if version is not None:
        return TableDamaged(str(storage), commit_name(version), reason)
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
