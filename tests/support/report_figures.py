"""Sessions said in a line, and the report's figures of them without tables."""

from collections.abc import Mapping, Sequence

import polars as pl

from namesrv_stream.history.extent import Extent
from namesrv_stream.history.report.figures import Asked, Figures, Material, reckon
from namesrv_stream.history.report.missed import Heard
from namesrv_stream.history.report.objective import Objective
from namesrv_stream.history.sessions import Session
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import LiveKey
from namesrv_stream.tables.job_commits import JobCommit

#: A Monday, at midnight of UTC, in which the tests' machine is to be.
MONDAY_MS = 1_699_833_600_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FAR_MS = 9_000_000_000_000
RECORDS = {"partition": pl.Int32, "offset": pl.Int64, "at_ms": pl.Int64}


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
) -> Session:
    """One; without a cause it ends by expiring."""
    return Session(
        key=LeaseKey(name, LiveKey(cluster, addr)),
        broker_id=broker_id,
        up_ms=up_ms,
        down_ms=down_ms,
        up_cause=up_cause,
        down_cause=None if down_ms is None else cause or "expired",
        down_detail=None,
        timeout_ms=timeout_ms,
        heartbeats=1,
        longest_gap_ms=None,
        last_heard_ms=last_heard_ms,
        partition=0,
        offset=0,
    )


def figures_of(
    sessions: Sequence[Session],
    since_ms: int,
    until_ms: int,
    *,
    objective: float = 0.999,
    cluster: str | None = None,
    heard: Heard | None = None,
    extent: Extent | None = None,
    counted_to_ms: Mapping[int, int] | None = None,
    records: pl.DataFrame | None = None,
    committed: Sequence[JobCommit] = (),
) -> Figures:
    """The figures of sessions, of a history that knows everything."""
    ordered = sorted(sessions, key=lambda s: (s.cluster, s.broker_name, s.broker_addr, s.up_ms))
    material = Material(
        until_ms=until_ms,
        extent=extent or Extent(0, until_ms, until_ms),
        sessions=ordered,
        counted_to_ms={0: FAR_MS} if counted_to_ms is None else counted_to_ms,
        heard=heard,
        default_timeouts=(),
        default_timeout_ms=120_000,
        records=pl.DataFrame(schema=RECORDS) if records is None else records,
        committed=committed,
    )
    return reckon(Asked(since_ms, until_ms, Objective(objective), cluster), material)
