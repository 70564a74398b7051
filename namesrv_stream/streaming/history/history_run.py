"""One run: every history table brought to where the job has committed ``route_changes``, never further."""

import time
from collections.abc import Mapping
from functools import partial

from pyspark.sql import SparkSession

from namesrv_stream.errors import ConfigError
from namesrv_stream.kafka.extent import TopicExtent
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.history.changes_step import catching_up, next_step, unseen_partitions
from namesrv_stream.streaming.history.event_rows import read_records
from namesrv_stream.streaming.history.events_step import ReadRecords, write_events, write_minutes
from namesrv_stream.streaming.history.history_table import HistoryTable
from namesrv_stream.streaming.history.intervals import write_intervals
from namesrv_stream.streaming.history.ranges import is_empty, step_end
from namesrv_stream.streaming.history.session import forget_tables
from namesrv_stream.streaming.history.sessions_step import write_sessions
from namesrv_stream.tables.changes_source import ChangesSource
from namesrv_stream.tables.history_tables import ensure_history_tables, has_history_tables
from namesrv_stream.tables.schema.history_columns import (
    BROKER_EVENTS,
    BROKER_SESSIONS,
    HEARTBEAT_MINUTES,
    ROUTE_HISTORY,
    TOPIC_ROUTE_HISTORY,
)
from namesrv_stream.tables.storage import tables_of


class HistoryRun:
    """Writes the tables; of one thread, and the only writer.

    Args:
        spark: The session.
        settings: Ours.
        read: Reads records of Kafka; for tests, of elsewhere.
    """

    def __init__(self, spark: SparkSession, settings: Settings, read: ReadRecords | None = None) -> None:
        self._spark = spark
        self._settings = settings
        self._tables = tables_of(settings)
        self._read = read or partial(read_records, spark, settings)
        self._has_tables = False
        # (id of route_changes, table) → partition → first offset not looked at. Where there was nothing to write, the
        # table's mark stays behind for a while.
        self._looked: dict[tuple[str, str], Mapping[int, int]] = {}
        self._heartbeats_s = -float("inf")

    def run(self, extent: TopicExtent) -> dict[str, int] | None:
        """Write what there is; blocks.

        Args:
            extent: What Kafka holds.

        Returns:
            Table → rows written or changed, of events and minutes: records; None where there is no ``route_changes``.

        Raises:
            TableSchemaMismatch: A table is not as this version of the code expects.
            ConfigError: The tables and the topic are of different logs.
        """
        began_s, heartbeats_ms = time.monotonic(), self._settings.history.heartbeats_interval_ms
        source = ChangesSource.open(self._tables)
        if source is None:
            return None
        self._check(source, extent)
        limit = self._settings.history.max_records
        events = self._table(BROKER_EVENTS)
        written = {
            BROKER_EVENTS: write_events(events, self._read, source.topic_id, extent.earliest, source.committed, limit)
        }
        # The run that is nearest to the interval: what runs take before they come here differs a little.
        is_due = began_s - self._heartbeats_s >= (heartbeats_ms - self._settings.history.interval_ms / 2) / 1000
        if is_due:
            minutes = self._table(HEARTBEAT_MINUTES)
            written[HEARTBEAT_MINUTES] = write_minutes(minutes, events, self._settings.liveness.max_timeout_ms, limit)
        for name in (ROUTE_HISTORY, TOPIC_ROUTE_HISTORY):
            written[name] = self._write_intervals(self._table(name), source, is_due)
        written[BROKER_SESSIONS] = self._write_sessions(self._table(BROKER_SESSIONS), source, events, is_due)
        if is_due:
            self._heartbeats_s = began_s
        return written

    def _check(self, source: ChangesSource, extent: TopicExtent) -> None:
        if source.topic_id != extent.topic_id:
            reason = f"is {extent.topic_id} in Kafka and {source.topic_id} in route_changes: they are of different logs"
            raise ConfigError(str(self._tables), "topic id", reason)
        if not self._has_tables or not has_history_tables(self._tables):
            ensure_history_tables(self._settings, source.topic_id)
            forget_tables(self._spark)
            self._has_tables = True
            self._looked.clear()

    def _table(self, name: str) -> HistoryTable:
        return HistoryTable(self._spark, self._tables, name)

    def _write_intervals(self, table: HistoryTable, source: ChangesSource, is_due: bool) -> int:
        written = 0
        unseen = unseen_partitions(table.mark, source)
        if unseen:
            step = catching_up(self._tables, table, source, unseen)
            if step is None:
                return 0
            written += write_intervals(table, step.changes, step.mark)
        begin = self._not_looked_at(table, source)
        while not is_empty(begin, source.committed):
            step = next_step(
                table.name, table.mark, source, begin, source.committed, self._settings.history.max_records
            )
            if step.changes.num_rows:
                written += write_intervals(table, step.changes, step.mark)
            elif is_due:  # now and then, so that nobody takes rows that others do without for unseen
                table.reach(step.mark)
            begin = self._looked[source.changes_id, table.name] = step.end
        return written

    def _not_looked_at(self, table: HistoryTable, source: ChangesSource) -> Mapping[int, int]:
        looked = self._looked.get((source.changes_id, table.name), {})
        return {p: max(table.mark.next_offset(p), looked.get(p, 0)) for p in source.committed}

    def _write_sessions(self, table: HistoryTable, source: ChangesSource, events: HistoryTable, is_due: bool) -> int:
        written = 0
        limit = self._settings.history.max_records
        unseen = unseen_partitions(table.mark, source)
        if unseen:
            # A state beyond the events would leave out hearings; the next run has those events.
            step = catching_up(self._tables, table, source, unseen, events.mark.next_offsets)
            if step is None:
                return 0
            written += write_sessions(table, events, step, limit)
        reached = {p: min(offset, events.mark.next_offset(p)) for p, offset in source.committed.items()}
        while True:
            begin = {p: table.mark.next_offset(p) for p in reached}
            end = {p: max(first, reached[p]) for p, first in begin.items()}
            step = next_step(table.name, table.mark, source, begin, step_end(begin, end, limit), limit)
            if is_empty(begin, step.end):
                return written
            # Who merely stays up is brought up to date now and then: each time costs a file for each day on which
            # one of them came up.
            if not (step.changes.num_rows or is_due or step.end != end):
                return written
            written += write_sessions(table, events, step, limit)
