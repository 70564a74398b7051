"""Sessions of broker processes, and which of them belong to the same *replica*: one broker of a broker name.

A session belongs to a process: a cluster, a broker name and an address. If addresses are not permanent (pods), the next
process has another address, and the old one never comes back: it was replaced. Availability, outages and flapping are
counted per replica. docs/history.md contains the rules as well. A process that comes up belongs to the replica of its
broker name

1. whose newest process had the same address, with any brokerId;
2. otherwise, whose newest process came up with the same id. The new process replaces that one, which may be down or
   still up, as in a rolling replacement or until its end is detected;
3. otherwise, if it or the newest process of the replica has id 0: the replica that went down last and is still down.
   Id 0 is a role: in controller mode, a failed master comes back with an id of its own, and a slave may come back as 0;
4. otherwise: a new replica.

The rules are wrong in two cases. Two processes with the same id at the same time count as one replica (name servers
also give the id to the newer one). A slave that is added at a new address while the master is down counts as the
master's replacement.

Each decision depends on the one before, so a Python loop applies the rules instead of SQL.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.history.answer import Window
from namesrv_stream.history.database import Past, Row, open_history_table
from namesrv_stream.instants import instant
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory
from namesrv_stream.tables.layout import HEARTBEAT_MINUTES


def sessions_between(
    past: Past, window: Window, *, cluster: str | None = None, broker_name: str | None = None
) -> pa.Table:
    """Return the rows of ``sessions.sql`` with the additional column ``replica``; blocks.

    ``heartbeats`` is null for a session of which no heartbeat is counted yet.

    Args:
        window: The period. Starts and ends of sessions after it are ignored.
        cluster: Only this cluster; None for all.
        broker_name: Only this broker name; None for all.

    Raises:
        TableSchemaMismatch: The tables cannot be read.
    """
    only = {"cluster": cluster, "broker_name": broker_name}
    found = past.query("sessions", **asdict(window), **only)
    return with_replicas(_without_uncounted(found, past.counted_to_ms))


def _without_uncounted(sessions: pa.Table, counted_to_ms: Mapping[int, int]) -> pa.Table:
    """Return the sessions with null ``heartbeats`` instead of 0 if they began after the last count."""
    rows = sessions.select(["heartbeats", "up_ms", "partition"]).to_pylist()
    is_known = [row["heartbeats"] or row["up_ms"] < counted_to_ms.get(row["partition"], 0) for row in rows]
    heartbeats = pc.if_else(pa.array([bool(known) for known in is_known]), sessions["heartbeats"], None)
    return sessions.set_column(sessions.schema.get_field_index("heartbeats"), "heartbeats", heartbeats)


def with_replicas(sessions: pa.Table) -> pa.Table:
    """Return rows of ``sessions.sql`` with the additional column ``replica``, a number."""
    return sessions.append_column("replica", pa.array(replica_numbers(sessions.to_pylist()), pa.int64()))


def set_period(past: Past, window: Window, *, cluster: str | None = None, broker_name: str | None = None) -> None:
    """Read the sessions of a period, which the questions about brokers need; blocks.

    Raises:
        NotInHistory: There was no such cluster or broker, or no broker at all.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = sessions_between(past, window, cluster=cluster, broker_name=broker_name)
    if not found.num_rows:
        what = "broker" if cluster is None else f"cluster {cluster}"
        what = what if broker_name is None else f"broker {broker_name}"
        raise NotInHistory(f"the history contains no {what}{known_from(past)}")
    past.set_period(found, window)


def known_from(past: Past) -> str:
    """Return a text that says when the history begins, to be appended to a sentence; "" if the history is empty."""
    begin_ms = past.extent.begin_ms
    return "" if begin_ms is None else f"; it begins at {instant(begin_ms)}"


_MASTER_ID: Final = 0
_Session = Mapping[str, Any]


def replica_numbers(sessions: Sequence[_Session]) -> list[int]:
    """Return the number of the replica of each session.

    Replicas are numbered in the order of cluster, broker name and newest address.

    Args:
        sessions: Rows of ``sessions.sql``: all sessions of each process in a period, and its first and last session
            before the period, so that a known process is not taken for a new one.
    """
    newest_of_names: dict[tuple[str, str], dict[int, _Session]] = {}
    first_of = {}
    for place, session in sorted(enumerate(sessions), key=lambda item: (item[1]["up_ms"], item[1]["offset"])):
        newest = newest_of_names.setdefault((session["cluster"], session["broker_name"]), {})
        replica = _continued_by(session, newest)
        first_of[place] = place if replica is None else replica
        newest[first_of[place]] = session
    ordered = sorted(
        (*name, session["broker_addr"], replica)
        for name, newest in newest_of_names.items()
        for replica, session in newest.items()
    )
    number_of = {replica: number for number, (*_, replica) in enumerate(ordered)}
    return [number_of[first_of[place]] for place in range(len(sessions))]


def _continued_by(session: _Session, newest: Mapping[int, _Session]) -> int | None:
    """Return the replica of a session's broker name to which the session belongs; None for a new replica.

    Args:
        session: A session that begins.
        newest: Replica → its newest session.
    """
    rules: tuple[Callable[[_Session], bool], ...] = (
        lambda last: last["broker_addr"] == session["broker_addr"],
        lambda last: session["broker_id"] is not None and last["broker_id"] == session["broker_id"],
        lambda last: (
            _MASTER_ID in (last["broker_id"], session["broker_id"])
            and last["down_ms"] is not None
            and last["down_ms"] <= session["up_ms"]
        ),
    )
    for is_same in rules:
        same = [replica for replica, last in newest.items() if is_same(last)]
        if same:
            return max(same, key=lambda replica: (newest[replica]["down_ms"] or 0, newest[replica]["up_ms"]))
    return None


#: More rows take more than half a second of both cores, and more memory than a server should use for this.
_MAX_ROWS: Final = 2_000_000
_MAX_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class Silences:
    """How long brokers were silent in a period, and what other timeouts would have meant.

    Attributes:
        since_ms: First heartbeat of the period in the table, epoch milliseconds; the start of the period if there is
            none. It is later than requested if there are too many rows.
        until_ms: Time up to which the table has all heartbeats; None if it has none of the period.
        brokers: Number of broker processes with heartbeats.
        timeouts: Rows of ``timeouts.sql``, one per given timeout. Expiries are counted at most once per minute and
            broker.
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

    A silence is the time between two successive heartbeats of a broker, whichever name servers received them. Silences
    in which the broker's session ended do not count. Within a minute, only the longest gap at each server is known; the
    smallest of these gaps is taken as the broker's silence.

    Args:
        timeouts_ms: The timeouts for which expiries are counted.

    Raises:
        NotInHistory: The tables do not exist.
        TableSchemaMismatch: A table is damaged or has an unexpected schema.
        StoreUnreachable: The object store does not answer.
    """
    open_history_table(settings, HEARTBEAT_MINUTES)
    past = Past(settings)
    (count,) = past.rows("minutes_count", since_ms=since_ms, until_ms=until_ms)
    if count["rows"] > _MAX_ROWS:
        since_ms = until_ms - (until_ms - since_ms) * _MAX_ROWS // count["rows"]
    minutes = past.query("silent_minutes", since_ms=since_ms, until_ms=until_ms)
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
