"""How long live brokers were silent: what a shorter timeout would have made of it, out of ``heartbeat_minutes``.

A quick look by the log's time. ``namesrv-stream what-if`` folds the log again and is exact: it also knows when it was
the name server that could not listen, and which of those that came back had been restarted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.history.past import Past, open_history_table
from namesrv_stream.settings import Settings
from namesrv_stream.tables.schema.history_columns import HEARTBEAT_MINUTES

#: More rows take more than half a second of both cores, and more memory than a server should give for this.
_MOST_ROWS: Final = 2_000_000
_MOST_NAMED: Final = 10


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
    open_history_table(settings, HEARTBEAT_MINUTES)
    past = Past(settings)
    count = past.ask("minutes_count", since_ms=since_ms, until_ms=until_ms)["rows"][0].as_py()
    if count > _MOST_ROWS:
        since_ms = until_ms - (until_ms - since_ms) * _MOST_ROWS // count
    minutes = past.ask("silent_minutes", since_ms=since_ms, until_ms=until_ms)
    past.register("silent_minutes", minutes)
    past.register("timeouts", pa.table({"timeout_ms": pa.array(timeouts_ms, pa.int64())}))
    of = {row["timeout_ms"]: Timeout(**row) for row in past.ask("timeouts").to_pylist()}
    worst = past.ask("silences").to_pylist()
    first_ms, last_ms = pc.min(minutes["first_ms"]).as_py(), pc.max(minutes["last_ms"]).as_py()
    reached_ms: int | None = None
    if last_ms is not None:
        since_ms = max(since_ms, first_ms)
        reached_ms = max(last_ms, min(until_ms, min(past.counted_to_ms.values(), default=0)))
    # Of the time that the heartbeats are of, and of no other.
    expired = past.ask("expiries", since_ms=since_ms, until_ms=until_ms if reached_ms is None else reached_ms)
    return Silences(
        since_ms,
        reached_ms,
        len(worst),
        [of.get(ms, Timeout(ms, 0, 0)) for ms in timeouts_ms],
        [Silent(**row) for row in worst[:_MOST_NAMED] if row["longest_ms"] is not None],
        expired["expiries"][0].as_py(),
    )
