"""When which broker process was heard by whom, from rows of ``broker_events``."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from namesrv_stream.route.event_json import HEARTBEATS_KIND, KIND_OF, SCHEMA_VERSION
from namesrv_stream.route.events import DIRECT, BrokerRegistered, Proof
from namesrv_stream.streaming.history.event_clocks import EventClocks

_REGISTERED: Final = KIND_OF[BrokerRegistered]
_BODY: Final = (
    "schema_version INT, items ARRAY<STRUCT<"
    "cluster: STRING, broker_name: STRING, broker_addr: STRING, proof: STRING, registration_hash: STRING>>"
)


def within(begin: Mapping[int, int], end: Mapping[int, int]) -> Column:
    """The condition on ``partition`` and ``offset`` of rows in ranges: partition → first, → after the last."""
    wanted = f.lit(False)
    for partition, first in sorted(begin.items()):
        offset = f.col("offset")
        wanted = wanted | ((f.col("partition") == partition) & (offset >= first) & (offset < end[partition]))
    return wanted


def heard(events: DataFrame, clocks: EventClocks) -> DataFrame:
    """Each hearing of a broker process: heartbeats that the fold would take, and registrations.

    Args:
        events: Rows of ``broker_events``: all records of a range of each partition.
        clocks: Of the same range, or of one that begins there and ends later.

    Returns:
        partition, offset, item (its place in the record), at_ms, cluster, broker_name, broker_addr, server_id.
    """
    is_beats = f.col("kind") == HEARTBEATS_KIND
    own = f.array(f.struct("cluster", "broker_name", "broker_addr"))
    body = f.when(is_beats, f.from_json("value", _BODY))
    # Parsed before the clock, which all records may move: so that a window need not hold their values.
    parsed = events.select(
        "partition",
        "offset",
        "at",
        f.coalesce("server_id", f.lit(DIRECT)).alias("server_id"),
        f.when(f.col("kind") == _REGISTERED, own)
        .otherwise(f.when(body["schema_version"] == SCHEMA_VERSION, _valid(body["items"])))
        .alias("brokers"),
    )
    clocked = parsed.withColumn("at_ms", _clock(clocks)).where(f.col("brokers").isNotNull())
    exploded = clocked.select("partition", "offset", "at_ms", "server_id", f.posexplode("brokers").alias("item", "b"))
    return exploded.select(
        "partition", "offset", "item", "at_ms", "b.cluster", "b.broker_name", "b.broker_addr", "server_id"
    ).where("cluster IS NOT NULL AND broker_name IS NOT NULL AND broker_addr IS NOT NULL")


def _clock(clocks: EventClocks) -> Column:
    at_ms = f.unix_millis("at")
    if clocks.is_steady:
        return at_ms
    so_far = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    clock = f.max(at_ms).over(so_far)
    if clocks.since_ms:
        known = f.create_map(*(f.lit(x) for pair in sorted(clocks.since_ms.items()) for x in pair))
        clock = f.greatest(clock, f.try_element_at(known, f.col("partition")))
    return clock


def _valid(items: Column) -> Column:
    """The items that the fold takes, as ``route.event_json`` decodes them; others are dead letters."""
    proofs = [str(proof) for proof in Proof]
    kept = f.filter(
        items,
        lambda item: (
            item["proof"].isin(proofs)
            & ((item["proof"] != Proof.REGISTRATION) | (f.length(item["registration_hash"]) > 0))
        ),
    )
    return f.transform(
        kept,
        lambda item: f.struct(
            item["cluster"].alias("cluster"),
            item["broker_name"].alias("broker_name"),
            item["broker_addr"].alias("broker_addr"),
        ),
    )
