"""Kafka's records as rows of ``broker_events``."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

#: What every record may have at its top, whatever its kind; a field of another type is null.
_HEAD: Final = (
    "kind STRING, cluster STRING, broker_name STRING, broker_id BIGINT, broker_addr STRING, server_id STRING, "
    "server_epoch BIGINT, connection_id BIGINT, timeout_ms BIGINT, items ARRAY<STRING>"
)


def event_rows(records: DataFrame) -> DataFrame:
    """Rows of ``broker_events``.

    Args:
        records: Columns partition (int), offset (bigint), at (timestamp, LogAppendTime), value (binary).
    """
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
