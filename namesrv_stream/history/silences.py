"""How long live brokers were silent, from ``heartbeat_minutes``, and what shorter timeouts would have done.

This is an estimate by the log's time. ``namesrv-stream what-if`` replays the log and is exact: it also knows when the
name server could not listen, and which of the brokers that came back had been restarted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.history.database import Row
from namesrv_stream.history.past import Past, open_history_table
from namesrv_stream.settings import Settings
from namesrv_stream.tables.schema.history_columns import HEARTBEAT_MINUTES

#: More rows take more than half a second of both cores, and more memory than a server should give for this.
_MOST_ROWS: Final = 2_000_000
_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Silences:
    """Of one time.

    Attributes:
        since_ms: The first heartbeat that the table has of the time, epoch milliseconds; where it has none, its begin.
            It is later than asked for where that were too many rows.
        until_ms: To when the table has all heartbeats; None where it has none of the time.
        brokers: Broker processes heard.
        timeouts: Rows of ``timeouts.sql``; expiries are counted at most once a minute and broker.
        longest: The first rows of ``silences.sql``: the most silent broker processes.
        expired: Sessions that really expired between ``since_ms`` and ``until_ms``.
    """

    since_ms: int
    until_ms: int | None
    brokers: int
    timeouts: Sequence[Row]
    longest: Sequence[Row]
    expired: int


def silences(settings: Settings, since_ms: int, until_ms: int, timeouts_ms: Sequence[int]) -> Silences:
    """The silences of a time; blocks.

    A silence lies between two heartbeats at any name server; one in which the broker's session ended does not count.
    Silences of less than a minute are known for the server that heard the broker best in that minute.

    Raises:
        NotInHistory: There are no such tables.
        TableSchemaMismatch: One is damaged, or not as this version of the code expects.
    """
    open_history_table(settings, HEARTBEAT_MINUTES)
    past = Past(settings)
    (count,) = past.rows("minutes_count", since_ms=since_ms, until_ms=until_ms)
    if count["rows"] > _MOST_ROWS:
        since_ms = until_ms - (until_ms - since_ms) * _MOST_ROWS // count["rows"]
    minutes = past.ask("silent_minutes", since_ms=since_ms, until_ms=until_ms)
    past.register("silent_minutes", minutes)
    past.register("timeouts", pa.table({"timeout_ms": pa.array(timeouts_ms, pa.int64())}))
    worst = past.rows("silences")
    first_ms, last_ms = pc.min(minutes["first_ms"]).as_py(), pc.max(minutes["last_ms"]).as_py()
    reached_ms: int | None = None
    if last_ms is not None:
        since_ms = max(since_ms, first_ms)
        reached_ms = max(last_ms, min(until_ms, min(past.counted_to_ms.values(), default=0)))
    # Of the time that the heartbeats are of, and of no other.
    end_ms = until_ms if reached_ms is None else reached_ms
    (expired,) = past.rows("expiries", since_ms=since_ms, until_ms=end_ms)
    return Silences(
        since_ms,
        reached_ms,
        len(worst),
        past.rows("timeouts"),
        [row for row in worst[:_MOST_NAMED] if row["longest_ms"] is not None],
        expired["expiries"],
    )
