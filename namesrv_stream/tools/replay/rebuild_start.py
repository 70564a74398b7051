"""Where a rebuild can start, and what can still be read of the tables that it replaces.

The start of a partition is the first of these that exists: the beginning of the log; the oldest stored ``route_state``
whose next record is still in the log; the tables alone, with every broker at age zero.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.route.fold.derived_state import rebuilt_state
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import RESTORE_OR_NEW_TABLES, RebuildRefused, TableSchemaMismatch
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, ROW_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.route_writers import next_state
from namesrv_stream.tables.snapshot import FoldStateRow, StateRows, route_table
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptState, KeptStates, StoredChanges
from namesrv_stream.text_table import counted
from namesrv_stream.tools.replay.log_fold import FoldStart, start_from_state, start_of_log
from namesrv_stream.tools.replay.log_source import LogSource


class OldTables:
    """The readable parts of the old tables.

    Attributes:
        losses: A sentence for every part that cannot be copied; grows when rows turn out to be unreadable.
        kept_from_ms: Rows with a lower ``at_ms`` (epoch milliseconds) may have been removed by their retention.
    """

    def __init__(
        self,
        changes: StoredChanges | None,
        states: KeptStates | None,
        losses: list[str],
        retention_ms: int,
        print_line: Callable[[str], None],
    ) -> None:
        self._changes = changes
        self._states = states
        self._print_line = print_line
        self.losses = losses
        self.kept_from_ms = changes.kept_from_ms(retention_ms) if changes else 0

    @classmethod
    def open(cls, settings: Settings, log_topic_id: str, print_line: Callable[[str], None]) -> "OldTables":
        """Open the existing tables, and report missing ones.

        Raises:
            RebuildRefused: The tables belong to another topic, and so do the history tables, which a rebuild keeps.
        """
        tables_dir, losses = tables_of(settings), list[str]()
        changes: StoredChanges | None = None
        states: KeptStates | None = None
        try:
            changes = StoredChanges.open(tables_dir)
            if changes is None:
                print_line("there is no route_changes")
        except TableSchemaMismatch as error:
            print_line(str(error))
        try:
            states = KeptStates(tables_dir)
            if states.damage is not None:
                print_line(str(states.damage))
        except TableSchemaMismatch as error:
            print_line(str(error))
        made_from = {(changes.topic_id, len(changes.next_offsets))} if changes else set()
        made_from |= {(states.topic_id, states.partitions)} if states and states.topic_id else set()
        for topic_id, partitions in sorted(made_from - {(log_topic_id, settings.kafka.partitions)}):
            if topic_id != log_topic_id:
                text = f"the tables belong to a topic with the id {topic_id}, Kafka's topic has {log_topic_id}"
                raise RebuildRefused(f"{text}; nothing was changed: {RESTORE_OR_NEW_TABLES}")
            losses.append(f"the old tables have {counted(partitions, 'partition')}, the topic has another number")
            changes = states = None
        return cls(changes, states, losses, settings.streaming.changes_retention_ms, print_line)

    @property
    def begins(self) -> Mapping[int, int]:
        """See ``LogSource.begins``."""
        tables = [table for table in (self._changes, self._states) if table is not None]
        return next((table.begins for table in tables if table.begins), {})

    @property
    def has_changes(self) -> bool:
        """Whether ``route_changes`` exists."""
        return self._changes is not None

    def next_offset(self, partition: int) -> int:
        """Return the first offset that neither table covers; 0 without tables."""
        newest = self._states.newest(partition) if self._states else None
        stored = self._changes.next_offsets[partition] if self._changes else 0
        return max(stored, newest.fold_state.next_offset if newest else 0)

    def oldest_state(self, partition: int, at_least: int) -> KeptState | None:
        """See ``KeptStates.oldest``."""
        return self._states.oldest(partition, at_least) if self._states else None

    def newest_state(self, partition: int, at_most: int) -> KeptState | None:
        """See ``KeptStates.newest``."""
        return self._states.newest(partition, at_most) if self._states else None

    def history(self, partition: int, end: int) -> pa.Table:
        """Return the rows before ``end``, to be copied; a missing or unreadable table is added to ``losses``."""
        if self._changes is None and end:
            self.losses.append(f"partition {partition}: route_changes has no rows of the records before {end}")
        rows = self.rows(partition, 0, end)
        return ROW_SCHEMA.empty_table() if rows is None else rows.select(ROW_SCHEMA.names).cast(ROW_SCHEMA)

    def rows(self, partition: int, begin: int, end: int) -> pa.Table | None:
        """See ``StoredChanges.rows``; None if there is no table, or if it cannot be read.

        A table that cannot be read is added to ``losses``.
        """
        if self._changes is None:
            return None
        try:
            return self._changes.rows(partition, begin, end)
        except TableSchemaMismatch as error:
            text = f"partition {partition}: {error}"
            self._print_line(text)
            self.losses.append(text)
            return None


@dataclass(frozen=True, slots=True)
class RebuildStart:
    """The start of the rebuild of one partition.

    Attributes:
        start: Start of the fold.
        seed: The fold state to write to ``route_state`` for this start; None at the beginning of the log.
        live: Live rows of ``route_state`` for this start, columns of ``STATE_SCHEMA``.
        history: Rows of ``route_changes`` before this start, columns of ``ROW_SCHEMA``, copied unchanged.
        losses: A sentence for everything that is lost.
    """

    partition: int
    start: FoldStart
    seed: FoldStateRow | None
    live: pa.Table
    history: pa.Table
    losses: tuple[str, ...]


def find_rebuild_starts(settings: Settings, log: LogSource, old: OldTables) -> list[RebuildStart]:
    """Return the starts of all partitions; blocks."""
    return [_find(partition, settings.kafka.partitions, log, old) for partition in range(settings.kafka.partitions)]


def _find(partition: int, partitions: int, log: LogSource, old: OldTables) -> RebuildStart:
    end, covered = log.end(partition), old.next_offset(partition)
    losses: tuple[str, ...] = ()
    if covered > end:
        losses = (f"partition {partition}: Kafka has lost the records {end} to {covered - 1}, which were folded",)
    starts = log.starts(partition, end)
    # The rows before a stored state are copied from the old table; without an old table an earlier start loses less.
    for earliest in starts if old.has_changes else sorted(starts):
        if not earliest and not log.begins:
            start = start_of_log(partition, partitions)
            return RebuildStart(partition, start, None, STATE_SCHEMA.empty_table(), ROW_SCHEMA.empty_table(), losses)
        kept = old.oldest_state(partition, earliest)
        if kept is not None and kept.fold_state.next_offset <= end:
            try:
                start = start_from_state(kept)
            except TableSchemaMismatch:
                continue  # of another version of the fold: only the rows can be copied
            history = old.history(partition, start.offset)
            return RebuildStart(partition, start, kept.fold_state, kept.live, history, losses)
    return _from_tables(partition, partitions, earliest, min(covered, end), log, old, losses)


def _from_tables(
    partition: int,
    partitions: int,
    earliest: int,
    known: int,
    log: LogSource,
    old: OldTables,
    losses: tuple[str, ...],
) -> RebuildStart:
    """Return a start made of the tables' rows, which cover the log below ``known``, with every broker at age zero."""
    if known < earliest:
        losses += (
            f"partition {partition}: the records {known} to {earliest - 1} were removed before they were folded",
        )
    kept = old.newest_state(partition, at_most=known)
    begins = log.begins.get(partition, 0)
    if kept is None and log.begins:
        losses += (
            f"partition {partition}: route_state is lost, which alone contained the routes from before the repartition",
        )
    base = kept.fold_state if kept else FoldStateRow(begins, 0, b"")
    live = kept.live if kept else STATE_SCHEMA.empty_table()
    since = old.rows(partition, base.next_offset, known)
    since = CHANGES_SCHEMA.empty_table() if since is None else since
    table = route_table(live, since)
    at_ms = max(base.at_ms, *(pc.max(rows["at_ms"]).as_py() or 0 for rows in (live, since)))
    begin = max(known, earliest)
    state = rebuilt_state(partition, partitions, begin, at_ms, table)
    seed = FoldStateRow(begin, at_ms, encode_state(state))
    state_rows = StateRows(live, {partition: base} if kept else {})
    live, _ = next_state(state_rows, since, {partition: seed})
    start = FoldStart("the old tables, every broker at age zero", begin, state, table)
    return RebuildStart(partition, start, seed, live, old.history(partition, known), losses)
