"""The streaming query of the job, from the log through the fold to the sink, and its start point.

The fold always starts from ``route_state`` and the log. ``route_state`` contains the exact state of the fold, so the
changes are the same wherever it starts, and rows that ``route_changes`` has already are dropped. Spark's checkpoint is
recreated at each start and has no influence. So a job needs only the tables and Kafka, on any machine (ADR 0050).
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.route.fold.state import decode_state
from namesrv_stream.route.group_json import encode_group
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.route_table.stateful import INITIAL_STATE_SCHEMA, OUTPUT_SCHEMA, RouteStatefulProcessor
from namesrv_stream.streaming.spark_session import read_log, scratch_dir
from namesrv_stream.table_errors import LogTruncated, StateMissing
from namesrv_stream.tables.snapshot import route_table
from namesrv_stream.tables.stored_changes import KeptState, KeptStates

#: (partition, broker name; None for the hot state, content) tuples.
InitialState = list[tuple[int, str | None, bytes]]


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where the fold starts.

    Attributes:
        offsets: Partition → first offset to fold.
        initial_state: The fold's state at these offsets; nothing for partitions that start with the log.
    """

    offsets: Mapping[int, int]
    initial_state: InitialState = field(default_factory=list)


def find_start_point(
    states: KeptStates, committed: Mapping[int, int], removed_below: Mapping[int, int], extent: TopicExtent
) -> StartPoint:
    """Find the newest version of ``route_state`` that ``route_changes`` covers; blocks.

    After a restore or repair of ``route_changes``, there may be a newer version. It must not be used, because its
    changes would then be missing in ``route_changes`` permanently.

    Args:
        states: The versions of ``route_state``.
        committed: Partition → first offset that ``route_changes`` does not cover.
        removed_below: Partition → first offset from which ``route_changes`` still has all rows.
        extent: The available offsets of the log.

    Raises:
        LogTruncated: Kafka does not have the next record.
        StateMissing: There is no state, and neither log nor rows reach back to the beginning.
        StateFromNewerVersion: A newer version of the program has written the state.
    """
    offsets: dict[int, int] = {}
    initial: InitialState = []
    for partition, covered in sorted(committed.items()):
        earliest, end = extent.earliest[partition], extent.end[partition]
        kept = states.newest(partition, at_most=covered)
        if kept is not None:
            offsets[partition] = kept.fold_state.next_offset
            initial += _initial_state(partition, kept)
        elif not earliest and not removed_below.get(partition):
            offsets[partition] = 0  # folding the complete log gives exactly the same changes again
        elif not covered and states.newest(partition) is None:
            offsets[partition] = earliest  # nothing was ever folded
        else:
            raise StateMissing(partition, covered, earliest)
        if not earliest <= offsets[partition] <= end:
            raise LogTruncated(partition, offsets[partition], earliest, end)
    return StartPoint(offsets, initial)


def _initial_state(partition: int, kept: KeptState) -> InitialState:
    content = kept.fold_state.content
    decode_state(content)  # raises for a state of a newer program, before Spark's workers read it
    groups = route_table(kept.live).groups
    return [(partition, None, content), *((partition, name, encode_group(group)) for name, group in groups.items())]


def start_query(
    spark: SparkSession, settings: Settings, start: StartPoint, sink: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the query and return at once. Batches run on Spark's threads, ``sink`` on a thread of Python.

    Args:
        spark: The session.
        settings: The settings.
        start: The start point.
        sink: The function of ``foreachBatch``.
    """
    return (
        _folded(spark, settings, start)
        .writeStream.foreachBatch(sink)
        .queryName("route_table")
        .option("checkpointLocation", str((scratch_dir(settings) / f"checkpoint-{uuid.uuid4()}").absolute()))
        .outputMode("append")
        .start()
    )


def _folded(spark: SparkSession, settings: Settings, start: StartPoint) -> DataFrame:
    """Return the fold's output, columns of ``stateful.OUTPUT_SCHEMA``."""
    events = _events(spark, settings, start.offsets)
    processor = RouteStatefulProcessor(settings.kafka.partitions, settings.streaming.compaction_interval_ms)
    initial = None
    if start.initial_state:
        # Spark converts an Arrow table in a fraction of the time that rows take.
        columns = [list(values) for values in zip(*start.initial_state, strict=True)]
        initial = spark.createDataFrame(pa.table(columns, schema=INITIAL_STATE_SCHEMA)).groupBy("partition")
    if settings.kafka.partitions == 1:
        # One task that reads and folds, instead of two with a shuffle, saves a fifth of a batch's time.
        events = events.coalesce(1)
    return events.groupBy("partition").transformWithState(
        statefulProcessor=processor,
        outputStructType=OUTPUT_SCHEMA,
        outputMode="Append",
        timeMode="None",
        initialState=initial,
    )


def _events(spark: SparkSession, settings: Settings, starting_offsets: Mapping[int, int]) -> DataFrame:
    """Return all records of the events topic.

    Args:
        spark: The session.
        settings: ``kafka``, and options ``kafka.…`` of ``streaming.extra``, are used.
        starting_offsets: Partition → first offset.

    Returns:
        Columns partition (int), offset (bigint), at_ms (bigint, LogAppendTime), value (binary).
    """
    options = {
        # After each read, the consumer sends the next fetch request, which waits up to 500 ms for a record. A Kafka
        # broker answers the requests of a connection in order, so this delayed the first request of the next batch by
        # 300 ms.
        "kafka.fetch.max.wait.ms": "1",
    }
    records = read_log(spark, settings, starting_offsets, settings.streaming.max_offsets_per_trigger, options)
    return records.select("partition", "offset", f.unix_millis("timestamp").alias("at_ms"), "value")
