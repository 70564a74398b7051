"""How long the brokers of a name were not heard, minute by minute: from ``heartbeat_minutes``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from namesrv_stream.history.opening import open_history_table
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.predicates import at_least, at_most, day_of, equals, in_days, timestamp
from namesrv_stream.tables.schema.history_columns import HEARTBEAT_MINUTES

_MINUTE_MS: Final = 60_000
#: A line with more points would not show more.
_MOST_POINTS: Final = 1_500
_COLUMNS: Final = ("broker_addr", "server_id", "minute", "gap_max_ms")


@dataclass(frozen=True, slots=True)
class GapSeries:
    """The longest gap of each minute, or of several, between heartbeats of one broker process at one server.

    Attributes:
        at_ms: Begin of the minutes, epoch milliseconds.
        longest_ms: As many, milliseconds.
        step_ms: How long each is: a minute, or several.
    """

    broker_addr: str
    server_id: str
    at_ms: Sequence[int]
    longest_ms: Sequence[int]
    step_ms: int


def gap_series(settings: Settings, broker_name: str, since_ms: int, until_ms: int) -> list[GapSeries]:
    """A series for each process and server, by both; blocks.

    Raises:
        NotInHistory: There is no table of it.
        TableSchemaMismatch: It is damaged, or not as this version of the code expects.
    """
    rows = open_history_table(settings, HEARTBEAT_MINUTES).table.rows(
        in_days("day", day_of(since_ms), day_of(until_ms)),
        equals("broker_name", broker_name),
        at_least("minute", timestamp(since_ms // _MINUTE_MS * _MINUTE_MS)),
        at_most("minute", timestamp(until_ms)),
        columns=_COLUMNS,
    )
    step_ms = _MINUTE_MS * max(1, (until_ms - since_ms) // _MINUTE_MS // _MOST_POINTS)
    steps = (
        rows.drop_nulls("gap_max_ms")
        .group_by("broker_addr", "server_id", at_ms=pl.col("minute").dt.epoch("ms") // step_ms * step_ms)
        .agg(pl.col("gap_max_ms").max())
        .sort("broker_addr", "server_id", "at_ms")
    )
    return [
        GapSeries(str(addr), str(server_id), one["at_ms"].to_list(), one["gap_max_ms"].to_list(), step_ms)
        for (addr, server_id), one in steps.group_by("broker_addr", "server_id", maintain_order=True)
    ]
