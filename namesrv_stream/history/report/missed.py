"""Heartbeats that were missed: from ``heartbeat_minutes``, a day at a time, for a month of them has millions of rows.

What a broker sends how often is nowhere said. So its *usual gap* at a name server is taken from what was heard: the
median, over the minutes of a day, of each minute's longest gap. A longest gap of at least one and a half of it is a
*silence*, in which as many heartbeats were missed as would have fitted into it. A silence in which the broker's
session ended is none: it is told as an absence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import polars as pl

from namesrv_stream.history.report.buckets import Buckets
from namesrv_stream.history.sessions import Session
from namesrv_stream.instants import utc
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import LiveKey
from namesrv_stream.tables.delta.stored_table import StoredTable

MINUTE_MS: Final = 60_000
_PROCESS: Final = ["cluster", "broker_name", "broker_addr"]
_KEY: Final = [*_PROCESS, "server_id"]
_COLUMNS: Final = (*_KEY, "minute", "heartbeats", "gap_max_ms", "first_at", "last_at")
#: Of the usual gap: a silence is at least so long.
_SILENCE: Final = 1.5
_DOWNS_SCHEMA: Final = {**dict.fromkeys(_PROCESS, pl.String), "down_ms": pl.Int64}


@dataclass(frozen=True, slots=True)
class HeardOf:
    """A broker process at one name server.

    Attributes:
        heartbeats: How often it was heard.
        missed: How many heartbeats were missed.
        silences: In how many silences.
        longest_ms: The longest of them; None where there was none.
        usual_ms: The usual gap of the last day that has one; None where none has.
    """

    key: LeaseKey
    server_id: str
    heartbeats: int
    missed: int
    silences: int
    longest_ms: int | None
    usual_ms: float | None


@dataclass(frozen=True, slots=True)
class Heard:
    """What a time's heartbeats were.

    Attributes:
        of: By cluster, name, address and server.
        heartbeats: How many there were in each bucket.
        missed: As many, of those that were missed.
        minutes: Those in which anybody was heard: their begins, epoch milliseconds, ascending.
        begin_ms: From when on they are known.
        end_ms: To when.
    """

    of: Sequence[HeardOf]
    heartbeats: Sequence[int]
    missed: Sequence[int]
    minutes: Sequence[int]
    begin_ms: int
    end_ms: int

    @property
    def has_figures(self) -> bool:
        """Whether the heartbeats of any part of the time are known."""
        return self.end_ms > self.begin_ms


def heard(
    minutes: StoredTable,
    counted_to_ms: Mapping[int, int],
    sessions: Iterable[Session],
    pieces: Buckets,
    cluster: str | None = None,
) -> Heard:
    """All of the time that the buckets cut; blocks.

    Args:
        minutes: ``heartbeat_minutes``.
        counted_to_ms: partition → to when it has everything.
        sessions: All that overlap the time.
        pieces: The time.
        cluster: Only of this cluster.

    Raises:
        TableSchemaMismatch: The table cannot be read.
    """
    since_ms, until_ms = pieces.bounds_ms[0], pieces.bounds_ms[-1]
    downs = _downs(sessions)
    only = [] if cluster is None else [pl.col("cluster") == cluster]
    days = [
        day_figures(
            minutes.rows(
                pl.col("day") == day,
                pl.col("minute").is_between(utc(since_ms), utc(until_ms)),
                *only,
                columns=_COLUMNS,
            ),
            downs,
            pieces,
        )
        for number in range((utc(until_ms).date() - utc(since_ms).date()).days + 1)
        for day in (utc(since_ms).date() + timedelta(days=number),)
    ]
    first = minutes.extreme("min", "minute")
    begin_ms = until_ms if first is None else max(since_ms, round(first.timestamp() * 1000))
    end_ms = max(begin_ms, min(until_ms, min(counted_to_ms.values(), default=0)))
    by_bucket = pl.concat([day.by_bucket for day in days]).group_by("bucket").sum()
    figures = {number: (heartbeats, missed) for number, heartbeats, missed in by_bucket.iter_rows()}
    return Heard(
        of=_joined(pl.concat([day.of for day in days])),
        heartbeats=[figures.get(number, (0, 0))[0] for number in range(len(pieces))],
        missed=[figures.get(number, (0, 0))[1] for number in range(len(pieces))],
        minutes=[at_ms for day in days for at_ms in day.minutes],
        begin_ms=begin_ms,
        end_ms=end_ms,
    )


@dataclass(frozen=True, slots=True)
class DayFigures:
    """What is kept of one day.

    Attributes:
        of: _KEY, heartbeats, missed, silences, longest_ms, usual_ms.
        by_bucket: bucket, heartbeats, missed.
        minutes: Those in which anybody was heard.
    """

    of: pl.DataFrame
    by_bucket: pl.DataFrame
    minutes: Sequence[int]


def day_figures(rows: pl.DataFrame, downs: pl.DataFrame, pieces: Buckets) -> DayFigures:
    """Of one day's rows.

    Args:
        rows: Of ``heartbeat_minutes``.
        downs: cluster, broker_name, broker_addr, down_ms: when which session ended, by that.
        pieces: The time.
    """
    bounds = pl.Series(pieces.bounds_ms[1:-1], dtype=pl.Int64)
    by_minute = rows.group_by("minute").agg(pl.col("heartbeats").sum()).with_columns(pl.col("minute").dt.epoch("ms"))
    by_minute = by_minute.sort("minute").with_columns(
        bucket=bounds.search_sorted(by_minute.sort("minute")["minute"], "right")
    )
    of = rows.group_by(_KEY).agg(pl.col("heartbeats").sum(), usual_ms=pl.col("gap_max_ms").median())
    silences = _silences(rows, of, downs)
    in_buckets = silences.with_columns(bucket=bounds.search_sorted(silences["end_ms"], "right"))
    missed = silences.group_by(_KEY).agg(
        pl.col("missed").sum(), silences=pl.len(), longest_ms=pl.col("gap_max_ms").max()
    )
    return DayFigures(
        of.join(missed, on=_KEY, how="left").select(
            *_KEY, "heartbeats", "missed", "silences", "longest_ms", "usual_ms"
        ),
        pl.concat(
            [
                by_minute.select(pl.col("bucket").cast(pl.Int64), "heartbeats", missed=pl.lit(0, pl.Int64)),
                in_buckets.select(pl.col("bucket").cast(pl.Int64), pl.lit(0, pl.Int64).alias("heartbeats"), "missed"),
            ]
        ),
        by_minute["minute"].to_list(),
    )


def _silences(rows: pl.DataFrame, of: pl.DataFrame, downs: pl.DataFrame) -> pl.DataFrame:
    """Columns _KEY, gap_max_ms, end_ms, missed."""
    gap, usual = pl.col("gap_max_ms"), pl.col("usual_ms")
    usual_of = of.filter(usual > 0).select(*_KEY, "usual_ms")
    # No usual gap is shorter than the shortest: a cheap sieve before the rows are joined.
    shortest = usual_of["usual_ms"].min()
    long = rows.filter(gap >= _SILENCE * (shortest if isinstance(shortest, float) else 0)).join(usual_of, on=_KEY)
    long = long.filter(gap >= _SILENCE * usual)
    first, last = pl.col("first_at").dt.epoch("ms"), pl.col("last_at").dt.epoch("ms")
    # A gap longer than all that was heard in the minute ended with the first of it; a shorter one, within it.
    ended = long.with_columns(end_ms=pl.when(gap > last - first).then(first).otherwise(last)).sort("end_ms")
    known = ended.join_asof(
        downs, left_on="end_ms", right_on="down_ms", by=_PROCESS, strategy="backward", check_sortedness=False
    )
    heard_through = known.filter(pl.col("down_ms").is_null() | (pl.col("down_ms") < pl.col("end_ms") - gap))
    missed = ((gap / usual + 0.5).floor() - 1).cast(pl.Int64)
    return heard_through.select(*_KEY, "gap_max_ms", "end_ms", missed=missed)


def _downs(sessions: Iterable[Session]) -> pl.DataFrame:
    ended = [(s.cluster, s.broker_name, s.broker_addr, s.down_ms) for s in sessions if s.down_ms is not None]
    return pl.DataFrame(ended, schema=_DOWNS_SCHEMA, orient="row").sort("down_ms")


def _joined(of: pl.DataFrame) -> list[HeardOf]:
    """The days together, which are in order."""
    sums = of.group_by(_KEY, maintain_order=True).agg(
        pl.col("heartbeats", "missed", "silences").sum(),
        pl.col("longest_ms").max(),
        pl.col("usual_ms").drop_nulls().last(),
    )
    return [
        HeardOf(LeaseKey(name, LiveKey(cluster, addr)), *rest)
        for cluster, name, addr, *rest in sums.sort(_KEY).iter_rows()
    ]
