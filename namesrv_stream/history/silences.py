"""How long live brokers were silent: what a shorter timeout would have made of it, out of ``heartbeat_minutes``.

A quick look by the log's time. ``namesrv-stream what-if`` folds the log again and is exact: it also knows when it was
the name server that could not listen, and which of those that came back had been restarted.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import polars as pl

from namesrv_stream.history.opening import open_history_table
from namesrv_stream.route.changes import Cause
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.predicates import at_least, at_most, day_of, in_days, timestamp
from namesrv_stream.tables.delta.stored_table import reading
from namesrv_stream.tables.schema.history_columns import BROKER_SESSIONS, HEARTBEAT_MINUTES

_MINUTE_MS: Final = 60_000
#: More rows take more than half a second of both cores, and more memory than a server should give for this.
_MOST_ROWS: Final = 2_000_000
_MOST_NAMED: Final = 10
_KEY: Final = ("cluster", "broker_name", "broker_addr")


class Silent(NamedTuple):
    """The longest silence that a broker process lived through; it ended in the minute that begins at ``minute_ms``."""

    cluster: str
    broker_name: str
    broker_addr: str
    longest_ms: int
    minute_ms: int


class Timeout(NamedTuple):
    """What a timeout would have done.

    Attributes:
        brokers: Live broker processes that would have been expired at least once.
        expiries: How often in all, at most once a minute and broker.
    """

    timeout_ms: int
    brokers: int
    expiries: int


@dataclass(frozen=True, slots=True)
class Silences:
    """Of one time.

    Attributes:
        since_ms: The first heartbeat that the table has of the time, epoch milliseconds; where it has none, its begin.
            It is later than asked for where that were too many rows.
        until_ms: To when the table has all heartbeats; None where it has none of the time.
        brokers: Broker processes heard.
        timeouts: In the order in which they were asked for.
        longest: The most silent, the worst first.
        expired: Sessions that ended so between ``since_ms`` and ``until_ms``, as it was.
    """

    since_ms: int
    until_ms: int | None
    brokers: int
    timeouts: Sequence[Timeout]
    longest: Sequence[Silent]
    expired: int


def silences(settings: Settings, since_ms: int, until_ms: int, timeouts_ms: Sequence[int]) -> Silences:
    """Look at the silences of a time; blocks.

    A silence is between two hearings by any name server; one in which the broker's session ended is none. Shorter ones
    than a minute are known for the server that heard the broker best in that minute.

    Raises:
        NotInHistory: There are no such tables.
        TableSchemaMismatch: One is damaged, or not as this version of the code expects.
    """
    opened = open_history_table(settings, HEARTBEAT_MINUTES)
    minutes = opened.table
    ends = _ends(settings, since_ms)
    wanted = (in_days("day", day_of(since_ms), day_of(until_ms)), at_most("minute", timestamp(until_ms)))
    with reading(minutes.storage):
        rows = minutes.scan(*wanted, at_least("minute", timestamp(since_ms)))
        count = rows.select(pl.len()).collect().item()
        if count > _MOST_ROWS:
            since_ms = until_ms - (until_ms - since_ms) * _MOST_ROWS // count
            rows = minutes.scan(*wanted, at_least("minute", timestamp(since_ms)))
        found = _silent_minutes(rows, ends).collect()
    worst = found.group_by(_KEY).agg(
        pl.col("silence_ms").max(),
        pl.col("minute").sort_by("silence_ms").last(),
    )
    each, all_of_them = sorted(worst["silence_ms"].fill_null(0)), found["silence_ms"].drop_nulls().sort().to_list()
    timeouts = [
        Timeout(ms, len(each) - bisect_right(each, ms), len(all_of_them) - bisect_right(all_of_them, ms))
        for ms in timeouts_ms
    ]
    first, last = found["first"].min(), found["last"].max()
    if first is not None:
        since_ms = max(since_ms, round(first.timestamp() * 1000))  # type: ignore[union-attr] # Polars' own types
    reached_ms: int | None = None
    if last is not None:
        last_ms = round(last.timestamp() * 1000)  # type: ignore[union-attr] # Polars' own types
        reached_ms = max(last_ms, min(until_ms, min(opened.mark.at_ms.values(), default=0)))
    # Of the time that the heartbeats are of, and of no other.
    expired = ends.filter(
        pl.col("down_cause") == Cause.EXPIRED.value,
        pl.col("down_at").is_between(timestamp(since_ms), timestamp(until_ms if reached_ms is None else reached_ms)),
    )
    return Silences(
        since_ms,
        reached_ms,
        worst.height,
        timeouts,
        _named(worst),
        expired.height,
    )


def _ends(settings: Settings, since_ms: int) -> pl.DataFrame:
    table = open_history_table(settings, BROKER_SESSIONS).table
    rows = table.rows(at_least("down_at", timestamp(since_ms)), columns=(*_KEY, "down_at", "down_cause"))
    return rows.sort("down_at")


def _silent_minutes(rows: pl.LazyFrame, ends: pl.DataFrame) -> pl.LazyFrame:
    """A row a broker process and minute: the longest silence that ended in it; null where it was no silence."""
    before = pl.col("last").shift(1).over(_KEY, order_by="minute")
    across = (pl.col("first") - pl.col("before")).dt.total_milliseconds()
    has_ended = pl.col("down_at").is_not_null() & (pl.col("down_at") >= pl.col("before").fill_null(pl.col("first")))
    silence = pl.max_horizontal(across, pl.col("inner").clip(upper_bound=_MINUTE_MS))
    return (
        rows.group_by(*_KEY, "minute")
        .agg(first=pl.col("first_at").min(), last=pl.col("last_at").max(), inner=pl.col("gap_max_ms").min())
        .with_columns(before=before)
        .sort("last")
        .join_asof(
            ends.lazy().select(*_KEY, "down_at"),
            left_on="last",
            right_on="down_at",
            by=_KEY,
            strategy="backward",
            check_sortedness=False,
        )
        .select(*_KEY, "minute", "first", "last", silence_ms=pl.when(~has_ended).then(silence))
    )


def _named(worst: pl.DataFrame) -> list[Silent]:
    top = worst.drop_nulls("silence_ms").sort(("silence_ms", *_KEY), descending=(True, False, False, False))
    columns = (*_KEY, "silence_ms", pl.col("minute").dt.epoch("ms"))
    return [Silent(*row) for row in top.head(_MOST_NAMED).select(*columns).iter_rows()]
