"""The two tables made from events alone: every event as received, and the minutes of heartbeats made from those."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

import polars as pl
from pyspark.sql import DataFrame

from namesrv_stream.streaming.history.event_clocks import read_clocks
from namesrv_stream.streaming.history.event_rows import event_rows
from namesrv_stream.streaming.history.heard import heard
from namesrv_stream.streaming.history.history_table import HistoryTable
from namesrv_stream.streaming.history.minute_rows import minute_rows
from namesrv_stream.streaming.history.ranges import is_empty, step_end
from namesrv_stream.tables.delta.predicates import at_least, timestamp
from namesrv_stream.tables.history_mark import HistoryMark

_LOG = logging.getLogger(__name__)

#: (partition → first offset, partition → the offset after the last) → records, as of ``event_rows.read_records``.
ReadRecords = Callable[[Mapping[int, int], Mapping[int, int]], DataFrame]


def write_events(
    table: HistoryTable,
    read: ReadRecords,
    topic_id: str,
    earliest: Mapping[int, int],
    end: Mapping[int, int],
    limit: int,
) -> int:
    """Copy records of Kafka to ``broker_events``; blocks.

    Args:
        table: It.
        read: Reads Kafka.
        topic_id: Of the topic.
        earliest: partition → first offset that Kafka holds.
        end: partition → the offset after the last to copy.
        limit: Records in one step.

    Returns:
        How many records were copied.
    """
    copied = 0
    begin = {p: table.mark.next_offset(p) for p in end}
    for partition, first in begin.items():
        if first < min(earliest[partition], end[partition]):
            text = "partition %d: Kafka no longer has the records %d to %d: broker_events goes on without them"
            _LOG.warning(text, partition, first, earliest[partition] - 1)
            begin[partition] = earliest[partition]
    while not is_empty(begin, end):
        reached = step_end(begin, end, limit)
        table.append(event_rows(read(begin, reached)), HistoryMark(topic_id, next_offsets=reached))
        copied += sum(reached.values()) - sum(begin.values())
        begin = reached
    return copied


def write_minutes(table: HistoryTable, events: HistoryTable, lookback_ms: int, limit: int) -> int:
    """Add the minutes that have ended to ``heartbeat_minutes``; blocks.

    Args:
        table: It.
        events: ``broker_events``.
        lookback_ms: A gap longer than this is none: no broker was kept for so long.
        limit: Records in one step.

    Returns:
        How many records were of those minutes.
    """
    seen = 0
    end = dict(events.mark.next_offsets)
    files = events.file_ranges()
    while True:
        mark = table.mark
        begin = {p: mark.next_offset(p) for p in end}
        reached = step_end(begin, end, limit)
        clocks = read_clocks(files, begin, reached, mark.at_ms)
        ends, before_ms = clocks.ended_minutes()
        if not ends:
            if reached == end:
                return seen
            limit *= 2  # no whole minute fits into a step
            continue
        until = {**begin, **ends}
        hearings = heard(files, begin, until, clocks)
        table.append(
            minute_rows(hearings, _newest_minutes(table, mark, lookback_ms)).to_arrow(),
            replace(events.mark, next_offsets=until, at_ms=before_ms),
        )
        seen += sum(until.values()) - sum(begin.values())


def _newest_minutes(table: HistoryTable, mark: HistoryMark, lookback_ms: int) -> pl.DataFrame:
    """The rows from which on a gap may have begun."""
    since_ms = min(mark.at_ms.values(), default=0) - lookback_ms
    columns = ("partition", "cluster", "broker_name", "broker_addr", "server_id", "last_at")
    return table.stored().rows(at_least("minute", timestamp(max(0, since_ms))), columns=columns)
