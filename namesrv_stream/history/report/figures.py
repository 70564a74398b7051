"""All figures of a report: read and reckoned once, for the page, for JSON and for the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.availability import Availability, availabilities
from namesrv_stream.history.extent import Extent
from namesrv_stream.history.flaps import Flapping, flappings
from namesrv_stream.history.outages import Outage, broker_outages, gone_before
from namesrv_stream.history.past import Past, open_changes, open_history_table
from namesrv_stream.history.questions import sessions_of
from namesrv_stream.history.report.absences import Absence, absences
from namesrv_stream.history.report.buckets import Buckets, buckets
from namesrv_stream.history.report.clusters import ClusterFigures, cluster_figures, total_figures
from namesrv_stream.history.report.delays import changed_records, commit_delays, expiry_delays
from namesrv_stream.history.report.endings import Endings, endings
from namesrv_stream.history.report.missed import Heard, heard
from namesrv_stream.history.report.objective import Objective
from namesrv_stream.history.report.unknown import Unknown, unknowns
from namesrv_stream.history.sessions import Session
from namesrv_stream.history.window import Window
from namesrv_stream.instants import instant
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.settings import Settings
from namesrv_stream.tables.job_commits import JobCommit, job_commits
from namesrv_stream.tables.schema.history_columns import HEARTBEAT_MINUTES


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report is to be about; instants in epoch milliseconds.

    Attributes:
        cluster: Only this one; None for all.
    """

    since_ms: int
    until_ms: int
    objective: Objective
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What a report says.

    Attributes:
        asked: As asked, but that the time begins no earlier than the history.
        until_ms: The end of its time: as asked, or to where the tables reach.
        extent: Of the history.
        pieces: The time by hours, days or weeks.
        total: Of all clusters.
        clusters: By name.
        brokers: By how long they were down, the worst first.
        sessions: Of that time, by key and begin.
        flapping: Of each broker.
        absences: By begin.
        outages: The longest first; a goodbye for good is none.
        endings: Why sessions ended, by how much time it took.
        heard: Heartbeats; None where there is no table of them.
        expiry_delays_ms: Of each expiry of which it is known.
        commit_delays_ms: Of each record that changed something, as far back as it is known.
        commits_from_ms: From when on those are known; None where none is.
        unknown: What is not.
    """

    asked: Asked
    until_ms: int
    extent: Extent
    pieces: Buckets
    total: ClusterFigures
    clusters: Sequence[ClusterFigures]
    brokers: Sequence[Availability]
    sessions: Sequence[Session]
    flapping: Mapping[LeaseKey, Flapping]
    absences: Sequence[Absence]
    outages: Sequence[Outage]
    endings: Sequence[Endings]
    heard: Heard | None
    expiry_delays_ms: Sequence[int]
    commit_delays_ms: Sequence[int]
    commits_from_ms: int | None
    unknown: Sequence[Unknown]

    @property
    def known_heartbeats(self) -> Heard | None:
        """The heartbeats of the time; None where none of them is known."""
        return self.heard if self.heard and self.heard.has_figures else None


@dataclass(frozen=True, slots=True)
class Material:
    """What the tables say of the time asked about.

    Attributes:
        until_ms: The end of the time: as asked, or to where the tables reach.
        extent: Of the history.
        sessions: All that overlap the time, and each process's first and last before.
        counted_to_ms: partition → to when it is known when brokers that went were last heard.
        heard: Heartbeats; None where there is no table of them.
        default_timeouts: From when on which timeout held for brokers that asked for none, by time.
        default_timeout_ms: That before the first of them.
        records: Records that changed something: partition, offset, at_ms.
        committed: The job's commits, by time.
    """

    until_ms: int
    extent: Extent
    sessions: Sequence[Session]
    counted_to_ms: Mapping[int, int]
    heard: Heard | None
    default_timeouts: Sequence[tuple[int, int]]
    default_timeout_ms: int
    records: pl.DataFrame
    committed: Sequence[JobCommit]


def figures(settings: Settings, asked: Asked) -> Figures:
    """Read and reckon; blocks.

    Raises:
        NotInHistory: There is no history, or it does not have that time or that cluster.
        TableSchemaMismatch: A table is damaged, or not as this version of the code expects.
    """
    return reckon(asked, read(settings, asked))


def read(settings: Settings, asked: Asked) -> Material:
    """What the tables say; blocks, and raises as ``figures``."""
    past = Past(settings)
    changes = open_changes(settings)
    since_ms, until_ms = _known_since_ms(asked, past.extent), min(asked.until_ms, past.extent.reaches_ms)
    if since_ms >= until_ms:
        raise NotInHistory(past.extent.nothing_after(since_ms))
    known = sessions_of(past, asked.cluster, Window(since_ms, until_ms))
    records = changed_records(changes, since_ms, until_ms)
    return Material(
        until_ms=until_ms,
        extent=past.extent,
        sessions=known,
        counted_to_ms=past.counted_to_ms,
        heard=_heard(settings, past, known, buckets(since_ms, until_ms), asked.cluster),
        default_timeouts=past.default_timeouts(since_ms, until_ms),
        default_timeout_ms=settings.liveness.default_timeout_ms,
        records=records,
        # Of what was before the first of them, nothing is asked.
        committed=job_commits(changes, min(records["at_ms"].to_list())) if records.height else [],
    )


def reckon(asked: Asked, material: Material) -> Figures:
    """The figures.

    Raises:
        NotInHistory: No broker was to be up in that time.
    """
    wanted_ms, until_ms, known = asked.since_ms, material.until_ms, material.sessions
    since_ms = _known_since_ms(asked, material.extent)
    brokers = availabilities(known, since_ms, until_ms)
    if not brokers:
        raise NotInHistory(f"no broker was up between {instant(since_ms)} and {instant(until_ms)}")
    within = [s for s in known if s.down_ms is None or s.down_ms > since_ms]
    outages = broker_outages(known, since_ms, until_ms)
    absent = absences(outages, since_ms, until_ms)
    clusters = cluster_figures(brokers, outages, since_ms, until_ms)
    timeouts, default_ms = material.default_timeouts, material.default_timeout_ms
    return Figures(
        asked=replace(asked, since_ms=since_ms),
        until_ms=until_ms,
        extent=material.extent,
        pieces=buckets(since_ms, until_ms),
        total=total_figures(clusters),
        clusters=clusters,
        brokers=sorted(brokers, key=lambda a: (a.up_ms - a.known_ms, a.key)),
        sessions=within,
        flapping={f.key: f for f in flappings(known, since_ms, until_ms)},
        absences=absent,
        outages=_longest_first(outages, since_ms, until_ms),
        endings=endings(known, absent, material.counted_to_ms, since_ms, until_ms),
        heard=material.heard,
        expiry_delays_ms=expiry_delays(within, timeouts, default_ms, material.counted_to_ms, since_ms, until_ms),
        commit_delays_ms=commit_delays(material.records, material.committed),
        commits_from_ms=max(since_ms, material.committed[0].at_ms) if material.committed else None,
        unknown=unknowns(
            material.extent,
            known,
            material.heard,
            timeouts[-1][1] if timeouts else default_ms,
            gone_before(known, since_ms),
            Window(wanted_ms, asked.until_ms),
            since_ms,
        ),
    )


def _known_since_ms(asked: Asked, extent: Extent) -> int:
    """The begin of the time as asked, or that of the history."""
    return max(asked.since_ms, extent.begin_ms or 0)


def _heard(
    settings: Settings, past: Past, sessions: Sequence[Session], pieces: Buckets, cluster: str | None
) -> Heard | None:
    try:
        table = open_history_table(settings, HEARTBEAT_MINUTES)
    except NotInHistory:
        return None
    return heard(table, past.counted_to_ms, sessions, pieces, cluster)


def _longest_first(outages: Sequence[Outage], since_ms: int, until_ms: int) -> list[Outage]:
    """By how much of the time they took."""

    def length_ms(outage: Outage) -> int:
        return min(until_ms, outage.end_ms or until_ms) - max(since_ms, outage.begin_ms)

    found = [outage for outage in outages if not outage.is_for_good]
    return sorted(found, key=lambda o: (-length_ms(o), o.begin_ms, o.scope, o.name, o.broker_addr or ""))
