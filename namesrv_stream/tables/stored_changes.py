"""Reads the past from the tables: any range of ``route_changes``, and older versions of ``route_state``."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.table_errors import TableDamaged
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, STATE_SCHEMA, in_log_order
from namesrv_stream.tables.delta.commit import commit_name
from namesrv_stream.tables.delta.open_table import UNREADABLE
from namesrv_stream.tables.delta.table_version import TableVersion, newest_readable, open_version
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.snapshot import FoldStateRow, StateRows, read_state
from namesrv_stream.tables.storage import Storage


class StoredChanges:
    """``route_changes`` at one version.

    Attributes:
        topic_id: Kafka's id of the topic from which the table was made.
        table_id: Delta's id of the table, which changes if the table is recreated.
        begins: Partition → its first offset since the topic got this number of partitions; {} if it never changed.
        next_offsets: Partition → first offset that the table does not cover.
        removed_below: Partition → the offset below which rows were removed after their retention; 0 if none were.
        files: The data files of the table.
        newest_at_ms: Highest ``at_ms`` of the rows, epoch milliseconds; 0 without rows.
    """

    def __init__(self, table: TableVersion) -> None:
        self.files = table.files
        self.removed_below = table.removed_below()
        self._table = table
        self.topic_id, self.table_id = table.topic_id, table.table_id
        self.begins: Mapping[int, int] = table.begins
        self.next_offsets: Mapping[int, int] = table.next_offsets
        self.newest_at_ms = max((file.newest_at_ms for file in self.files), default=0)

    @classmethod
    def open(cls, tables: Storage) -> "StoredChanges | None":
        """Open the newest version; None if there is no table.

        Raises:
            TableSchemaMismatch: The table is damaged or has an unexpected schema.
            StoreUnreachable: The object store does not answer.
        """
        table = open_version(tables / ROUTE_CHANGES, CHANGES_SCHEMA)
        return None if table is None else cls(table)

    def kept_from_ms(self, retention_ms: int) -> int:
        """Return the time before which the clean-up may have removed rows, epoch milliseconds."""
        return self.newest_at_ms - retention_ms

    def rows_at_most(self, partition: int, begin: int, end: int) -> int:
        """Return an upper limit of the number of rows with ``begin <= offset < end``, from the files' statistics."""
        return sum(file.rows or 0 for file in self.files if file.may_have({partition: begin}, {partition: end}))

    def rows(self, partition: int, begin: int, end: int) -> pa.Table:
        """Return the rows of one partition with ``begin <= offset < end``, in log order; blocks.

        The columns are those of ``as_read(CHANGES_SCHEMA)``.

        Raises:
            TableSchemaMismatch: A file is missing or damaged.
        """
        wanted = (pc.field("partition") == partition) & (pc.field("offset") >= begin) & (pc.field("offset") < end)
        rows = self._table.read(lambda file: file.may_have({partition: begin}, {partition: end}))
        return in_log_order(rows.filter(wanted))


@dataclass(frozen=True, slots=True)
class KeptState:
    """One partition in one version of ``route_state``.

    Attributes:
        version: Version of the table.
        live: The rows without fold states, columns of ``as_read(STATE_SCHEMA)``.
        fold_state: The state of the fold, and its offset, up to which ``live`` is complete as well.
    """

    version: int
    live: pa.Table
    fold_state: FoldStateRow


class KeptStates:
    """The readable versions of ``route_state``: those of the last day, and the newest.

    Versions from before partitions were added to the topic are ignored.

    Args:
        tables: Storage of the tables, which need not exist.

    Attributes:
        topic_id: Kafka's id of the topic from which the table was made; "" if there is no table.
        partitions: Number of partitions of that topic.
        begins: As in ``StateRows``.
        damage: Why the newest version cannot be read and is ignored; None if it can be read.

    Raises:
        TableSchemaMismatch: The table has an unexpected schema, or no version of it can be read.
    """

    def __init__(self, tables: Storage) -> None:
        self._table = tables / ROUTE_STATE
        self.damage: TableDamaged | None = None
        self._read: dict[int, StateRows | None] = {}
        newest, self.damage = newest_readable(self._table, STATE_SCHEMA, read_state)
        self._newest = -1 if newest is None else newest.version
        self.topic_id, self.partitions = ("", 0) if newest is None else (newest.topic_id, newest.partitions)
        self.begins: Mapping[int, int] = {} if newest is None else newest.begins
        if newest is not None:
            self._read[self._newest] = newest

    def newest(self, partition: int, at_most: int | None = None) -> KeptState | None:
        """Return the partition's newest state, or the newest with an offset of at most ``at_most``; None if none."""
        version = self._newest
        if at_most is not None:
            version = self._first(lambda v: self._offset(v, partition) > at_most) - 1
        return self._state(version, partition)

    def oldest(self, partition: int, at_least: int = 0) -> KeptState | None:
        """Return the partition's oldest state with an offset of at least ``at_least``; None if there is none."""
        return self._state(self._first(lambda v: self._offset(v, partition) >= at_least), partition)

    def _first(self, is_wanted: Callable[[int], bool]) -> int:
        """Return the first version for which a predicate is true, otherwise the version after the newest.

        The search is binary, because offsets never decrease from one version to the next.
        """
        low, high = 0, self._newest + 1
        while low < high:
            middle = (low + high) // 2
            if is_wanted(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _offset(self, version: int, partition: int) -> int:
        """Return the partition's offset in the newest readable version up to ``version``; -1 if it has none."""
        found = self._readable(version)
        if found is None or partition not in found.fold_states or found.partitions != self.partitions:
            return -1
        return found.fold_states[partition].next_offset

    def _state(self, version: int, partition: int) -> KeptState | None:
        found = self._readable(version) if version <= self._newest else None
        if found is None or partition not in found.fold_states or found.partitions != self.partitions:
            return None
        live = found.live.filter(pc.field("partition") == partition)
        return KeptState(found.version, in_log_order(live), found.fold_states[partition])

    def _readable(self, version: int) -> StateRows | None:
        """Return the newest readable version up to ``version``. The search ends at a version that was cleaned up."""
        for number in range(version, -1, -1):
            if number not in self._read:
                self._read[number] = None
                with suppress(*UNREADABLE):  # its commit or its file was cleaned up, or is damaged
                    found = open_version(self._table, STATE_SCHEMA, number)
                    self._read[number] = None if found is None else read_state(found)
            if self._read[number] is not None or not self._table.exists(commit_name(number)):
                return self._read[number]
        return None
