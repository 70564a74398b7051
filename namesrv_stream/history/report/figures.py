"""All figures of a report, asked once for the page, for JSON and for the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import polars as pl
import pyarrow as pa

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.database import Database, Row
from namesrv_stream.history.extent import Extent, Window
from namesrv_stream.history.past import Past, open_changes
from namesrv_stream.history.sessions import set_period
from namesrv_stream.instants import instant, utc
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.job_commits import JobCommit, job_commits

_QUESTIONS = (
    *("brokers", "clusters", "delays", "flaps", "gone_before", "missed", "missed_of_brokers", "name_servers"),
    *("outages", "segments", "session_ends", "unobserved"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report is about.

    Attributes:
        objective: For how much of its time a broker is to be up, above 0 and below 1.
        cluster: Only this one; None for all.
    """

    window: Window
    objective: float
    cluster: str | None = None

    @property
    def objective_text(self) -> str:
        return f"{self.objective * 100:.6g}%"


@dataclass(frozen=True, slots=True)
class Known:
    """What the tables cover of the time asked about.

    Attributes:
        window: That part of the time.
        extent: Of the history.
        heard: The part of the time of which heartbeats are counted; None where there is none.
        has_heartbeats: Whether there is a table of heartbeats.
        commits_from_ms: From when on commits of the job are known; None where none is.
    """

    window: Window
    extent: Extent
    heard: Window | None
    has_heartbeats: bool
    commits_from_ms: int | None


@dataclass(frozen=True, slots=True)
class Figures:
    """What a report says.

    Attributes:
        rows: Question → its answer. Of ``brokers`` those that were down longest are first, with their ``missed``
            heartbeats; of ``outages`` the longest, without brokers that were removed on purpose.
        total: Of all clusters: the last row of ``clusters.sql``.
    """

    asked: Asked
    known: Known
    rows: Mapping[str, Sequence[Row]]
    total: Row

    @property
    def unit(self) -> str:
        """What a segment is: hour, day or week."""
        unit: str = self.rows["segments"][0]["unit"]
        return unit


def figures(settings: Settings, asked: Asked) -> Figures:
    """Read the tables, and ask; blocks.

    Raises:
        NotInHistory: There is no history, or it does not have that time or that cluster.
        TableSchemaMismatch: A table is damaged, or not as this version of the code expects.
    """
    past, changes = Past(settings), open_changes(settings)
    extent = past.extent
    window = extent.known_part(asked.window)
    set_period(past, window, cluster=asked.cluster)
    read_heartbeats(past, window, asked.cluster)
    records = changed_records(changes, window)
    # Of what was before the first of them, nothing is asked.
    commits = job_commits(changes, min(records["at_ms"].to_pylist())) if records.num_rows else []
    register_delays(past, past.counted_to_ms, past.default_timeouts(settings, window), records, commits)
    commits_from_ms = max(window.since_ms, commits[0].at_ms) if commits else None
    known = Known(window, extent, past.heard(window), past.has_heartbeats, commits_from_ms)
    return answers(past, asked, known)


def answers(database: Database, asked: Asked, known: Known) -> Figures:
    """Ask all questions of the report; blocks.

    Args:
        database: With the tables of the period, of heartbeats, of delays, and ``heartbeat_minutes``.
        asked: The time as asked, and what else was.
        known: What the tables cover of it.

    Raises:
        NotInHistory: No broker was up in that time.
        TableSchemaMismatch: The tables cannot be read.
    """
    heard, window = known.heard, known.window
    parameters = {
        "objective": asked.objective,
        "cluster": asked.cluster,
        "heard_from_ms": heard and heard.since_ms,
        "heard_to_ms": heard and heard.until_ms,
    }
    rows = {question: database.rows(question, **parameters) for question in _QUESTIONS}
    if not rows["brokers"]:
        raise NotInHistory(f"no broker was up between {instant(window.since_ms)} and {instant(window.until_ms)}")
    missed = {row["replica"]: row["missed"] for row in rows["missed_of_brokers"]}
    for row in rows["brokers"]:
        row["missed"] = missed.get(row["replica"], 0) if heard else None
    rows["brokers"].sort(key=lambda row: (-row["down_ms"], row["broker_name"]))
    rows["outages"] = sorted(
        (row for row in rows["outages"] if not row["for_good"]), key=lambda row: -_taken(row, window)
    )
    return Figures(asked, known, rows, rows["clusters"].pop())


def register_delays(
    database: Database,
    counted_to_ms: Mapping[int, int],
    timeouts: pa.Table,
    records: pa.Table,
    commits: Sequence[JobCommit],
) -> None:
    """Make the tables that ``delays.sql`` reads.

    Args:
        database: For them.
        counted_to_ms: partition → up to when heartbeats are counted.
        timeouts: The answer of ``default_timeouts.sql``.
        records: Those that changed something: partition, offset, at_ms.
        commits: By time.
    """
    offsets = [(p, offset, commit.at_ms) for commit in commits for p, offset in commit.next_offsets.items()]
    database.register("records", records)
    database.register("commits", _table(offsets, "partition", "next_offset", "at_ms"))
    database.register("counted", _table(list(counted_to_ms.items()), "partition", "at_ms"))
    database.register("default_timeouts", timeouts)


def changed_records(changes: StoredTable, window: Window) -> pa.Table:
    """The records that changed something: partition, offset, at_ms; blocks."""
    is_within = pl.col("at_ms").is_between(window.since_ms, window.until_ms, closed="right")
    rows = changes.rows(is_within, columns=["partition", "offset", "at_ms"])
    return rows.unique(["partition", "offset"]).to_arrow()


def read_heartbeats(past: Past, window: Window, cluster: str | None) -> None:
    """Ask for heartbeats a day at a time: those of a month are millions of rows."""
    first, last = utc(window.since_ms).date(), utc(window.until_ms).date()
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    found = [past.ask("heartbeats_of_day", day=day, cluster=cluster) for day in days]
    past.register("heartbeats", pa.concat_tables(found))


def _table(rows: Sequence[tuple[int, ...]], *names: str) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [() for _ in names]
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=names)


def _taken(outage: Row, window: Window) -> int:
    """How much of a time an outage took, milliseconds."""
    begin_ms: int = max(window.since_ms, outage["begin_ms"])
    end_ms: int = window.until_ms if outage["end_ms"] is None else min(window.until_ms, outage["end_ms"])
    return end_ms - begin_ms
