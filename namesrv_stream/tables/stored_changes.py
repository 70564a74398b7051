"""What the tables say of the past: any range of ``route_changes``, and the versions of ``route_state`` still kept."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.errors import TableDamaged
from namesrv_stream.tables.delta.commit import commit_name
from namesrv_stream.tables.delta.table_version import UNREADABLE, TableVersion, newest_readable, open_version
from namesrv_stream.tables.route_tables import FoldStateRow, StateRows, read_state
from namesrv_stream.tables.schema.columns import CHANGES_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.schema.rows import in_log_order
from namesrv_stream.tables.storage import Storage


class StoredChanges:
    """``route_changes`` at one version.

    Attributes:
        topic_id: Of the topic from which it was made.
        table_id: Delta's id of the table, another one where it was recreated.
        begins: partition → first offset written for so many partitions; {} where there always were so many.
        next_offsets: partition → first offset that it does not cover.
        removed_below: partition → first offset from which on no row was removed for its age.
        files: Its data files.
        newest_at_ms: Highest ``at_ms`` of its rows, epoch milliseconds; 0 where it has none.
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
        """The newest version; None where there is no table.

        Raises:
            TableSchemaMismatch: The table is damaged, or not as this version of the code expects.
        """
        table = open_version(tables / ROUTE_CHANGES, CHANGES_SCHEMA)
        return None if table is None else cls(table)

    def kept_from_ms(self, retention_ms: int) -> int:
        """Before this instant, epoch milliseconds, the clean-up may have removed rows."""
        return self.newest_at_ms - retention_ms

    def rows_at_most(self, partition: int, begin: int, end: int) -> int:
        """How many rows the files have that may hold some with ``begin <= offset < end``, of whatever partition."""
        return sum(file.rows or 0 for file in self.files if file.may_have({partition: begin}, {partition: end}))

    def rows(self, partition: int, begin: int, end: int) -> pa.Table:
        """Rows of one partition with ``begin <= offset < end``, in log order; blocks.

        Their columns are those of ``CHANGES_SCHEMA`` as read.

        Raises:
            TableSchemaMismatch: A file is gone or damaged.
        """
        wanted = (pc.field("partition") == partition) & (pc.field("offset") >= begin) & (pc.field("offset") < end)
        rows = self._table.read(lambda file: file.may_have({partition: begin}, {partition: end}))
        return in_log_order(rows.filter(wanted))


@dataclass(frozen=True, slots=True)
class KeptState:
    """One partition in one version of ``route_state``.

    Attributes:
        version: Of the table.
        live: Its live rows, columns of ``STATE_SCHEMA`` as read.
        fold_state: The fold's state, and the offset below which ``live`` has everything.
    """

    version: int
    live: pa.Table
    fold_state: FoldStateRow


class KeptStates:
    """The versions of ``route_state`` that can still be read: those of the last day, and the newest.

    Those from before the topic was given more partitions are passed over.

    Args:
        tables: Where the tables are; may be absent.

    Attributes:
        topic_id: Of the topic from which they were made; "" where there is no table.
        partitions: Of that topic.
        begins: As of ``StateRows``.
        damage: Why the newest version of the table is passed over; None if it is not.

    Raises:
        TableSchemaMismatch: The table is not as this version of the code expects, or no version of it can be read.
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
        """The newest version, or the newest whose offset is not above ``at_most``; None where none is kept."""
        version = self._newest
        if at_most is not None:
            version = self._first(lambda v: self._offset(v, partition) > at_most) - 1
        return self._state(version, partition)

    def oldest(self, partition: int, at_least: int = 0) -> KeptState | None:
        """The oldest kept version whose offset is not below ``at_least``; None where none is."""
        return self._state(self._first(lambda v: self._offset(v, partition) >= at_least), partition)

    def _first(self, is_wanted: Callable[[int], bool]) -> int:
        """The first version for which it holds; offsets never fall from one to the next. One above all if none."""
        low, high = 0, self._newest + 1
        while low < high:
            middle = (low + high) // 2
            if is_wanted(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _offset(self, version: int, partition: int) -> int:
        """Of the newest version up to this one that can be read; -1 where none has anything of the partition."""
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
        """The newest version up to this one that can be read; those that were cleaned up are not looked for."""
        for number in range(version, -1, -1):
            if number not in self._read:
                self._read[number] = None
                with suppress(*UNREADABLE):  # its log entry or its file was cleaned up, or is damaged
                    found = open_version(self._table, STATE_SCHEMA, number)
                    self._read[number] = None if found is None else read_state(found)
            if self._read[number] is not None or not self._table.exists(commit_name(number)):
                return self._read[number]
        return None
