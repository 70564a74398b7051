"""The streaming query of the history: Kafka's records, batch by batch, and what follows from them."""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.history.session import history_scratch_dir
from namesrv_stream.streaming.source import read_log

#: Takes records and, of each partition, the offset after the last.
Take = Callable[[DataFrame, Mapping[int, int]], object]


def start_history_query(
    spark: SparkSession, settings: Settings, begin: Mapping[int, int], take: Take, *, once: bool
) -> StreamingQuery:
    """Read the events topic; returns at once, ``take`` is called on a thread of Python's.

    Its checkpoint is scratch: where to begin is said by the tables.

    Args:
        spark: The session.
        settings: Ours.
        begin: partition → first offset; Kafka holds it.
        take: Writes a batch.
        once: Whether to end with the last record that Kafka has now; else a batch each ``history.interval_ms``.
    """
    checkpoint = (history_scratch_dir(settings) / f"checkpoint-{uuid.uuid4()}").absolute()
    topic = settings.kafka.broker_events_topic

    def on_batch(records: DataFrame, batch_id: int) -> None:
        take(records, {**begin, **batch_end(checkpoint, batch_id, topic)})

    writer = (
        read_records(spark, settings, begin)
        .writeStream.foreachBatch(on_batch)
        .queryName("history")
        .option("checkpointLocation", str(checkpoint))
    )
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.history.interval_ms} milliseconds").start()


def read_records(spark: SparkSession, settings: Settings, begin: Mapping[int, int]) -> DataFrame:
    """The events topic from some offsets on: partition (int), offset (bigint), at (timestamp), value (binary)."""
    records = read_log(spark, settings, begin, settings.history.max_records, {})
    return records.select("partition", "offset", f.col("timestamp").alias("at"), "value")


def batch_end(checkpoint: Path, batch_id: int, topic: str) -> dict[int, int]:
    """partition → the offset after the last of a batch, as Spark has planned it before it began."""
    *_, offsets = (checkpoint / "offsets" / str(batch_id)).read_bytes().splitlines()
    return {int(partition): int(end) for partition, end in orjson.loads(offsets)[topic].items()}
