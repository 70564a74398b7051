"""Rows of ``broker_events``, ``heartbeat_minutes`` and ``route_archive``.

A row of ``heartbeat_minutes`` is written after its minute has ended in the time of the log, so it never changes.

``route_archive`` has the rows of ``route_changes``, and replacements for changes that were lost. No loss is silent. If
rows of ``route_changes`` were removed before the history process had read them, or a rebuild has written new ones,
``route_archive`` gets the rows that exist and continues from ``route_state``. For every key whose content differs
between the two tables, ``route_archive`` gets one more row:

- the row of the state, if its offset is in the range that was not read;
- a deletion with the offset of the state, if the state does not have the key;
- otherwise the row of the state with the offset of the state.

The last two kinds of rows have the cause ``state_rebuilt`` and a negative ``seq``.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from namesrv_stream.route.changes import KEY_COLUMNS, Cause, ChangeKind
from namesrv_stream.route.event_json import HEARTBEATS_KIND, KIND_OF
from namesrv_stream.route.events import DIRECT, BrokerRegistered, Proof
from namesrv_stream.tables.change_rows import ROW_SCHEMA

#: The fields that a record of any kind may have at the top level. A field of another type becomes null.
_HEAD: Final = (
    "kind STRING, cluster STRING, broker_name STRING, broker_id BIGINT, broker_addr STRING, server_id STRING, "
    "server_epoch BIGINT, connection_id BIGINT, timeout_ms BIGINT, items ARRAY<STRING>"
)


def event_rows(records: DataFrame) -> DataFrame:
    """Return rows of ``broker_events``.

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


_REGISTERED: Final = KIND_OF[BrokerRegistered]
_PROCESS: Final = ("cluster", "broker_name", "broker_addr")
_KEY: Final = ("partition", *_PROCESS, "server_id")
_ITEMS: Final = (
    "items ARRAY<STRUCT<cluster: STRING, broker_name: STRING, broker_addr: STRING, proof: STRING, "
    "registration_hash: STRING>>"
)
_PROOFS: Final = tuple(proof.value for proof in Proof)


def running_minutes(events: DataFrame) -> DataFrame:
    """Return, for each partition, the minute of its last event. This minute has not ended yet.

    Args:
        events: Columns of ``broker_events``: partition, offset, at.

    Returns:
        Columns ``partition``, ``offset`` (of the first event in that minute), ``at_ms`` (start of that minute).
    """
    last = f.date_trunc("minute", f.max("at").over(Window.partitionBy("partition")))
    running = events.select("partition", "offset", "at", last.alias("running")).where(f.col("at") >= f.col("running"))
    return running.groupBy("partition").agg(
        f.min("offset").alias("offset"), f.unix_millis(f.max("running")).alias("at_ms")
    )


def heartbeats(events: DataFrame) -> DataFrame:
    """Return one row for every heartbeat and registration that the fold accepts, with its server and time.

    Args:
        events: Columns of ``broker_events``: partition, offset, at, kind, cluster, broker_name, broker_addr, server_id,
            value.

    Returns:
        Columns partition, offset, item (index in the record), at_ms, cluster, broker_name, broker_addr, server_id.
    """
    # The time of the log never decreases, but a new leader in Kafka may have a clock that is behind.
    clock = f.max("at").over(Window.partitionBy("partition").orderBy("offset"))
    is_heartbeat = f.col("kind").isin(_REGISTERED, HEARTBEATS_KIND)
    events = events.withColumn("at_ms", f.unix_millis(clock)).where(is_heartbeat)
    events = events.withColumn("server_id", f.coalesce("server_id", f.lit(DIRECT)))
    place = ("partition", "offset", "item", "at_ms")
    registered = events.where(f.col("kind") == _REGISTERED).withColumn("item", f.lit(0))
    items = events.where(f.col("kind") == HEARTBEATS_KIND).select(
        "partition", "offset", "at_ms", "server_id", f.posexplode(f.from_json("value", _ITEMS)["items"])
    )
    valid = items.select("partition", "offset", f.col("pos").alias("item"), "at_ms", "server_id", "col.*").where(
        _is_valid()
    )
    both = registered.select(*place, *_PROCESS, "server_id").union(valid.select(*place, *_PROCESS, "server_id"))
    return both.dropna(subset=list(_PROCESS))


def _is_valid() -> Column:
    has_hash = f.coalesce(f.col("registration_hash"), f.lit("")) != ""
    return f.col("proof").isin(*_PROOFS) & (has_hash | (f.col("proof") != Proof.REGISTRATION.value))


def minute_rows(received: DataFrame, before: DataFrame) -> DataFrame:
    """Return rows of ``heartbeat_minutes``.

    Args:
        received: Columns of ``heartbeats``, for complete minutes.
        before: Earlier rows of ``heartbeat_minutes``, whose last heartbeats begin the first gaps of ``received``.
    """
    earlier = before.groupBy(*_KEY).agg(
        f.lit(-1).cast("bigint").alias("offset"), f.lit(0).alias("item"), f.unix_millis(f.max("last_at")).alias("at_ms")
    )
    own = Window.partitionBy(*_KEY).orderBy("offset", "item")
    gap = f.col("at_ms") - f.lag("at_ms").over(own)
    both = received.select(*_KEY, "offset", "item", "at_ms").unionByName(earlier)
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
    """Return an expression for the lowest gap such that at least this share of the gaps is not longer."""
    return f.get("gaps", f.ceil(f.size("gaps") * share).cast("int") - 1)


#: Kinds of rows in the archive. Registrations are left out: they are the largest, and other kinds have their content.
HISTORY_KINDS: Final = tuple(sorted(kind.value for kind in KEY_COLUMNS.keys() - {ChangeKind.REGISTRATION}))
_DETAIL: Final = "what happened before is not known: changes were removed or rebuilt before the history had them"
_PLACE: Final = ("partition", "offset", "seq", "at_ms", "gone", "cause", "detail")
_COLUMNS: Final = tuple(ROW_SCHEMA.names)
_CONTENT: Final = tuple(name for name in _COLUMNS if name not in _PLACE)
_ROW_KEY: Final = "row_key"


def archive_rows(changes: DataFrame) -> DataFrame:
    """Convert rows of ``route_changes`` to rows of ``route_archive``, except kinds that this table does not have."""
    of_history = changes.where(f.col("kind").isin(*HISTORY_KINDS))
    return of_history.select(*_COLUMNS, f.to_date(f.timestamp_millis("at_ms")).alias("day"))


def rows_to_catch_up(archived: DataFrame, changes: DataFrame, live: DataFrame, reach: DataFrame) -> DataFrame:
    """Return the rows that bring ``route_archive`` to the content of ``route_state``.

    Args:
        archived: Rows of ``route_archive``.
        changes: The rows that ``route_changes`` has after those in ``archived``, up to the state, as ``archive_rows``.
        live: Live rows of ``route_state``.
        reach: One row per partition to catch up: ``partition``, ``known`` (first offset that was not read),
            ``state_offset`` and ``state_at_ms`` (offset and time of ``route_state``).

    Returns:
        Rows of ``route_archive``: ``changes``, and at most one more per key.
    """
    newest = Window.partitionBy(_ROW_KEY).orderBy(*(f.desc(name) for name in ("at_ms", "partition", "offset", "seq")))
    numbered = _keyed(archived.unionByName(changes)).withColumn("age", f.row_number().over(newest))
    had = numbered.where((f.col("age") == 1) & ~f.col("gone")).select(
        _ROW_KEY, f.struct(*_COLUMNS).alias("had"), _content().alias("had_content")
    )
    has = _keyed(live).select(_ROW_KEY, f.struct(*_COLUMNS).alias("has"), _content().alias("has_content"))
    # A repartition moves keys to other partitions.
    both = had.join(has, _ROW_KEY, "full").withColumn("partition", f.coalesce("has.partition", "had.partition"))
    changed = both.where(~f.col("had_content").eqNullSafe(f.col("has_content"))).join(f.broadcast(reach), "partition")
    is_gone, is_in_log = f.col("has").isNull(), f.col("has.offset").between(f.col("known"), f.col("state_offset") - 1)
    number = Window.partitionBy("partition", f.coalesce(is_in_log, f.lit(False))).orderBy(_ROW_KEY)
    at_state = {
        "offset": f.col("state_offset"),
        "seq": -f.row_number().over(number),
        "at_ms": f.col("state_at_ms"),
        "gone": is_gone,
        "cause": f.lit(Cause.STATE_REBUILT.value),
        "detail": f.lit(_DETAIL),
    }
    rows = changed.select(*(_chosen(name, at_state.get(name), is_gone, is_in_log).alias(name) for name in _COLUMNS))
    return changes.unionByName(archive_rows(rows))


def _chosen(name: str, at_state: Column | None, is_gone: Column, is_in_log: Column) -> Column:
    """Return an expression for one column of the additional rows of ``route_archive``.

    Args:
        name: Name of the column.
        at_state: Value for rows that get the offset of the state; None if the column does not depend on that.
        is_gone: Whether the key was deleted. Such rows have values only in key columns.
        is_in_log: Whether the row of the state keeps its own offset.
    """
    had, has = f.col(f"had.{name}"), f.col(f"has.{name}")
    if at_state is not None:
        return f.when(is_in_log, has).otherwise(at_state)
    if name in ("partition", "kind") or any(name in key for key in KEY_COLUMNS.values()):
        return f.coalesce(has, had)
    return f.when(~is_gone, has)


def _keyed(rows: DataFrame) -> DataFrame:
    """Return the rows with ``row_key``, which is equal for rows about the same key."""
    keys = [
        f.when(f.col("kind") == kind.value, f.to_json(f.struct("kind", *columns)))
        for kind, columns in KEY_COLUMNS.items()
        if kind.value in HISTORY_KINDS
    ]
    return rows.where(f.col("kind").isin(*HISTORY_KINDS)).withColumn(_ROW_KEY, f.coalesce(*keys))


def _content() -> Column:
    """Return an expression for the content of a row, without offset, time and cause; pairs of maps are sorted."""
    pairs = f.array_sort(f.map_entries("broker_addrs")).alias("broker_addrs")
    return f.struct(*(pairs if name == "broker_addrs" else f.col(name) for name in _CONTENT))
