"""The writers of ``route_changes`` and ``route_state``.

``ChangesWriter`` commits every row exactly once, even if Spark delivers a batch twice. The progress is in the table: a
commit carries, per partition, the offset below which all rows are present. Batch ids have no effect, because they start
again at 0 with each start of the job.

``StateWriter`` derives ``route_state`` from its previous version and the changes since: the newest row of each key that
was not deleted. It works on whole columns, without a Python loop over rows.
"""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.route.changes import KEY_COLUMNS, ChangeKind
from namesrv_stream.route.events import partition_of
from namesrv_stream.route.fold.folded_log import Progress
from namesrv_stream.route.fold.state import FoldState, encode_state
from namesrv_stream.tables.change_rows import (
    CHANGES_SCHEMA,
    FOLD_STATE_KIND,
    STATE_SCHEMA,
    from_offsets,
    in_log_order,
)
from namesrv_stream.tables.delta.commit import Change
from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.delta.table_writer import TableWriter, grown
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.snapshot import FoldStateRow, StateRows, read_tables
from namesrv_stream.tables.storage import Storage


class ChangesWriter:
    """The only writer of ``route_changes``.

    Args:
        progress_interval_ms: Interval of commits without rows, which only advance the offsets, in milliseconds.

    Attributes:
        table: The writer of the Delta table.
        reached: How far the given batches cover the partitions; commits may be behind it.
        has_committed: Whether this writer has made a commit.
    """

    def __init__(self, tables: Storage, progress_interval_ms: int) -> None:
        """Open the table. Raises the errors of ``TableWriter``."""
        self.table = TableWriter(tables / ROUTE_CHANGES, CHANGES_SCHEMA)
        self.has_committed = False
        self.reached = dict(self.table.progress)
        self._progress_interval_s = progress_interval_ms / 1000
        self._committed_s = time.monotonic()

    @property
    def committed(self) -> dict[int, int]:
        """Partition → first offset that the table does not cover."""
        return {partition: place.next_offset for partition, place in self.table.progress.items()}

    def write(
        self,
        rows: pa.Table,
        reached: Progress,
        batch_id: int,
        metadata: Mapping[str, str] = MappingProxyType({}),
        *,
        is_due: bool = False,
    ) -> pa.Table:
        """Commit the rows of a batch that the table does not have yet.

        Without new rows, advanced offsets are committed only if the interval is over or ``is_due`` is set. The call
        blocks as long as an object store does not answer.

        Args:
            rows: Columns of ``RouteChange``, in log order within each partition.
            reached: How far the batch covers its partitions.
            batch_id: Recorded with each row.
            metadata: Recorded with the commit.
            is_due: Whether to commit advanced offsets without rows before the interval is over.

        Returns:
            The written rows.

        Raises:
            TablesTakenOver: Another job has written, or the table was replaced.
            TableSchemaMismatch: The schema or the properties of the table were changed.
            OSError: The rows or the commit could not be written.
        """
        fresh = from_offsets(rows, self.committed) if rows.num_rows else rows
        for partition, place in reached.items():
            if place.next_offset > self.reached[partition].next_offset:
                self.reached[partition] = place
        advanced = {p: place for p, place in self.reached.items() if place != self.table.progress[p]}
        is_due |= time.monotonic() - self._committed_s >= self._progress_interval_s
        if fresh.num_rows or (is_due and advanced):
            self._commit(fresh, advanced, batch_id, metadata)
        return fresh

    def grow(self, begins: Mapping[int, int]) -> None:
        """Record in a commit that partitions were added to the topic.

        Args:
            begins: Partition → its first offset after partitions were added. The table covers it up to that offset.

        Raises:
            NamesrvStreamError: As for ``write``.
        """
        self.table.commit(grown(self.table, Change("WRITE"), begins))

    def _commit(self, rows: pa.Table, advanced: Progress, batch_id: int, metadata: Mapping[str, str]) -> None:
        files: tuple[DataFile, ...] = ()
        try:
            if rows.num_rows:
                batch_ids = pa.repeat(pa.scalar(batch_id, pa.int64()), rows.num_rows)
                complete = rows.append_column(CHANGES_SCHEMA.field("batch_id"), batch_ids).cast(CHANGES_SCHEMA)
                files = (self.table.write_rows(complete),)
            self.table.commit(Change("WRITE", files, advanced=advanced, metadata=metadata))
        except (NamesrvStreamError, OSError):
            self.table.remove_unused(files)
            raise
        self._committed_s = time.monotonic()
        self.has_committed = True


class StateWriter:
    """The only writer of ``route_state``."""

    def __init__(self, tables: Storage) -> None:
        """Open the table. Raises the errors of ``TableWriter``."""
        self._tables = tables
        self.table = TableWriter(tables / ROUTE_STATE, STATE_SCHEMA)

    def cover(self, new_states: Mapping[int, FoldStateRow]) -> None:
        """Rewrite the table so that it covers these fold states; blocks.

        Args:
            new_states: Partition → fold state. ``route_changes`` must already cover the offsets of these states.

        Raises:
            TablesTakenOver: Another job has rewritten the table meanwhile.
            TableSchemaMismatch: A table is damaged or has an unexpected schema.
            StoreUnreachable: The object store does not answer.
        """
        rows = read_tables(self._tables)
        if rows.damage is not None:
            raise rows.damage
        self.replace(*next_state(rows.state, rows.changes, new_states))

    def replace(
        self, live: pa.Table, states: Mapping[int, FoldStateRow], begins: Mapping[int, int] | None = None
    ) -> None:
        """Replace all rows of the table; blocks.

        Args:
            live: Rows without fold states and deleted keys, columns of ``STATE_SCHEMA``.
            states: Partition → fold state at the offset that ``live`` covers.
            begins: As in ``Change``.
        """
        old = self.table.files()
        file = self.table.write_rows(with_fold_states(live, states))
        # A file with the same rows has the same name.
        removed = tuple(known for known in old if known.path != file.path)
        added = (file,) if len(removed) == len(old) else ()
        if added or removed or begins:
            self.table.commit(grown(self.table, Change("WRITE", added, removed), begins or {}))


def next_state(
    state: StateRows, changes: pa.Table, new_states: Mapping[int, FoldStateRow]
) -> tuple[pa.Table, dict[int, FoldStateRow]]:
    """Compute the next version of ``route_state``.

    Args:
        state: The previous version.
        changes: All rows of ``route_changes`` from the offsets of the fold states in ``state`` on; columns of
            ``CHANGES_SCHEMA`` or ``as_read(CHANGES_SCHEMA)``.
        new_states: Partition → fold state to cover. States older than the previous ones are ignored.

    Returns:
        Live rows and fold states of the next version.
    """
    states = dict(state.fold_states)
    for partition, new in new_states.items():
        if partition not in states or new.next_offset > states[partition].next_offset:
            states[partition] = new
    covered = pc.scalar(False)
    for partition, new in states.items():
        covered = covered | ((pc.field("partition") == partition) & (pc.field("offset") < new.next_offset))
    since = in_log_order(changes.filter(covered))
    no_state = pa.nulls(since.num_rows, pa.binary())
    since = since.append_column(STATE_SCHEMA.field("state"), no_state).cast(STATE_SCHEMA)
    return in_log_order(newest_live_rows(pa.concat_tables([state.live.cast(STATE_SCHEMA), since]))), states


def newest_live_rows(rows: pa.Table) -> pa.Table:
    """Return the last row of each key, without keys that were deleted.

    Args:
        rows: Columns of ``STATE_SCHEMA``. Newer rows of a key follow older ones.
    """
    parts = [STATE_SCHEMA.empty_table()]
    for kind, key in KEY_COLUMNS.items():
        of_kind = rows.filter(pc.equal(rows["kind"], kind.value))
        positions = pa.array(range(of_kind.num_rows), pa.int64())
        newest = of_kind.select(key).append_column("position", positions).group_by(key).aggregate([("position", "max")])
        last = of_kind.take(newest["position_max"])
        parts.append(last.filter(pc.invert(last["gone"])))
    return pa.concat_tables(parts)


def with_fold_states(live: pa.Table, states: Mapping[int, FoldStateRow]) -> pa.Table:
    """Return all rows of ``route_state``: live rows and fold states."""
    rows = [
        {
            "partition": partition,
            "offset": state.next_offset,
            "seq": 0,
            "at_ms": state.at_ms,
            "kind": FOLD_STATE_KIND,
            "gone": False,
            "cause": "compacted",
            "batch_id": 0,
            "state": state.content,
        }
        for partition, state in sorted(states.items())
    ]
    return pa.concat_tables([live.cast(STATE_SCHEMA), pa.Table.from_pylist(rows, schema=STATE_SCHEMA)])


#: Kinds of rows that every partition has separately.
_OF_PARTITION = (ChangeKind.SETTING.value, ChangeKind.SERVER.value)


def grown_rows(live: pa.Table, before: int, partitions: int) -> pa.Table:
    """Divide the live rows among more partitions. Each broker's rows move to the partition of its name.

    A new partition gets the settings and servers of the first one.

    Args:
        live: Columns of ``STATE_SCHEMA`` or ``as_read(STATE_SCHEMA)``.
        before: The old number of partitions.
        partitions: The new number of partitions.
    """
    live = live.cast(STATE_SCHEMA)
    is_of_partition = pc.is_in(live["kind"], pa.array(_OF_PARTITION))
    own, moved = live.filter(is_of_partition), live.filter(pc.invert(is_of_partition))
    first = own.filter(pc.equal(own["partition"], 0))
    copies = [_in_partition(first, pa.repeat(partition, first.num_rows)) for partition in range(before, partitions)]
    names = pc.coalesce(moved["broker_name"], moved["namespace"]).combine_chunks().dictionary_encode()
    places = pa.array([partition_of(name, partitions) for name in names.dictionary.to_pylist()], pa.int32())
    return in_log_order(pa.concat_tables([own, *copies, _in_partition(moved, places.take(names.indices))]))


def state_rows(states: Sequence[FoldState]) -> dict[int, FoldStateRow]:
    """Return partition → row of kind ``fold_state``."""
    return {s.partition: FoldStateRow(s.next_offset, s.at_ms, encode_state(s)) for s in states}


def _in_partition(rows: pa.Table, partitions: pa.Array) -> pa.Table:
    field = STATE_SCHEMA.field("partition")
    return rows.set_column(STATE_SCHEMA.get_field_index("partition"), field, partitions.cast(field.type))
