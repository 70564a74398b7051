"""``namesrv-stream replay``: what the log says against what the tables say."""

from dataclasses import dataclass

from namesrv_stream.errors import ConfigError, LogTruncated, TableSchemaMismatch
from namesrv_stream.replay.log_range import GivenOffsets, end_offset
from namesrv_stream.replay.log_replay import (
    OnProgress,
    PartitionReplay,
    Replay,
    StoredTables,
    kept_from_ms,
    replay_partition,
)
from namesrv_stream.replay.log_source import LogSource, OpenLog, open_kafka_log
from namesrv_stream.replay.partition_fold import find_start
from namesrv_stream.settings import Settings
from namesrv_stream.snapshot import KeptStates, StoredChanges
from namesrv_stream.streaming.topic import TopicExtent
from namesrv_stream.tables import ROUTE_CHANGES, table_path


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


def replay(
    settings: Settings, wanted: ReplayRange, on_progress: OnProgress, open_log: OpenLog = open_kafka_log
) -> Replay:
    """Fold the range again and compare it with the tables, which the job may go on writing; blocks.

    Raises:
        NamesrvStreamError: It cannot be done, and why.
    """
    tables_dir = settings.data.tables_dir
    changes = StoredChanges.open(tables_dir)
    if changes is None:
        path = table_path(tables_dir, ROUTE_CHANGES)
        raise TableSchemaMismatch(str(path), "is not there; `namesrv-stream rebuild` makes it from the log")
    stored = StoredTables(
        changes, KeptStates(tables_dir), kept_from_ms(changes, settings.streaming.changes_retention_ms)
    )
    with open_log(settings) as log:  # after the tables: it has all that they cover
        check_same_topic(settings, changes, log.extent)
        parts = [_replay_partition(log, p, wanted, stored, on_progress) for p in range(settings.kafka.partitions)]
    return Replay(tuple(parts))


def check_same_topic(settings: Settings, changes: StoredChanges, extent: TopicExtent) -> None:
    """Refuse tables that were made from another log.

    Raises:
        ConfigError: They were.
    """
    topic = settings.kafka.broker_events_topic
    if changes.topic_id != extent.topic_id or len(changes.next_offsets) != settings.kafka.partitions:
        made_from = f"topic id {changes.topic_id} with {len(changes.next_offsets)} partitions"
        reason = f"the tables were made from {made_from}, Kafka's topic {topic} has id {extent.topic_id} and"
        raise ConfigError("settings", "kafka.broker_events_topic", f"{reason} {settings.kafka.partitions}")


def _replay_partition(
    log: LogSource, partition: int, wanted: ReplayRange, stored: StoredTables, on_progress: OnProgress
) -> PartitionReplay:
    covered = stored.changes.next_offsets[partition]
    earliest, log_end = log.extent.earliest[partition], log.extent.end[partition]
    end = end_offset(wanted.end.get(partition), covered, partition, wanted.end.flag)
    if wanted.end_ms is not None:
        at_time = log.offset_at(partition, wanted.end_ms)
        end = end if at_time is None else min(end, at_time)
    if end > log_end:
        raise LogTruncated(partition, end, earliest, log_end)
    begin = wanted.begin.get(partition)
    start = find_start(partition, len(stored.changes.next_offsets), earliest, stored.states, begin)
    compared_from = start.offset if begin is None else begin
    if compared_from > end:
        reason = f"the range begins at {compared_from} in partition {partition}, behind its end at {end}"
        raise ConfigError("command line", wanted.begin.flag, reason)
    return replay_partition(log, start, stored, compared_from, end, on_progress)
