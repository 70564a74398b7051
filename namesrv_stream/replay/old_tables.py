"""The tables that a rebuild replaces: any of them may be lost, damaged, or of another log."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from namesrv_stream.errors import TableSchemaMismatch
from namesrv_stream.settings import Settings
from namesrv_stream.tables.schema.change_rows import ROW_SCHEMA
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptState, KeptStates, StoredChanges


class OldTables:
    """What can be read of them.

    Attributes:
        losses: What of them cannot be taken over, a sentence each; grows when rows turn out to be unreadable.
        kept_from_ms: Rows with a lower ``at_ms`` may have been removed by their retention, epoch milliseconds.
    """

    def __init__(
        self,
        changes: StoredChanges | None,
        states: KeptStates | None,
        losses: list[str],
        retention_ms: int,
        say: Callable[[str], None],
    ) -> None:
        self._changes = changes
        self._states = states
        self._say = say
        self.losses = losses
        self.kept_from_ms = changes.kept_from_ms(retention_ms) if changes else 0

    @classmethod
    def open(cls, settings: Settings, log_topic_id: str, say: Callable[[str], None]) -> "OldTables":
        """Open what is there; says what is not."""
        tables_dir, losses = tables_of(settings), list[str]()
        changes: StoredChanges | None = None
        states: KeptStates | None = None
        try:
            changes = StoredChanges.open(tables_dir)
            if changes is None:
                say("route_changes is not there")
        except TableSchemaMismatch as error:
            say(str(error))
        try:
            states = KeptStates(tables_dir)
            if states.damage is not None:
                say(str(states.damage))
        except TableSchemaMismatch as error:
            say(str(error))
        made_from = {(changes.topic_id, len(changes.next_offsets))} if changes else set()
        made_from |= {(states.topic_id, states.partitions)} if states and states.topic_id else set()
        for topic_id, partitions in sorted(made_from - {(log_topic_id, settings.kafka.partitions)}):
            losses.append(f"the old tables were made from another log, topic id {topic_id}, partitions {partitions}")
            changes = states = None
        return cls(changes, states, losses, settings.streaming.changes_retention_ms, say)

    @property
    def begins(self) -> Mapping[int, int]:
        """As of ``LogSource``."""
        tables = [table for table in (self._changes, self._states) if table is not None]
        return next((table.begins for table in tables if table.begins), {})

    @property
    def has_changes(self) -> bool:
        """Whether ``route_changes`` is there."""
        return self._changes is not None

    def next_offset(self, partition: int) -> int:
        """First offset that neither table covers; 0 where there is none."""
        newest = self._states.newest(partition) if self._states else None
        stored = self._changes.next_offsets[partition] if self._changes else 0
        return max(stored, newest.fold_state.next_offset if newest else 0)

    def oldest_state(self, partition: int, at_least: int) -> KeptState | None:
        """As ``KeptStates.oldest``."""
        return self._states.oldest(partition, at_least) if self._states else None

    def newest_state(self, partition: int, at_most: int) -> KeptState | None:
        """As ``KeptStates.newest``."""
        return self._states.newest(partition, at_most) if self._states else None

    def history(self, partition: int, end: int) -> pa.Table:
        """Rows before ``end``, of which the log has nothing any more; a loss where there are none."""
        if self._changes is None and end:
            self.losses.append(f"partition {partition}: route_changes has no rows of the records before {end}")
        rows = self.rows(partition, 0, end)
        return ROW_SCHEMA.empty_table() if rows is None else rows.select(ROW_SCHEMA.names).cast(ROW_SCHEMA)

    def rows(self, partition: int, begin: int, end: int) -> pa.Table | None:
        """As ``StoredChanges.rows``; None where there are none, or they cannot be read."""
        if self._changes is None:
            return None
        try:
            return self._changes.rows(partition, begin, end)
        except TableSchemaMismatch as error:
            text = f"partition {partition}: {error}"
            self._say(text)
            self.losses.append(text)
            return None
