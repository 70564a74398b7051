"""All figures of a report, computed once for the page, JSON and the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import polars as pl
import pyarrow as pa

from namesrv_stream.history.answer import Extent, Window
from namesrv_stream.history.database import Database, Past, Row, open_changes
from namesrv_stream.history.sessions import set_period
from namesrv_stream.instants import instant, utc
from namesrv_stream.route.changes import ROUTE_KINDS
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.job_commits import JobCommit, job_commits

_QUESTIONS = (
    *("brokers", "clusters", "delays", "flaps", "gone_before", "missed", "missed_of_brokers", "name_servers"),
    *("outages", "routes_behind", "segments", "session_ends", "unobserved"),
)


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The request for a report.

    Attributes:
        window: The period.
        objective: Target availability of a broker, above 0 and below 1.
        cluster: Only this cluster; None for all.
    """

    window: Window
    objective: float
    cluster: str | None = None

    @property
    def objective_text(self) -> str:
        return f"{self.objective * 100:.6g}%"


@dataclass(frozen=True, slots=True)
class Known:
    """The part of the period that the tables cover.

    Attributes:
        window: This part.
        extent: The time that the history covers.
        heartbeat_window: The part of the period in which heartbeats are counted; None if there is no such part.
        has_heartbeats: Whether there is a table of heartbeats.
        commits_from_ms: Time from which commits of the job are known, epoch milliseconds; None if none are.
    """

    window: Window
    extent: Extent
    heartbeat_window: Window | None
    has_heartbeats: bool
    commits_from_ms: int | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The content of a report.

    Attributes:
        request: The request.
        known: The part of the period that the tables cover.
        rows: Question → its rows. ``brokers`` are sorted by downtime, longest first, with the additional column
            ``missed``, the number of missed heartbeats. ``outages`` are sorted by length, longest first,
            without outages of brokers that were removed intentionally.
        total: The row for all clusters, which is the last row of ``clusters.sql``.
    """

    request: ReportRequest
    known: Known
    rows: Mapping[str, Sequence[Row]]
    total: Row

    @property
    def unit(self) -> str:
        """The length of the segments into which the report divides its period: hour, day or week."""
        unit: str = self.rows["segments"][0]["unit"]
        return unit


def figures(settings: Settings, request: ReportRequest) -> Figures:
    """Read the tables and compute all figures; blocks.

    Raises:
        NotInHistory: There is no history, or it does not have that period or that cluster.
        TableSchemaMismatch: A table is damaged or has an unexpected schema.
        StoreUnreachable: The object store does not answer.
    """
    past, changes = Past(settings), open_changes(settings)
    extent = past.extent
    window = extent.known_part(request.window)
    set_period(past, window, cluster=request.cluster)
    read_heartbeats(past, window, request.cluster)
    records = changed_records(changes, window)
    # Commits before the first of these records are not needed.
    commits = job_commits(changes, min(records["at_ms"].to_pylist())) if records.num_rows else []
    register_delays(past, past.counted_to_ms, past.default_timeouts(settings, window), records, commits)
    commits_from_ms = max(window.since_ms, commits[0].at_ms) if commits else None
    known = Known(window, extent, past.heartbeat_window(window), past.has_heartbeats, commits_from_ms)
    return answers(past, request, known)


def answers(database: Database, request: ReportRequest, known: Known) -> Figures:
    """Answer all questions of the report; blocks.

    Args:
        database: A database with the tables of ``set_period``, ``read_heartbeats`` and ``register_delays``, and with
            ``heartbeat_minutes``.
        request: The request.
        known: The part of the period that the tables cover.

    Raises:
        NotInHistory: No broker was up in that period.
        TableSchemaMismatch: The tables cannot be read.
    """
    heartbeat_window, window = known.heartbeat_window, known.window
    parameters = {
        "objective": request.objective,
        "cluster": request.cluster,
        "heard_from_ms": heartbeat_window and heartbeat_window.since_ms,
        "heard_to_ms": heartbeat_window and heartbeat_window.until_ms,
    }
    rows = {question: database.rows(question, **parameters) for question in _QUESTIONS}
    if not rows["brokers"]:
        raise NotInHistory(f"no broker was up between {instant(window.since_ms)} and {instant(window.until_ms)}")
    missed = {row["replica"]: row["missed"] for row in rows["missed_of_brokers"]}
    for row in rows["brokers"]:
        row["missed"] = missed.get(row["replica"], 0) if heartbeat_window else None
    rows["brokers"].sort(key=lambda row: (-row["down_ms"], row["broker_name"]))
    rows["outages"] = sorted(
        (row for row in rows["outages"] if not row["for_good"]), key=lambda row: -_taken(row, window)
    )
    return Figures(request, known, rows, rows["clusters"].pop())


def register_delays(
    database: Database,
    counted_to_ms: Mapping[int, int],
    timeouts: pa.Table,
    records: pa.Table,
    commits: Sequence[JobCommit],
) -> None:
    """Register the tables that ``delays.sql`` and ``routes_behind.sql`` read.

    Args:
        counted_to_ms: Partition → time up to which heartbeats are counted, epoch milliseconds.
        timeouts: Rows of ``default_timeouts.sql``.
        records: Records that changed something: partition, offset, at_ms, is_route.
        commits: Commits of the job, by time.
    """
    offsets = [(p, offset, commit.at_ms) for commit in commits for p, offset in commit.next_offsets.items()]
    database.register("records", records)
    database.register("commits", _table(offsets, "partition", "next_offset", "at_ms"))
    database.register("counted", _table(list(counted_to_ms.items()), "partition", "at_ms"))
    database.register("default_timeouts", timeouts)


def changed_records(changes: StoredTable, window: Window) -> pa.Table:
    """Return the records of a period that changed something: partition, offset, at_ms, is_route; blocks."""
    is_within = pl.col("at_ms").is_between(window.since_ms, window.until_ms, closed="right")
    rows = changes.rows(is_within, columns=["partition", "offset", "at_ms", "kind"])
    is_route = pl.col("kind").is_in(list(ROUTE_KINDS)).any().alias("is_route")
    return rows.group_by("partition", "offset").agg(pl.col("at_ms").first(), is_route).to_arrow()


def read_heartbeats(past: Past, window: Window, cluster: str | None) -> None:
    """Register the table of heartbeats, read day by day, because the heartbeats of a month are millions of rows."""
    first, last = utc(window.since_ms).date(), utc(window.until_ms).date()
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    found = [past.query("heartbeats_of_day", day=day, cluster=cluster) for day in days]
    past.register("heartbeats", pa.concat_tables(found))


def _table(rows: Sequence[tuple[int, ...]], *names: str) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [() for _ in names]
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=names)


def _taken(outage: Row, window: Window) -> int:
    """Return the duration of the part of an outage within a period, milliseconds."""
    begin_ms: int = max(window.since_ms, outage["begin_ms"])
    end_ms: int = window.until_ms if outage["end_ms"] is None else min(window.until_ms, outage["end_ms"])
    return end_ms - begin_ms
