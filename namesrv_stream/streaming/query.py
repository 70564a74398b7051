"""Source → fold → sink, as one streaming query."""

import uuid
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.session import scratch_dir
from namesrv_stream.streaming.source import read_events
from namesrv_stream.streaming.start_point import InitialState, StartPoint
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
    folded = fold_events(spark, settings, read_events(spark, settings, start.offsets), start)
    return (
        folded.writeStream.foreachBatch(sink)
        .queryName("route_table")
        .option("checkpointLocation", str((scratch_dir(settings) / f"checkpoint-{uuid.uuid4()}").absolute()))
        .outputMode("append")
        .start()
    )


def fold_events(spark: SparkSession, settings: Settings, events: DataFrame, start: StartPoint) -> DataFrame:
    """The fold's output for events, columns ``stateful.OUTPUT_SCHEMA``."""
    processor = RouteStatefulProcessor(settings.kafka.partitions, settings.streaming.compaction_interval_ms)
    initial = None
    if start.initial_state:
        initial = spark.createDataFrame(_as_table(start.initial_state)).groupBy("partition")
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


def _as_table(state: InitialState) -> pa.Table:
    """Columns of ``INITIAL_STATE_SCHEMA``; Spark takes a table in a fraction of the time that rows need."""
    columns = [list(values) for values in zip(*state, strict=True)]
    return pa.table(columns, schema=INITIAL_STATE_SCHEMA)
