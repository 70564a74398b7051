"""Writes the history tables. Each table is continued from the mark in its own last commit.

``broker_events`` contains Kafka's records. ``route_archive`` follows the job's commits of ``route_changes``.
``heartbeat_minutes`` is computed from ``broker_events``, minute by minute. Every row is written exactly once, even if
the process is killed, because a commit contains both the rows and the mark up to which they cover the log.
"""

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from namesrv_stream.errors import ConfigError
from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.history.history_rows import (
    HISTORY_KINDS,
    archive_rows,
    event_rows,
    heartbeats,
    minute_rows,
    rows_to_catch_up,
    running_minutes,
)
from namesrv_stream.streaming.history.table_io import append, read_rows, within
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, FOLD_STATE_KIND, ROW_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.delta.table_version import open_version
from namesrv_stream.tables.history_files import FILE_SCHEMA, HistoryMark
from namesrv_stream.tables.history_tables import HistoryTable, data_files, ensure_history_tables
from namesrv_stream.tables.layout import (
    BROKER_EVENTS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_ARCHIVE,
    ROUTE_CHANGES,
    ROUTE_STATE,
)
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import StoredChanges

logger = logging.getLogger(__name__)

_PLACE = ("partition", "offset", "at")
_HEARTBEAT_COLUMNS = (*_PLACE, "kind", "cluster", "broker_name", "broker_addr", "server_id", "value")
_MINUTE_KEY = ("partition", "cluster", "broker_name", "broker_addr", "server_id")


class History:
    """The only writer of the history tables, for one thread at a time.

    Args:
        extent: The available offsets of the log.

    Attributes:
        begin: Partition → first offset that ``broker_events`` does not have.
    """

    def __init__(self, spark: SparkSession, settings: Settings, extent: TopicExtent) -> None:
        """Create or open the tables; blocks.

        Raises:
            TableSchemaMismatch: A table has an unexpected schema.
            ConfigError: Tables and topic belong to different logs, or there is no ``route_changes`` yet.
            StoreUnreachable: The object store does not answer.
        """
        self._spark = spark
        self._settings = settings
        self._tables = tables_of(settings)
        self._topic_id = self._source().topic_id
        if self._topic_id != extent.topic_id:
            reason = f"is {extent.topic_id} in Kafka and {self._topic_id} in route_changes: the logs are different"
            raise ConfigError(str(self._tables), "topic id", reason)
        ensure_history_tables(settings, self._topic_id)
        self._events = HistoryTable.open(self._tables, BROKER_EVENTS)
        self._archive = HistoryTable.open(self._tables, ROUTE_ARCHIVE)
        self._minutes = HistoryTable.open(self._tables, HEARTBEAT_MINUTES)
        self._tasks = max(1, spark.sparkContext.defaultParallelism)
        self._minutes_s = self._reached_s = -float("inf")
        self._records = 0
        self.begin = dict(self._beginnings(extent))

    @property
    def next_offsets(self) -> dict[int, int]:
        """Partition → first offset that ``broker_events`` does not have now."""
        return {p: max(first, self._events.mark.next_offset(p)) for p, first in self.begin.items()}

    def take(self, records: DataFrame, end: Mapping[int, int]) -> dict[str, int]:
        """Write a batch of records, and bring the other tables up to date; blocks.

        Args:
            records: Columns of ``read_records``, from ``begin`` or the end of the previous batch on.
            end: Partition → the offset after the last record.

        Returns:
            Table → number of written rows.

        Raises:
            TablesTakenOver: Another process writes these tables.
        """
        self._records += sum(end[p] - self._events.mark.next_offset(p) for p in end)
        mark = HistoryMark(self._topic_id, next_offsets=end)
        written = {BROKER_EVENTS: append(self._events, event_rows(records), mark, self._tasks)}
        return written | self.follow()

    def follow(self, *, is_last: bool = False) -> dict[str, int]:
        """Bring the other tables up to date with ``route_changes`` and ``broker_events``; blocks.

        Args:
            is_last: Whether ``heartbeat_minutes`` is written even if its interval is not over.

        Returns:
            Table → number of written rows.
        """
        return self._append_changes() | self._append_minutes(is_last=is_last)

    def _append_changes(self) -> dict[str, int]:
        """Bring ``route_archive`` up to date with the job's last commit of ``route_changes``."""
        source, written = self._source(), 0
        unseen = self._unseen_partitions(source)
        if unseen:
            caught_up = self._catch_up(source, unseen)
            if caught_up is None:
                return {ROUTE_ARCHIVE: 0}
            written += caught_up
        begin = {p: self._archive.mark.next_offset(p) for p in source.next_offsets}
        end = {p: max(begin[p], offset) for p, offset in source.next_offsets.items()}
        files = [file for file in source.files if file.may_have(begin, end)]
        at_ms = {**self._archive.mark.at_ms, **dict.fromkeys(end, source.newest_at_ms)}
        mark = HistoryMark(source.topic_id, source.table_id, end, at_ms)
        is_due = time.monotonic() - self._reached_s >= self._settings.history.heartbeats_interval_ms / 1000
        if files:
            written += append(self._archive, self._changes(files, begin, end), mark, self._tasks)
        elif is_due and end != begin:  # the job removes only rows below the archive's mark
            self._archive.commit(FILE_SCHEMA.empty_table(), mark)
        if files or is_due:
            self._reached_s = time.monotonic()
        return {ROUTE_ARCHIVE: written}

    def _changes(self, files: Collection[DataFile], begin: Mapping[int, int], end: Mapping[int, int]) -> DataFrame:
        """Return changes with ``begin <= offset < end`` from files of ``route_changes``, as ``route_archive`` rows."""
        rows = read_rows(self._spark, self._tables / ROUTE_CHANGES, files, CHANGES_SCHEMA, ROW_SCHEMA.names)
        return self._in_own_stage(archive_rows(within(rows, begin, end)))

    def _in_own_stage(self, rows: DataFrame) -> DataFrame:
        """Shuffle rows, so that reading and writing are separate stages: a task then has one Python worker (115 MB)."""
        return rows.repartition(self._tasks)

    def _source(self) -> StoredChanges:
        source = StoredChanges.open(self._tables)
        if source is None:
            raise ConfigError("settings", "data.tables", f"{self._tables}: there is no route_changes: has the job run?")
        return source

    def _beginnings(self, extent: TopicExtent) -> Iterator[tuple[int, int]]:
        for partition, earliest in sorted(extent.earliest.items()):
            first = self._events.mark.next_offset(partition)
            if first < earliest:
                text = "records missing in Kafka, broker_events has a gap partition=%d first=%d last=%d"
                logger.warning(text, partition, first, earliest - 1)
            yield partition, max(first, earliest)

    def _unseen_partitions(self, source: StoredChanges) -> list[int]:
        """Return partitions with changes that were removed before they were read, or that a rebuild replaced."""
        mark = self._archive.mark
        if mark.changes_id not in ("", source.table_id):
            return sorted(source.next_offsets)
        return [p for p, offset in sorted(source.removed_below.items()) if offset > mark.next_offset(p)]

    def _catch_up(self, source: StoredChanges, partitions: Collection[int]) -> int | None:
        """Continue from ``route_state``, and return the number of rows; None if the state does not cover enough yet."""
        table = open_version(self._tables / ROUTE_STATE, STATE_SCHEMA)
        if table is None:
            return None
        source = self._source()  # at least as new as the state, which the job writes later
        state = read_rows(self._spark, table.storage, table.files, STATE_SCHEMA, ROW_SCHEMA.names)
        folded = state.where(f.col("kind") == FOLD_STATE_KIND).select("partition", "offset", "at_ms").collect()
        mark = self._archive.mark
        known = {p: mark.next_offset(p) for p in source.next_offsets}
        reach = {
            r["partition"]: r
            for r in folded
            if r["partition"] in partitions
            and r["offset"] >= max(known[r["partition"]], source.removed_below[r["partition"]])
        }
        if reach.keys() != set(partitions):
            logger.info("route_archive waits for a route_state that covers the missing changes")
            return None
        text = "changes removed or rebuilt, continuing from route_state partition=%d first=%d state_offset=%d"
        for p, row in sorted(reach.items()):
            logger.warning(text, p, known[p], row["offset"])
        places = [
            {"partition": p, "known": known[p], "state_offset": row["offset"], "state_at_ms": row["at_ms"]}
            for p, row in sorted(reach.items())
        ]
        # The changes that exist are taken as they are.
        begin = {p: max(known[p], source.removed_below[p]) for p in reach}
        next_offsets = {**known, **{p: row["offset"] for p, row in reach.items()}}
        rows = rows_to_catch_up(
            self._read(ROUTE_ARCHIVE, data_files(self._tables / ROUTE_ARCHIVE), HISTORY_SCHEMAS[ROUTE_ARCHIVE].names),
            self._changes([file for file in source.files if file.may_have(begin, next_offsets)], begin, next_offsets),
            state.where(f.col("kind").isin(*HISTORY_KINDS)),
            self._spark.createDataFrame(pa.Table.from_pylist(places)),
        )
        at_ms = {**mark.at_ms, **{p: row["at_ms"] for p, row in reach.items()}}
        return append(self._archive, rows, HistoryMark(source.topic_id, source.table_id, next_offsets, at_ms), 1)

    def _append_minutes(self, *, is_last: bool) -> dict[str, int]:
        """Write the minutes that have ended, in steps of a limited number of records."""
        history = self._settings.history
        is_due = time.monotonic() - self._minutes_s >= history.heartbeats_interval_ms / 1000
        if not (is_due or is_last) and self._records < history.max_records:
            return {}
        written, limit = 0, history.max_records
        # If broker_events was removed and is being written again, it ends before the minutes for some time.
        end = {
            p: max(offset, self._minutes.mark.next_offset(p)) for p, offset in self._events.mark.next_offsets.items()
        }
        while True:
            mark = self._minutes.mark
            begin = {p: mark.next_offset(p) for p in end}
            reached = step_end(begin, end, limit)
            events = [file for file in data_files(self._events.storage) if file.may_have(begin, reached)]
            places = within(self._read(BROKER_EVENTS, events, _PLACE), begin, reached)
            running = {r["partition"]: r for r in running_minutes(places).collect()}
            until = {p: r["offset"] for p, r in running.items() if r["offset"] > begin[p]}
            if until:
                ends = {**begin, **until}
                received = heartbeats(within(self._read(BROKER_EVENTS, events, _HEARTBEAT_COLUMNS), begin, ends))
                at_ms = {**mark.at_ms, **{p: running[p]["at_ms"] for p in until}}
                new_mark = replace(self._events.mark, next_offsets=ends, at_ms=at_ms)
                rows = self._in_own_stage(minute_rows(received, self._minutes_before(mark)))
                written += append(self._minutes, rows, new_mark, self._tasks)
            elif reached != end:
                limit *= 2  # the step is shorter than a minute
            if reached == end:
                break
        self._minutes_s, self._records = time.monotonic(), 0
        return {HEARTBEAT_MINUTES: written}

    def _minutes_before(self, mark: HistoryMark) -> DataFrame:
        """Return the earlier rows of ``heartbeat_minutes`` in which gaps that reach into the new minutes may begin.

        Rows older than the highest timeout are left out, because a longer silence does not count as a gap.
        """
        since_ms = max(0, min(mark.at_ms.values(), default=0) - self._settings.liveness.max_timeout_ms)
        files = data_files(self._minutes.storage, "minute", since_ms)
        rows = self._read(HEARTBEAT_MINUTES, files, (*_MINUTE_KEY, "minute", "last_at"))
        return rows.where(f.unix_millis("minute") >= since_ms)

    def _read(self, table: str, files: Collection[DataFile], columns: Collection[str]) -> DataFrame:
        return read_rows(self._spark, self._tables / table, files, HISTORY_SCHEMAS[table], columns)


def step_end(begin: Mapping[int, int], end: Mapping[int, int], limit: int) -> dict[int, int]:
    """Return the end of the next step: ``end``, or lower offsets if the step would exceed ``limit`` records.

    Each partition that is behind gets an equal share, and at least one record. A partition whose begin is after its end
    does not change.

    Args:
        begin: Partition → first offset.
        end: Partition → the offset after the last record, for the same partitions.
        limit: Maximum number of records of all partitions together.
    """
    behind = {p for p, first in begin.items() if first < end[p]}
    share = max(1, limit // len(behind)) if behind else 0
    return {p: min(end[p], first + share) if p in behind else first for p, first in begin.items()}
