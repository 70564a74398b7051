"""``namesrv-stream replay``: what the log says against what the tables say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from namesrv_stream.errors import ConfigError, LogTruncated, TableSchemaMismatch
from namesrv_stream.event_log.opening import OpenLog, log_opener
from namesrv_stream.event_log.source import LogSource
from namesrv_stream.instants import instant
from namesrv_stream.replay.log_range import GivenOffsets, end_offset
from namesrv_stream.replay.log_replay import (
    OnProgress,
    PartitionReplay,
    Replay,
    StoredTables,
    kept_from_ms,
    replay_partition,
)
from namesrv_stream.replay.partition_fold import find_start
from namesrv_stream.settings import Settings
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptStates, StoredChanges


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """What to replay.

    Attributes:
        begin: First offsets to compare; where none is given, as early as can be folded.
        end: First offsets beyond; where none is given, where the tables end.
        end_ms: Records with this LogAppendTime (epoch milliseconds), and all after the first such, are beyond too.
    """

    begin: GivenOffsets
    end: GivenOffsets
    end_ms: int | None


_NO_TABLE: Final = (
    "is not there: name another directory with --conf or --data-dir; if the table was lost, `namesrv-stream rebuild`"
    " makes it from the log"
)


def replay(settings: Settings, wanted: ReplayRange, on_progress: OnProgress, open_log: OpenLog | None = None) -> Replay:
    """Fold the range again and compare it with the tables, which the job may go on writing; blocks.

    Args:
        settings: Ours.
        wanted: What to replay.
        on_progress: Told of long folds.
        open_log: Opens the log; by default Kafka's, and the archive for what Kafka has no more.

    Raises:
        NamesrvStreamError: It cannot be done, and why.
    """
    tables_dir = tables_of(settings)
    changes = StoredChanges.open(tables_dir)
    if changes is None:
        path = tables_dir / ROUTE_CHANGES
        raise TableSchemaMismatch(str(path), _NO_TABLE)
    states = KeptStates(tables_dir)
    if states.damage is not None:
        raise states.damage
    stored = StoredTables(changes, states, kept_from_ms(changes, settings.streaming.changes_retention_ms))
    with (open_log or log_opener())(settings) as log:  # after the tables: it has all that they cover
        check_same_topic(settings, changes, log.topic_id)
        wanted.begin.check(settings.kafka.partitions)
        wanted.end.check(settings.kafka.partitions)
        ends = {p: _end(log, p, wanted, changes.next_offsets[p]) for p in changes.next_offsets}
        _check_time(wanted, log, ends)
        parts = [_replay_partition(log, p, ends[p], wanted, stored, on_progress) for p in sorted(ends)]
        return Replay(tuple(parts), (*log.notes, *log.gap_texts(), *_time_notes(wanted, log, ends)))


def check_same_topic(settings: Settings, changes: StoredChanges, topic_id: str) -> None:
    """Refuse tables that were made from another log.

    Raises:
        ConfigError: They were.
    """
    topic = settings.kafka.broker_events_topic
    if changes.topic_id != topic_id or len(changes.next_offsets) != settings.kafka.partitions:
        made_from = f"topic id {changes.topic_id} with {len(changes.next_offsets)} partitions"
        reason = f"the tables were made from {made_from}, topic {topic} has id {topic_id} and"
        raise ConfigError("settings", "kafka.broker_events_topic", f"{reason} {settings.kafka.partitions}")


def _end(log: LogSource, partition: int, wanted: ReplayRange, covered: int) -> int:
    given = wanted.end.get(partition)
    if not log.has_kafka and given is None:
        covered = min(covered, log.end(partition))
    end = end_offset(given, covered, partition, wanted.end.flag)
    if wanted.end_ms is not None:
        at_time = log.offset_at(partition, wanted.end_ms)
        end = end if at_time is None else min(end, at_time)
    if end > log.end(partition):
        if not log.has_kafka:
            reason = f"is {end}, but broker_events ends at {log.end(partition)} in partition {partition}"
            raise ConfigError("command line", wanted.end.flag, f"{reason}, and Kafka does not answer")
        raise LogTruncated(partition, end, log.begin(partition), log.end(partition))
    return end


def _check_time(wanted: ReplayRange, log: LogSource, ends: Mapping[int, int]) -> None:
    """Refuse a time before the log, of which nothing could be said but that nothing is equal to nothing.

    Raises:
        ConfigError: No record is older, though there are some.
    """
    is_empty = all(end <= log.begin(p) for p, end in ends.items())
    if wanted.end_ms is not None and is_empty and any(log.end(p) for p in ends):
        reason = f"the log has no record from before {instant(wanted.end_ms, with_ms=True)}"
        raise ConfigError("command line", "--to-time", reason)


def _time_notes(wanted: ReplayRange, log: LogSource, ends: Mapping[int, int]) -> list[str]:
    """What must be said where the time lies beyond all that was replayed."""
    if wanted.end_ms is None:
        return []
    at_time = [(log.offset_at(partition, wanted.end_ms), end) for partition, end in ends.items()]
    if any(offset is not None and offset <= end for offset, end in at_time):
        return []
    return [f"--to-time {instant(wanted.end_ms)} lies beyond the end of the data: everything was replayed up to there"]


def _replay_partition(
    log: LogSource, partition: int, end: int, wanted: ReplayRange, stored: StoredTables, on_progress: OnProgress
) -> PartitionReplay:
    begin = wanted.begin.get(partition)
    if begin is not None and begin > end:
        reason = f"the range begins at {begin} in partition {partition}, behind its end at {end}"
        raise ConfigError("command line", wanted.begin.flag, reason)
    start = find_start(log, partition, end, stored.states, begin)
    return replay_partition(log, start, stored, start.offset if begin is None else begin, end, on_progress)
