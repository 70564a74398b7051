"""One-line builders of sessions, and the queries and report about them without stored tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from namesrv_stream.history.answer import Extent, Window
from namesrv_stream.history.database import Database, Row
from namesrv_stream.history.report.figures import Figures, Known, ReportRequest, answers, register_delays
from namesrv_stream.history.sessions import with_replicas
from namesrv_stream.tables.job_commits import JobCommit

#: A Monday at midnight UTC.
MONDAY_MS: Final = 1_699_833_600_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
FAR_MS: Final = 9_000_000_000_000
DEFAULT_TIMEOUT_MS: Final = 120_000
RECORDS: Final = pa.schema({"partition": pa.int32(), "offset": pa.int64(), "at_ms": pa.int64(), "is_route": pa.bool_()})
_PROCESS: Final = {"cluster": pa.string(), "broker_name": pa.string(), "broker_addr": pa.string()}
SESSIONS: Final = pa.schema(
    {
        **_PROCESS,
        "broker_id": pa.int64(),
        "up_ms": pa.int64(),
        "down_ms": pa.int64(),
        "up_cause": pa.string(),
        "down_cause": pa.string(),
        "down_detail": pa.string(),
        "timeout_ms": pa.int64(),
        "heartbeats": pa.int64(),
        "longest_gap_ms": pa.int64(),
        "last_heard_ms": pa.int64(),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)
_HEARTBEATS: Final = pa.schema(
    {
        **_PROCESS,
        "server_id": pa.string(),
        "number": pa.int64(),
        "day": pa.date32(),
        "heartbeats": pa.int64(),
        "missed": pa.int64(),
        "silences": pa.int64(),
        "longest_ms": pa.int64(),
        "usual_ms": pa.float64(),
    }
)


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """Known heartbeats.

    Attributes:
        rows: Rows as those of ``heartbeats_of_day.sql``.
        minutes: Begins of the minutes with at least one heartbeat, epoch milliseconds.
        window: The period that they cover; None if the table is empty.
    """

    rows: Sequence[Row]
    minutes: Sequence[int]
    window: Window | None


def a_session(
    up_ms: int,
    down_ms: int | None = None,
    cause: str | None = None,
    *,
    name: str = "broker-a",
    addr: str = "10.0.0.1:10911",
    cluster: str = "c0",
    broker_id: int | None = 0,
    up_cause: str = "registered",
    timeout_ms: int | None = None,
    last_heard_ms: int | None = None,
) -> Row:
    """Return a row of ``sessions.sql``; without a cause the session ends by expiry."""
    return {
        "cluster": cluster,
        "broker_name": name,
        "broker_addr": addr,
        "broker_id": broker_id,
        "up_ms": up_ms,
        "down_ms": down_ms,
        "up_cause": up_cause,
        "down_cause": None if down_ms is None else cause or "expired",
        "timeout_ms": timeout_ms,
        "heartbeats": 1,
        "last_heard_ms": last_heard_ms,
        "partition": 0,
        "offset": 0,
    }


def period_of(sessions: Sequence[Row], since_ms: int, until_ms: int) -> Database:
    """Return a database for queries about brokers."""
    database = Database()
    database.set_period(sessions_table(sessions), Window(since_ms, until_ms))
    return database


def sessions_table(sessions: Sequence[Row]) -> pa.Table:
    """Return the result of ``sessions.sql``, with replicas."""
    ordered = sorted(sessions, key=lambda s: (s["cluster"], s["broker_name"], s["broker_addr"], s["up_ms"]))
    return with_replicas(pa.Table.from_pylist([dict.fromkeys(SESSIONS.names) | s for s in ordered], SESSIONS))


def ask(question: str, sessions: Sequence[Row], since_ms: int, until_ms: int, **parameters: Any) -> list[Row]:
    """Return the result of a query about brokers."""
    return period_of(sessions, since_ms, until_ms).rows(question, **{"objective": None} | parameters)


def register_heartbeats(database: Database, rows: Sequence[Row] = ()) -> None:
    """Register the table ``heartbeats``."""
    complete = [dict.fromkeys(_HEARTBEATS.names) | row for row in rows]
    database.register("heartbeats", pa.Table.from_pylist(complete, _HEARTBEATS))


def ask_delays(
    sessions: Sequence[Row],
    until_ms: int,
    *,
    counted_to_ms: Mapping[int, int] | None = None,
    timeouts: Sequence[tuple[int, int]] = ((0, DEFAULT_TIMEOUT_MS),),
    records: pa.Table | None = None,
    commits: Sequence[JobCommit] = (),
) -> dict[str, Row]:
    """Return the result of ``delays.sql`` by kind, from Monday on; ``behind`` is that of ``routes_behind.sql``."""
    database = period_of(sessions, MONDAY_MS, until_ms)
    counted_to_ms = {0: FAR_MS} if counted_to_ms is None else counted_to_ms
    records = RECORDS.empty_table() if records is None else records
    register_delays(database, counted_to_ms, _timeouts(timeouts), records, commits)
    (behind,) = database.rows("routes_behind")
    return {row["delay"]: row for row in database.rows("delays")} | {"behind": behind}


def figures_of(
    sessions: Sequence[Row],
    since_ms: int,
    until_ms: int,
    *,
    objective: float = 0.999,
    cluster: str | None = None,
    heard: Heartbeats | None = None,
    extent: Extent | None = None,
    counted_to_ms: Mapping[int, int] | None = None,
) -> Figures:
    """Return the figures of sessions, with a complete history."""
    extent = extent or Extent(0, until_ms, until_ms)
    window = Window(max(since_ms, extent.begin_ms or 0), until_ms)
    database = period_of(sessions, window.since_ms, until_ms)
    counted_to_ms = {0: FAR_MS} if counted_to_ms is None else counted_to_ms
    register_delays(database, counted_to_ms, _timeouts([(0, DEFAULT_TIMEOUT_MS)]), RECORDS.empty_table(), ())
    register_heartbeats(database, heard.rows if heard else ())
    minutes = pa.array(heard.minutes if heard else [], pa.int64())
    clusters = pa.array([cluster] * len(minutes), pa.string())
    database.register("heartbeat_minutes", pa.table({"minute_ms": minutes, "cluster": clusters}))
    known = Known(
        window=window,
        extent=extent,
        heartbeat_window=heard.window if heard else None,
        has_heartbeats=heard is not None,
        commits_from_ms=None,
    )
    return answers(database, ReportRequest(Window(since_ms, until_ms), objective, cluster), known)


def _timeouts(timeouts: Sequence[tuple[int, int]]) -> pa.Table:
    """Return the result of ``default_timeouts.sql``."""
    return pa.table({"at_ms": [at_ms for at_ms, _ in timeouts], "timeout_ms": [ms for _, ms in timeouts]})
