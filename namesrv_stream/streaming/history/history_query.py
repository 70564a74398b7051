"""The streaming query of the history process over Kafka's records, and its SparkSession."""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.spark_session import build_session, read_log

#: Writes a batch: its records, and partition → the offset after the last one.
WriteBatch = Callable[[DataFrame, Mapping[int, int]], object]


def start_history_query(
    spark: SparkSession, settings: Settings, begin: Mapping[int, int], write: WriteBatch, *, once: bool
) -> StreamingQuery:
    """Start to read the events topic, and return at once. ``write`` is called on a thread of Python.

    The checkpoint is temporary, because the tables determine where to begin.

    Args:
        spark: The session.
        settings: The settings.
        begin: Partition → first offset, which Kafka must have.
        write: Writes a batch.
        once: Whether to end with the last record that Kafka has now. Otherwise there is a batch every
            ``history.interval_ms``.
    """
    checkpoint = (history_scratch_dir(settings) / f"checkpoint-{uuid.uuid4()}").absolute()
    topic = settings.kafka.broker_events_topic

    def on_batch(records: DataFrame, batch_id: int) -> None:
        write(records, {**begin, **batch_end(checkpoint, batch_id, topic)})

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
    """Return the events topic from given offsets on.

    The columns are partition (int), offset (bigint), at (timestamp), value (binary).
    """
    records = read_log(spark, settings, begin, settings.history.max_records, {})
    return records.select("partition", "offset", f.col("timestamp").alias("at"), "value")


def batch_end(checkpoint: Path, batch_id: int, topic: str) -> dict[int, int]:
    """Return partition → the offset after the last record of a batch, which Spark records before it runs the batch."""
    *_, offsets = (checkpoint / "offsets" / str(batch_id)).read_bytes().splitlines()
    return {int(partition): int(end) for partition, end in orjson.loads(offsets)[topic].items()}


_HISTORY: Final = {
    "spark.app.name": "namesrv-stream history",
    # A registration with many topics takes hundreds of kilobytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
}


def build_history_session(settings: Settings) -> SparkSession:
    """Start the JVM, or join the one that ``spark-submit`` started; blocks for some seconds.

    Raises:
        PrerequisiteMissing: The jars of Spark's Kafka source are missing.
    """
    own = {"spark.master": settings.history.master, "spark.driver.memory": settings.history.driver_memory}
    return build_session(settings, _HISTORY | own, history_scratch_dir(settings))


def history_scratch_dir(settings: Settings) -> Path:
    """Return the folder of temporary files of this process's Spark. The job has another one, which it empties."""
    return settings.data.dir / "scratch-history"
