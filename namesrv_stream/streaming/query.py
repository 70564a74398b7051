"""Source → fold → sink, as one streaming query."""

import uuid
from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.session import scratch_dir
from namesrv_stream.streaming.source import read_log
from namesrv_stream.streaming.start_point import StartPoint
from namesrv_stream.streaming.stateful import INITIAL_STATE_SCHEMA, OUTPUT_SCHEMA, RouteStatefulProcessor


def start_query(
    spark: SparkSession, settings: Settings, start: StartPoint, sink: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start folding; returns at once, batches run on Spark's threads and ``sink`` on one of Python's.

    Args:
        spark: The session.
        settings: Ours.
        start: Where to begin.
        sink: ``foreachBatch``.
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
    """The fold's output, columns ``stateful.OUTPUT_SCHEMA``."""
    events = _events(spark, settings, start.offsets)
    processor = RouteStatefulProcessor(settings.kafka.partitions, settings.streaming.compaction_interval_ms)
    initial = None
    if start.initial_state:
        # Spark takes a table in a fraction of the time that rows need.
        columns = [list(values) for values in zip(*start.initial_state, strict=True)]
        initial = spark.createDataFrame(pa.table(columns, schema=INITIAL_STATE_SCHEMA)).groupBy("partition")
    if settings.kafka.partitions == 1:
        # One task that reads and folds, instead of two with a shuffle between them: a fifth of a batch's cost.
        events = events.coalesce(1)
    return events.groupBy("partition").transformWithState(
        statefulProcessor=processor,
        outputStructType=OUTPUT_SCHEMA,
        outputMode="Append",
        timeMode="None",
        initialState=initial,
    )


def _events(spark: SparkSession, settings: Settings, starting_offsets: Mapping[int, int]) -> DataFrame:
    """Every record of the events topic.

    Args:
        spark: The session.
        settings: Of which ``kafka`` and, where its keys begin with ``kafka.``, ``streaming.extra`` matter.
        starting_offsets: First offset of each partition.

    Returns:
        Columns partition (int), offset (bigint), at_ms (bigint, LogAppendTime), value (binary).
    """
    options = {
        # Behind each read the consumer asks for what comes next, and a broker answers a connection's requests in order:
        # the next batch's first would stand behind one that waits for 500 ms or a record. It took 300 ms a batch.
        "kafka.fetch.max.wait.ms": "1",
    }
    records = read_log(spark, settings, starting_offsets, settings.streaming.max_offsets_per_trigger, options)
    return records.select("partition", "offset", f.unix_millis("timestamp").alias("at_ms"), "value")
