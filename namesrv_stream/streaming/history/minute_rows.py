"""Heartbeats by minute: a row once the minute has ended on the log's clock, so that no row is ever changed."""

from typing import Final

import polars as pl

from namesrv_stream.streaming.history.event_clocks import MINUTE_MS

_KEY: Final = ("partition", "cluster", "broker_name", "broker_addr", "server_id")


def minute_rows(hearings: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """Rows of ``heartbeat_minutes``.

    Args:
        hearings: As of ``heard.heard``, of whole minutes.
        before: Rows of ``heartbeat_minutes`` of the time before, for the gaps that begin there.
    """
    earlier = before.select(
        *_KEY,
        pl.lit(-1, pl.Int64).alias("offset"),
        pl.lit(0, pl.Int64).alias("item"),
        pl.col("last_at").dt.epoch("ms").alias("at_ms"),
    )
    both = pl.concat([hearings.select(earlier.columns), earlier])
    # Of the rows before, the newest of each key comes last: it alone is looked back at.
    gap = pl.col("at_ms") - pl.col("at_ms").shift(1).over(*_KEY)
    gaps = both.sort("offset", "item", "at_ms").with_columns(gap_ms=gap).filter(pl.col("offset") >= 0)
    minute_ms = (pl.col("at_ms") // MINUTE_MS * MINUTE_MS).alias("minute")
    minutes = gaps.group_by(*_KEY, minute_ms).agg(
        pl.len().cast(pl.Int64).alias("heartbeats"),
        _quantile(0.5).alias("gap_p50_ms"),
        _quantile(0.99).alias("gap_p99_ms"),
        pl.col("gap_ms").max().alias("gap_max_ms"),
        pl.col("at_ms").min().alias("first_at"),
        pl.col("at_ms").max().alias("last_at"),
    )
    instants = [_instant(name) for name in ("minute", "first_at", "last_at")]
    return minutes.with_columns(*instants).with_columns(pl.col("minute").dt.date().alias("day"))


def _quantile(share: float) -> pl.Expr:
    """The lowest gap that at least so many are not longer than."""
    return pl.col("gap_ms").quantile(share, interpolation="equiprobable").cast(pl.Int64)


def _instant(name: str) -> pl.Expr:
    return pl.from_epoch(name, time_unit="ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias(name)
