"""What the tables say of the past: any range of ``route_changes``, and the versions of ``route_state`` still kept."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from namesrv_stream.errors import NamesrvStreamError, TableSchemaMismatch
from namesrv_stream.location import Location
from namesrv_stream.snapshot.table_files import open_delta, transaction_versions
from namesrv_stream.snapshot.table_reader import UNREADABLE, FoldStateRow, open_table, read_files, read_state
from namesrv_stream.tables import (
    CHANGES_SCHEMA,
    PARTITIONS_PROPERTY,
    ROUTE_CHANGES,
    ROUTE_STATE,
    STATE_SCHEMA,
    TOPIC_ID_PROPERTY,
    app_id,
    as_read,
    in_log_order,
    removed_app_id,
    table_path,
)


@contextmanager
def _reading(path: Location) -> Iterator[None]:
    """Whatever reading a table raises, as an error that names it."""
    try:
        yield
    except NamesrvStreamError:
        raise
    except UNREADABLE as error:
        reason = " ".join(str(error).split())[:300]
        raise TableSchemaMismatch(str(path), f"cannot be read: {reason or type(error).__name__}") from error


class StoredChanges:
    """``route_changes`` at one version.

    Attributes:
        topic_id: Of the topic it was made from.
        table_id: Delta's id of the table, another one where it was made anew.
        next_offsets: partition → first offset that it does not cover.
        newest_at_ms: Highest ``at_ms`` of its rows, epoch milliseconds; 0 where it has none.
    """

    def __init__(self, table: DeltaTable, tables_dir: Location) -> None:
        properties = table.metadata().configuration
        self._folder = table_path(tables_dir, ROUTE_CHANGES)
        self._files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        self.topic_id = str(properties[TOPIC_ID_PROPERTY])
        partitions = range(int(properties[PARTITIONS_PROPERTY]))
        self.next_offsets: Mapping[int, int] = transaction_versions(
            self._folder, table, {p: app_id(self.topic_id, p) for p in partitions}
        )
        self.table_id = str(table.metadata().id)
        self._complete_from = transaction_versions(
            self._folder, table, {p: removed_app_id(self.topic_id, p) for p in partitions}
        )
        self.newest_at_ms = max((f.get("max.at_ms") or 0 for f in self._files), default=0)

    @classmethod
    def open(cls, tables_dir: Location) -> "StoredChanges | None":
        """The newest version; None where there is no table.

        Raises:
            TableSchemaMismatch: The table is damaged, or not as this version of the code expects.
        """
        path = table_path(tables_dir, ROUTE_CHANGES)
        with _reading(path):
            table = open_table(path, CHANGES_SCHEMA)
            return None if table is None else cls(table, tables_dir)

    def complete_from(self, partition: int) -> int:
        """First offset from which on no row was removed for its age."""
        return self._complete_from.get(partition, 0)

    def rows_at_most(self, partition: int, begin: int, end: int) -> int:
        """How many rows the files have that may hold some with ``begin <= offset < end``, of whatever partition."""
        return sum(
            file.get("num_records") or 0
            for file in self._files
            if _overlaps(file, "partition", partition, partition) and _overlaps(file, "offset", begin, end - 1)
        )

    def rows(self, partition: int, begin: int, end: int) -> pa.Table:
        """Rows of one partition with ``begin <= offset < end``, in log order; blocks.

        Their columns are those of ``CHANGES_SCHEMA`` as read.

        Raises:
            TableSchemaMismatch: A file is gone or damaged.
        """
        wanted = (pc.field("partition") == partition) & (pc.field("offset") >= begin) & (pc.field("offset") < end)
        parts = [as_read(CHANGES_SCHEMA).empty_table()]
        with _reading(self._folder):
            for file in self._files:
                if _overlaps(file, "partition", partition, partition) and _overlaps(file, "offset", begin, end - 1):
                    parts.append(read_files(self._folder, [file["path"]], CHANGES_SCHEMA).filter(wanted))
        return in_log_order(pa.concat_tables(parts))


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

    Args:
        tables_dir: Folder of the tables; may be absent.

    Attributes:
        topic_id: Of the topic they were made from; "" where there is no table.
        partitions: Of that topic.

    Raises:
        TableSchemaMismatch: The newest one is damaged, or not as this version of the code expects.
    """

    def __init__(self, tables_dir: Location) -> None:
        self._tables_dir = tables_dir
        self._newest = -1
        self.topic_id, self.partitions = "", 0
        self._read: dict[int, tuple[pa.Table, dict[int, FoldStateRow]] | None] = {}
        path = table_path(tables_dir, ROUTE_STATE)
        with _reading(path):
            table = open_table(path, STATE_SCHEMA)
            if table is not None:
                properties = table.metadata().configuration
                self.topic_id, self.partitions = (
                    str(properties[TOPIC_ID_PROPERTY]),
                    int(properties[PARTITIONS_PROPERTY]),
                )
                self._newest = table.version()
                self._read[self._newest] = read_state(table, tables_dir)

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
        """-1 where the version is gone, or has nothing of the partition yet: it is then older than any that has."""
        found = self._version(version)
        return found[1][partition].next_offset if found is not None and partition in found[1] else -1

    def _state(self, version: int, partition: int) -> KeptState | None:
        found = self._version(version) if 0 <= version <= self._newest else None
        if found is None or partition not in found[1]:
            return None
        live, states = found
        return KeptState(version, in_log_order(live.filter(pc.field("partition") == partition)), states[partition])

    def _version(self, version: int) -> tuple[pa.Table, dict[int, FoldStateRow]] | None:
        if version not in self._read:
            try:
                table = open_delta(table_path(self._tables_dir, ROUTE_STATE), version)
                self._read[version] = read_state(table, self._tables_dir)
            except UNREADABLE:  # its log entry or its file was cleaned up
                self._read[version] = None
        return self._read[version]


def _overlaps(file: Mapping[str, int | None], column: str, low: int, high: int) -> bool:
    """Whether a file may have values within [low, high], by its statistics."""
    lowest, highest = file.get(f"min.{column}"), file.get(f"max.{column}")
    return lowest is None or highest is None or (lowest <= high and highest >= low)
