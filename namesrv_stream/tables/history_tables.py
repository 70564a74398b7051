"""The history tables: creation, upgrade from older versions, and commits, in a folder or an object store.

Spark's tasks write the files of a commit (``history_files``), and the history process makes the commit that adds them.
The content of a table and its mark (``history_files.HistoryMark``) change together. A commit is made for the version
after the one whose mark was read, so of two processes that write a table, one fails.

Version 0.1.0 kept intervals and sessions as tables of their own. The history process copies the rows of that
version's ``route_history`` to ``route_archive``, and moves the old tables to a folder that nothing reads.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import utc
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import TableSchemaMismatch, TablesTakenOver
from namesrv_stream.tables.change_rows import ROW_SCHEMA
from namesrv_stream.tables.delta.commit import LOG, commit_name
from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.delta.open_table import check_delta_table, open_delta
from namesrv_stream.tables.history_files import (
    FILE_SCHEMA,
    HistoryMark,
    commit_metadata,
    read_batches,
    read_mark,
    write_files,
)
from namesrv_stream.tables.layout import (
    DAY_COLUMNS,
    DESCRIPTIONS,
    HISTORY_PROTOCOL,
    HISTORY_SCHEMAS,
    PARTITIONS_PROPERTY,
    ROUTE_ARCHIVE,
    STATISTICS_COLUMNS,
    TOPIC_ID_PROPERTY,
    VACUUM_PROPERTY,
    history_properties,
)
from namesrv_stream.tables.storage import Storage, tables_of

logger = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000


def ensure_history_tables(settings: Settings, topic_id: str) -> None:
    """Create missing tables, add missing columns, migrate tables of version 0.1.0, and check the rest; blocks.

    If the process is killed in between, the next call continues.

    Raises:
        TableSchemaMismatch: A table has neither the schema of this version nor that of an older one.
        ConfigError: A table was made from another topic.
        StoreUnreachable: The object store does not answer.
    """
    tables = tables_of(settings)
    hours = -(-settings.history.vacuum_retention_ms // _HOUR_MS)
    for name, schema in HISTORY_SCHEMAS.items():
        storage = tables / name
        properties = history_properties(topic_id, settings.kafka.partitions, STATISTICS_COLUMNS[name], hours)
        found = _opened_or_made(storage, name, schema, properties)
        has = found.metadata().configuration
        _check_topic(storage, has, properties)
        _add_columns(storage, found, schema)
        changed = {n: properties[n] for n in (PARTITIONS_PROPERTY, VACUUM_PROPERTY) if has.get(n) != properties[n]}
        if changed:
            found.alter.set_table_properties(changed, raise_if_not_exists=False)
        check_delta_table(storage, open_delta(storage), schema, HISTORY_PROTOCOL)
    migrate_former_history(tables, topic_id)


def _opened_or_made(storage: Storage, name: str, schema: pa.Schema, properties: Mapping[str, str]) -> DeltaTable:
    try:
        return open_delta(storage)
    except TableNotFoundError:
        storage.make()
        with storage.reaching():
            return DeltaTable.create(
                str(storage),
                schema,
                partition_by=[DAY_COLUMNS[name]],
                description=DESCRIPTIONS[name],
                configuration=properties,
                storage_options=storage.delta_options,
                raise_if_key_not_exists=False,
            )


def _add_columns(storage: Storage, table: DeltaTable, schema: pa.Schema) -> None:
    columns = pa.schema(table.schema()).names
    missing = [field for field in schema if field.name not in columns]
    for field in missing:
        if not field.nullable:
            raise TableSchemaMismatch(str(storage), f"column {field.name} is missing")
        logger.info("adding column table=%s column=%s", storage, field.name)
    if missing:
        table.alter.add_columns([Field.from_arrow(field) for field in missing])


def _check_topic(storage: Storage, found: Mapping[str, str | None], properties: Mapping[str, str]) -> None:
    name = TOPIC_ID_PROPERTY
    if found.get(name) != properties[name]:
        reason = f"is {found.get(name)}, but route_changes has {properties[name]}: the log is another one"
        raise ConfigError(str(storage), name, f"{reason}; move this table away, and a new one is created")


def data_files(table: Storage, column: str = "", since_ms: int = 0) -> list[DataFile]:
    """Return the files of a table at its newest version; blocks. Raises the errors of ``open_delta``.

    Args:
        column: A column of timestamps. Files whose values are all before ``since_ms`` are left out; "" for all files.
        since_ms: Epoch milliseconds.
    """
    listed = pa.table(open_delta(table).get_add_actions(flatten=True)).to_pylist()
    since = utc(since_ms)
    newest = (row.get(f"max.{column}") for row in listed)
    return [DataFile.from_listing(row) for row, at in zip(listed, newest, strict=True) if at is None or at >= since]


@dataclass(slots=True)
class HistoryTable:
    """A history table as its single writer knows it.

    Attributes:
        name: Name of the table.
        tables: Storage of the tables.
        mark: How far the table covers the log.
        version: Delta's version with that mark.
    """

    name: str
    tables: Storage
    mark: HistoryMark
    version: int

    @property
    def storage(self) -> Storage:
        """Storage of the table."""
        return self.tables / self.name

    @classmethod
    def open(cls, tables: Storage, name: str) -> "HistoryTable":
        """Open the newest version; blocks. Raises the errors of ``read_mark``."""
        version = open_delta(tables / name).version()
        return cls(name, tables, read_mark(tables / name) or HistoryMark(), version)

    def commit(self, files: pa.Table, mark: HistoryMark) -> int:
        """Add files that tasks have written, and set the mark; durable.

        Args:
            files: Columns of ``FILE_SCHEMA``; may be empty.
            mark: How far the table then covers the log.

        Returns:
            The number of rows in the files.

        Raises:
            TablesTakenOver: Another process has written to the table meanwhile.
            StoreUnreachable: The object store does not answer. It may have made the commit.
        """
        storage, day = self.storage, DAY_COLUMNS[self.name]
        table = open_delta(storage)
        if table.version() != self.version and read_mark(storage) != self.mark:
            raise TablesTakenOver(str(storage), table.version())
        now_ms = SystemClock().now_ms()
        actions = [
            AddAction(f["path"], f["size"], {day: f["day"]}, now_ms, True, f["stats"]) for f in files.to_pylist()
        ]
        with storage.reaching():
            try:
                table.create_write_transaction(
                    list(actions),
                    "append",
                    HISTORY_SCHEMAS[self.name],
                    [day],
                    commit_properties=CommitProperties(commit_metadata(mark), max_commit_retries=0),
                )
            except CommitFailedError as error:
                raise TablesTakenOver(str(storage), table.version() + 1) from error
        self.version, self.mark = table.version() + 1, mark
        storage.sync([commit_name(self.version)])
        return sum(files["rows"].to_pylist())


_FORMER: Final = "route_history"
_FORMER_TABLES: Final = (_FORMER, "topic_route_history", "broker_sessions")
#: The folder in which the tables of 0.1.0 are kept.
KEPT: Final = "history-of-0.1.0"


def has_former_history(tables: Storage) -> bool:
    """Whether there is a history of version 0.1.0 that has not been migrated yet."""
    return (tables / _FORMER).has(LOG)


def migrate_former_history(tables: Storage, topic_id: str) -> None:
    """Copy the rows of version 0.1.0 to ``route_archive`` in one commit, and move the old tables away; blocks.

    If the process is killed in between, the next call continues.

    Raises:
        ConfigError: The tables belong to another topic.
        TableSchemaMismatch: The tables are damaged.
    """
    if has_former_history(tables):
        archive = HistoryTable.open(tables, ROUTE_ARCHIVE)
        if not archive.mark.topic_id:
            _copy(tables, archive, topic_id)
    for name in _FORMER_TABLES:
        if (tables / name).has(LOG):
            tables.move(name, f"{KEPT}/{name}")


def _copy(tables: Storage, archive: HistoryTable, topic_id: str) -> None:
    former = open_delta(tables / _FORMER)
    found = former.metadata().configuration.get(TOPIC_ID_PROPERTY)
    if found != topic_id:
        raise ConfigError(str(tables / _FORMER), TOPIC_ID_PROPERTY, f"is {found}, but the topic's id is {topic_id}")
    mark = read_mark(tables / _FORMER)
    if mark is None:
        return
    wanted = pa.schema([field.with_nullable(True) for field in ROW_SCHEMA]).remove_metadata()
    files: list[pa.RecordBatch] = []
    for path in pa.table(former.get_add_actions())["path"].to_pylist():
        rows = (_archived(batch) for batch in read_batches(tables / _FORMER, path, wanted))
        files += write_files(tables, ROUTE_ARCHIVE, rows)
    written = archive.commit(pa.Table.from_batches(files, FILE_SCHEMA), mark)
    logger.info("history of 0.1.0 migrated to route_archive rows=%d kept_in=%s", written, tables / KEPT)


def _archived(rows: pa.RecordBatch) -> pa.RecordBatch:
    schema = HISTORY_SCHEMAS[ROUTE_ARCHIVE].remove_metadata()
    day = pc.cast(pc.cast(rows["at_ms"], pa.timestamp("ms")), pa.date32())
    return rows.append_column("day", day).select(schema.names).cast(schema)
