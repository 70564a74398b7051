"""Heartbeats by minute: a row once the minute has ended on the log's clock, so that no row is ever changed."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from namesrv_stream.route.event_json import HEARTBEATS_KIND, KIND_OF
from namesrv_stream.route.events import DIRECT, BrokerRegistered, Proof

_REGISTERED: Final = KIND_OF[BrokerRegistered]
_PROCESS: Final = ("cluster", "broker_name", "broker_addr")
_KEY: Final = ("partition", *_PROCESS, "server_id")
_ITEMS: Final = (
    "items ARRAY<STRUCT<cluster: STRING, broker_name: STRING, broker_addr: STRING, proof: STRING, "
    "registration_hash: STRING>>"
)
_PROOFS: Final = tuple(proof.value for proof in Proof)


def running_minutes(events: DataFrame) -> DataFrame:
    """Where the minute begins that has not ended by the last event of each partition.

    Args:
        events: Of ``broker_events``: partition, offset, at.

    Returns:
        partition, ``offset`` (of the first event of that minute), ``at_ms`` (begin of the minute).
    """
    last = f.date_trunc("minute", f.max("at").over(Window.partitionBy("partition")))
    running = events.select("partition", "offset", "at", last.alias("running")).where(f.col("at") >= f.col("running"))
    return running.groupBy("partition").agg(
        f.min("offset").alias("offset"), f.unix_millis(f.max("running")).alias("at_ms")
    )


def hearings(events: DataFrame) -> DataFrame:
    """When which broker process was heard by whom: heartbeats that the fold would take, and registrations.

    Args:
        events: Of ``broker_events``: partition, offset, at, kind, cluster, broker_name, broker_addr, server_id, value.

    Returns:
        partition, offset, item (its place in the record), at_ms, cluster, broker_name, broker_addr, server_id.
    """
    # The log's clock never goes back; a broker of Kafka that takes over may have one that is behind.
    clock = f.max("at").over(Window.partitionBy("partition").orderBy("offset"))
    heard = f.col("kind").isin(_REGISTERED, HEARTBEATS_KIND)
    events = events.withColumn("at_ms", f.unix_millis(clock)).where(heard)
    events = events.withColumn("server_id", f.coalesce("server_id", f.lit(DIRECT)))
    place = ("partition", "offset", "item", "at_ms")
    registered = events.where(f.col("kind") == _REGISTERED).withColumn("item", f.lit(0))
    items = events.where(f.col("kind") == HEARTBEATS_KIND).select(
        "partition", "offset", "at_ms", "server_id", f.posexplode(f.from_json("value", _ITEMS)["items"])
    )
    told = items.select("partition", "offset", f.col("pos").alias("item"), "at_ms", "server_id", "col.*").where(
        _is_taken()
    )
    both = registered.select(*place, *_PROCESS, "server_id").union(told.select(*place, *_PROCESS, "server_id"))
    return both.dropna(subset=list(_PROCESS))


def _is_taken() -> Column:
    has_hash = f.coalesce(f.col("registration_hash"), f.lit("")) != ""
    return f.col("proof").isin(*_PROOFS) & (has_hash | (f.col("proof") != Proof.REGISTRATION.value))


def minute_rows(heard: DataFrame, before: DataFrame) -> DataFrame:
    """Rows of ``heartbeat_minutes``.

    Args:
        heard: As of ``hearings``, of whole minutes.
        before: Rows of ``heartbeat_minutes`` of the time before, for the gaps that begin there.
    """
    earlier = before.groupBy(*_KEY).agg(
        f.lit(-1).cast("bigint").alias("offset"), f.lit(0).alias("item"), f.unix_millis(f.max("last_at")).alias("at_ms")
    )
    own = Window.partitionBy(*_KEY).orderBy("offset", "item")
    gap = f.col("at_ms") - f.lag("at_ms").over(own)
    both = heard.select(*_KEY, "offset", "item", "at_ms").unionByName(earlier)
    gaps = both.withColumn("gap_ms", gap).where(f.col("offset") >= 0)
    minute = f.date_trunc("minute", f.timestamp_millis("at_ms")).alias("minute")
    minutes = gaps.groupBy(*_KEY, minute).agg(
        f.count("*").alias("heartbeats"),
        f.sort_array(f.collect_list("gap_ms")).alias("gaps"),
        f.timestamp_millis(f.min("at_ms")).alias("first_at"),
        f.timestamp_millis(f.max("at_ms")).alias("last_at"),
    )
    return minutes.select(
        *_PROCESS,
        "server_id",
        "minute",
        "heartbeats",
        _quantile(0.5).alias("gap_p50_ms"),
        _quantile(0.99).alias("gap_p99_ms"),
        _quantile(1.0).alias("gap_max_ms"),
        "first_at",
        "last_at",
        "partition",
        f.to_date("minute").alias("day"),
    )


def _quantile(share: float) -> Column:
    """The lowest gap that at least so many are not longer than."""
    return f.get("gaps", f.ceil(f.size("gaps") * share).cast("int") - 1)
