"""Kafka's records as rows of ``broker_events``."""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from namesrv_stream.kafka import bootstrap_servers, spark_options
from namesrv_stream.settings import Settings

#: What every record may have at its top, whatever its kind; a field of another type is null.
_HEAD: Final = (
    "kind STRING, cluster STRING, broker_name STRING, broker_id BIGINT, broker_addr STRING, server_id STRING, "
    "server_epoch BIGINT, connection_id BIGINT, timeout_ms BIGINT, items ARRAY<STRING>"
)


def read_records(
    spark: SparkSession, settings: Settings, begin: Mapping[int, int], end: Mapping[int, int]
) -> DataFrame:
    """The events topic between offsets.

    Args:
        spark: The session.
        settings: Of which ``kafka`` and, where its keys begin with ``kafka.``, ``streaming.extra`` matter.
        begin: partition → first offset; Kafka holds it.
        end: The same partitions → the offset after the last; Kafka has all before it.

    Returns:
        Columns partition (int), offset (bigint), at (timestamp, LogAppendTime), value (binary).
    """
    topic = settings.kafka.broker_events_topic
    options = {
        "kafka.bootstrap.servers": bootstrap_servers(settings),
        "assign": json.dumps({topic: sorted(begin)}),
        "startingOffsets": json.dumps({topic: {str(p): o for p, o in sorted(begin.items())}}),
        "endingOffsets": json.dumps({topic: {str(p): o for p, o in sorted(end.items())}}),
        "failOnDataLoss": "true",
    }
    options |= spark_options(settings)
    records = spark.read.format("kafka").options(**options).load()
    return records.select("partition", "offset", f.col("timestamp").alias("at"), "value")


def event_rows(records: DataFrame) -> DataFrame:
    """Rows of ``broker_events`` for records, columns of ``read_records``."""
    is_text = f.is_valid_utf8("value")
    text = f.when(is_text, f.col("value").cast("string"))
    head = f.from_json(text, _HEAD)
    rows = records.select(
        "partition", "offset", "at", text.alias("text"), f.when(~is_text, f.col("value")).alias("raw"), head.alias("h")
    )
    return rows.select(
        "partition",
        "offset",
        "at",
        *(f"h.{name}" for name in ("kind", "cluster", "broker_name", "broker_id", "broker_addr")),
        *(f"h.{name}" for name in ("server_id", "server_epoch", "connection_id", "timeout_ms")),
        f.when(f.col("h.items").isNotNull(), f.size("h.items")).alias("items"),
        f.col("text").alias("value"),
        "raw",
        f.to_date("at").alias("event_day"),
    )
