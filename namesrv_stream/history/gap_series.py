"""How long the brokers of a name were not heard, minute by minute: from ``heartbeat_minutes``."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from namesrv_stream.history.past import Past

_MINUTE_MS: Final = 60_000
#: A line with more points would not show more.
_MOST_POINTS: Final = 1_500


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


def gap_series(past: Past, broker_name: str, since_ms: int, until_ms: int) -> list[GapSeries]:
    """A series for each process and server, by both; blocks.

    Raises:
        TableSchemaMismatch: The table is damaged, or not as this version of the code expects.
    """
    step_ms = _MINUTE_MS * max(1, (until_ms - since_ms) // _MINUTE_MS // _MOST_POINTS)
    rows = past.ask("gaps", broker_name=broker_name, since_ms=since_ms, until_ms=until_ms, step_ms=step_ms).to_pylist()
    found = []
    for (addr, server_id), group in groupby(rows, key=lambda row: (row["broker_addr"], row["server_id"])):
        own = list(group)
        found.append(GapSeries(addr, server_id, [r["at_ms"] for r in own], [r["longest_ms"] for r in own], step_ms))
    return found
