"""Heartbeats by minute: a row once the minute has ended on the log's clock, so that no row is ever changed."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from namesrv_stream.streaming.history.event_clocks import MINUTE_MS

_KEY: Final = ("partition", "cluster", "broker_name", "broker_addr", "server_id")
#: Of percentile_approx: exact for so many gaps in a minute.
_ACCURACY: Final = 10_000


def minute_rows(hearings: DataFrame, before: DataFrame) -> DataFrame:
    """Rows of ``heartbeat_minutes``.

    Args:
        hearings: As of ``heard.heard``, of whole minutes.
        before: Rows of ``heartbeat_minutes`` of the time before, for the gaps that begin there.
    """
    earlier = before.select(
        *_KEY, f.lit(-1).cast("long").alias("offset"), f.lit(0).alias("item"), f.unix_millis("last_at").alias("at_ms")
    )
    # Of the rows before, the newest of each key comes last: it alone is looked back at.
    one_after_the_other = Window.partitionBy(*_KEY).orderBy("offset", "item", "at_ms")
    gap = f.col("at_ms") - f.lag("at_ms").over(one_after_the_other)
    gaps = hearings.unionByName(earlier).coalesce(1).withColumn("gap_ms", gap).where("offset >= 0")
    minutes = gaps.groupBy(*_KEY, f.expr(f"at_ms div {MINUTE_MS} * {MINUTE_MS}").alias("minute_ms")).agg(
        f.count("*").alias("heartbeats"),
        f.percentile_approx("gap_ms", [0.5, 0.99], _ACCURACY).alias("quantiles"),
        f.max("gap_ms").alias("gap_max_ms"),
        f.timestamp_millis(f.min("at_ms")).alias("first_at"),
        f.timestamp_millis(f.max("at_ms")).alias("last_at"),
    )
    minute = f.timestamp_millis("minute_ms")
    return minutes.select(
        *_KEY,
        minute.alias("minute"),
        "heartbeats",
        f.col("quantiles")[0].alias("gap_p50_ms"),
        f.col("quantiles")[1].alias("gap_p99_ms"),
        "gap_max_ms",
        "first_at",
        "last_at",
        f.to_date(minute).alias("day"),
    )
