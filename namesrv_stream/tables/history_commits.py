"""Commits of the history tables, in a folder or an object store.

Spark's tasks have written the files (``history_files``); the process that asked for them makes the one commit that adds
them. What a table holds and how far it reaches (``history_mark``) change together. The commit is for the version behind
the one whose mark was read: of two processes that write a table, one fails.
"""

from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import TablesTakenOver
from namesrv_stream.instants import utc
from namesrv_stream.tables.delta.commit import commit_name
from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.delta.table_version import open_delta
from namesrv_stream.tables.history_mark import HistoryMark, commit_metadata, read_mark
from namesrv_stream.tables.schema.history_columns import DAY_COLUMNS, HISTORY_SCHEMAS
from namesrv_stream.tables.storage import Storage


def data_files(table: Storage, column: str = "", since_ms: int = 0) -> list[DataFile]:
    """The files of a table at its newest version; blocks. Raises as ``open_delta``.

    Args:
        table: Where it is.
        column: Of instants: only files that may have one at or behind ``since_ms``, epoch milliseconds.
        since_ms: See there.
    """
    listed = pa.table(open_delta(table).get_add_actions(flatten=True)).to_pylist()
    since = utc(since_ms)
    newest = (row.get(f"max.{column}") for row in listed)
    return [DataFile.from_listing(row) for row, at in zip(listed, newest, strict=True) if at is None or at >= since]


@dataclass(slots=True)
class HistoryTable:
    """A history table as its one writer sees it.

    Attributes:
        name: Of the table.
        tables: Where the tables are.
        mark: How far it reaches.
        version: Delta's, at which it does.
    """

    name: str
    tables: Storage
    mark: HistoryMark
    version: int

    @property
    def storage(self) -> Storage:
        """Where it is."""
        return self.tables / self.name

    @classmethod
    def open(cls, tables: Storage, name: str) -> "HistoryTable":
        """At its newest version; blocks. Raises as ``read_mark``."""
        version = open_delta(tables / name).version()
        return cls(name, tables, read_mark(tables / name) or HistoryMark(), version)

    def commit(self, files: pa.Table, mark: HistoryMark) -> int:
        """Add files that tasks have written, and say how far the table then reaches; durable.

        Args:
            files: ``FILE_SCHEMA``; may be none.
            mark: How far.

        Returns:
            How many rows they have.

        Raises:
            TablesTakenOver: Another process has written the table meanwhile.
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
