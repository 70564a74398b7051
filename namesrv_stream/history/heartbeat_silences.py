"""How long live brokers sent no heartbeats, and how many would have expired with other timeouts.

This is an estimate from ``heartbeat_minutes``, in log time. ``namesrv-stream what-if`` replays the log and is exact: it
also knows when a name server could not receive heartbeats, and which of the returned brokers had been restarted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.history.database import Row
from namesrv_stream.history.past import Past, open_history_table
from namesrv_stream.settings import Settings
from namesrv_stream.tables.layout import HEARTBEAT_MINUTES

#: More rows take more than half a second of both cores, and more memory than a server should use for this.
_MAX_ROWS: Final = 2_000_000
_MAX_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class Silences:
    """The silences of a period.

    Attributes:
        since_ms: First heartbeat of the period in the table, epoch milliseconds; the start of the period if there is
            none. It is later than requested if there are too many rows.
        until_ms: Time up to which the table has all heartbeats; None if it has none of the period.
        brokers: Number of broker processes with heartbeats.
        timeouts: Rows of ``timeouts.sql``. Expiries are counted at most once per minute and broker.
        longest: The first rows of ``silences.sql``: the broker processes with the longest silences.
        expired: Sessions that actually expired between ``since_ms`` and ``until_ms``.
    """

    since_ms: int
    until_ms: int | None
    brokers: int
    timeouts: Sequence[Row]
    longest: Sequence[Row]
    expired: int


def silences(settings: Settings, since_ms: int, until_ms: int, timeouts_ms: Sequence[int]) -> Silences:
    """Return the silences of a period; blocks.

    A silence is the time between two heartbeats at any name server. Silences in which the broker's session ended do not
    count. Silences of less than a minute are taken from the server with the shortest gaps in that minute.

    Raises:
        NotInHistory: The tables do not exist.
        TableSchemaMismatch: A table is damaged or has an unexpected schema.
    """
    open_history_table(settings, HEARTBEAT_MINUTES)
    past = Past(settings)
    (count,) = past.rows("minutes_count", since_ms=since_ms, until_ms=until_ms)
    if count["rows"] > _MAX_ROWS:
        since_ms = until_ms - (until_ms - since_ms) * _MAX_ROWS // count["rows"]
    minutes = past.ask("silent_minutes", since_ms=since_ms, until_ms=until_ms)
    past.register("silent_minutes", minutes)
    past.register("timeouts", pa.table({"timeout_ms": pa.array(timeouts_ms, pa.int64())}))
    worst = past.rows("silences")
    first_ms, last_ms = pc.min(minutes["first_ms"]).as_py(), pc.max(minutes["last_ms"]).as_py()
    reached_ms: int | None = None
    if last_ms is not None:
        since_ms = max(since_ms, first_ms)
        reached_ms = max(last_ms, min(until_ms, min(past.counted_to_ms.values(), default=0)))
    # Expiries are counted in the period of the heartbeats only.
    end_ms = until_ms if reached_ms is None else reached_ms
    (expired,) = past.rows("expiries", since_ms=since_ms, until_ms=end_ms)
    return Silences(
        since_ms,
        reached_ms,
        len(worst),
        past.rows("timeouts"),
        [row for row in worst[:_MAX_LISTED] if row["longest_ms"] is not None],
        expired["expiries"],
    )
