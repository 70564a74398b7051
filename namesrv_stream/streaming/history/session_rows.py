"""Broker processes from their coming to their going, with how often they were heard.

Rows of ``broker_live`` and hearings of a broker process are put in the order of the log, where each hearing falls
into the session that was open at its very record, whatever the clock says.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from namesrv_stream.snapshot.history_mark import HistoryMark
from namesrv_stream.streaming.history.history_table import HistoryTable
from namesrv_stream.tables import BROKER_SESSIONS, HISTORY_SCHEMAS

_KEY: Final = ("partition", "cluster", "broker_name", "broker_addr")
#: What the session's first row says of it, and never changes.
_BEGIN: Final = ("offset", "seq", "broker_id", "up_at", "up_cause", "up_day")
#: What changes while it lasts, and with its end.
_UPDATED: Final = (
    *("timeout_ms", "heartbeats", "longest_gap_ms", "last_heard_at"),
    *("down_at", "down_cause", "down_detail", "down_offset"),
)
_COLUMNS: Final = tuple(HISTORY_SCHEMAS[BROKER_SESSIONS].names)

# Steps of the timeline. Rows of a record come before its hearings: who is heard by a registration is live by it.
_OPEN, _LIVE, _GONE, _HEARD = "open", "live", "gone", "heard"


def session_rows(lasting: DataFrame, lives: DataFrame, hearings: DataFrame) -> DataFrame:
    """Sessions that began, ended, or had a hearing, as they then are.

    Args:
        lasting: Rows of ``broker_sessions`` that have no end.
        lives: Rows of ``route_changes`` of kind broker_live, later than those.
        hearings: As of ``heard.heard``, of the same range of the log.

    Returns:
        Columns of ``broker_sessions``, and ``is_old``: whether the table has the row. One of those may now have lasted
        no millisecond, none of the new ones has.
    """
    steps = _open_steps(lasting).unionByName(_live_steps(lives), allowMissingColumns=True)
    # In one task: on the rows of a minute, the stages of a shuffle would take longer than their work.
    steps = steps.unionByName(_heard_steps(hearings), allowMissingColumns=True).coalesce(1)
    in_order = Window.partitionBy(*_KEY).orderBy("step_offset", "phase", "step_seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    state = f.when(f.col("step") != _HEARD, f.col("step"))
    steps = steps.withColumn("was", f.last(state, ignorenulls=True).over(before))
    was_up = f.coalesce(f.col("was").isin(_OPEN, _LIVE), f.lit(False))
    begins = (f.col("step") == _OPEN) | ((f.col("step") == _LIVE) & ~was_up)
    steps = steps.withColumn("begins", begins).where(f.col("begins") | was_up)
    steps = steps.withColumn("number", f.sum(f.col("begins").cast("int")).over(so_far))
    within = Window.partitionBy(*_KEY, "number").orderBy("step_offset", "phase", "step_seq")
    earlier = within.rowsBetween(Window.unboundedPreceding, -1)
    silence = f.col("heard_ms") - f.last("heard_ms", ignorenulls=True).over(earlier)
    steps = steps.withColumn("gap_ms", f.when(f.col("step") == _HEARD, silence))
    sessions = steps.groupBy(*_KEY, "number").agg(
        f.max(f.when(f.col("begins"), f.struct("step", *_BEGIN))).alias("begin"),
        f.max(f.when(f.col("step") == _GONE, f.struct("step_offset", "at_ms", "cause", "detail"))).alias("end"),
        _newest("timeout_ms", f.col("step").isin(_OPEN, _LIVE)).alias("timeout_ms"),
        f.sum("heard").alias("heartbeats"),
        f.max(f.greatest("gap_ms", "longest_gap_ms")).alias("longest_gap_ms"),
        f.timestamp_millis(f.max("heard_ms")).alias("last_heard_at"),
        f.max(f.col("step") != _OPEN).alias("is_changed"),
    )
    rows = sessions.where("is_changed").select(
        *_KEY,
        *(f.col("begin")[name].alias(name) for name in _BEGIN),
        (f.col("begin")["step"] == _OPEN).alias("is_old"),
        f.timestamp_millis(f.col("end")["at_ms"]).alias("down_at"),
        f.col("end")["cause"].alias("down_cause"),
        f.col("end")["detail"].alias("down_detail"),
        f.col("end")["step_offset"].alias("down_offset"),
        *("timeout_ms", "heartbeats", "longest_gap_ms", "last_heard_at"),
    )
    return rows.select(*_COLUMNS, "is_old").where("is_old OR down_at IS NULL OR up_at < down_at")


def _open_steps(lasting: DataFrame) -> DataFrame:
    return lasting.select(
        *_KEY,
        *_BEGIN,
        f.lit(_OPEN).alias("step"),
        f.lit(-1).cast("long").alias("step_offset"),
        f.lit(0).alias("phase"),
        f.lit(0).alias("step_seq"),
        "timeout_ms",
        f.col("heartbeats").alias("heard"),
        "longest_gap_ms",
        f.unix_millis("last_heard_at").alias("heard_ms"),
    )


def _live_steps(lives: DataFrame) -> DataFrame:
    at = f.timestamp_millis("at_ms")
    return lives.select(
        *_KEY,
        "offset",
        "seq",
        "broker_id",
        at.alias("up_at"),
        f.col("cause").alias("up_cause"),
        f.to_date(at).alias("up_day"),
        f.when(f.col("gone"), f.lit(_GONE)).otherwise(f.lit(_LIVE)).alias("step"),
        f.col("offset").alias("step_offset"),
        f.lit(0).alias("phase"),
        f.col("seq").alias("step_seq"),
        "timeout_ms",
        f.lit(0).cast("long").alias("heard"),
        "at_ms",
        "cause",
        "detail",
    )


def _heard_steps(hearings: DataFrame) -> DataFrame:
    return hearings.select(
        *_KEY,
        f.lit(_HEARD).alias("step"),
        f.col("offset").alias("step_offset"),
        f.lit(1).alias("phase"),
        f.col("item").alias("step_seq"),
        f.lit(1).cast("long").alias("heard"),
        f.col("at_ms").alias("heard_ms"),
    )


def _newest(name: str, where: Column) -> Column:
    """The last value of a column, null or not, among the steps where the condition holds."""
    return f.max_by(name, f.when(where, f.struct("step_offset", "phase", "step_seq")))


def write_sessions(table: HistoryTable, lives: DataFrame, hearings: DataFrame, mark: HistoryMark) -> int:
    """Bring ``broker_sessions`` up to date; blocks.

    Args:
        table: It.
        lives: As of ``session_rows``.
        hearings: As of ``session_rows``.
        mark: How far the table then reaches.

    Returns:
        How many sessions began or were changed.
    """
    source = session_rows(table.rows().where("down_at IS NULL"), lives, hearings)
    return table.upsert(source, _UPDATED, mark)
