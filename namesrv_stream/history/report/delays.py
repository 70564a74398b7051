"""How long it took until the routes said what had happened.

Three delays, each from columns of the tables:

- *expiry*: from when a broker was due to go, by its last heartbeat and its timeout on the log's clock, until the row
  that says that it went. The fold ages brokers by observed time only, so that it holds what was spent blind;
- *record to table*: from a record's LogAppendTime to the commit of the row that it made, by the job's clock. Delta's
  log of ``route_changes`` says when that was, and is kept for a day.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from namesrv_stream.history.sessions import Session
from namesrv_stream.route.changes import Cause
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.job_commits import JobCommit

_QUANTILES: Final = (0.5, 0.95, 0.99)


def expiry_delays(
    sessions: Iterable[Session],
    default_timeouts: Sequence[tuple[int, int]],
    default_ms: int,
    counted_to_ms: Mapping[int, int],
    since_ms: int,
    until_ms: int,
) -> list[int]:
    """Of each expiry how long it came after it was due, milliseconds.

    Args:
        sessions: All that overlap the time.
        default_timeouts: From when on which timeout held for brokers that asked for none, by time.
        default_ms: That before the first of them.
        counted_to_ms: partition → to when it is known when brokers were heard last.
        since_ms: Epoch milliseconds.
        until_ms: Epoch milliseconds.
    """
    found = []
    times = [at_ms for at_ms, _ in default_timeouts]
    for session in sessions:
        down_ms, heard_ms = session.down_ms, session.last_heard_ms
        if session.down_cause != Cause.EXPIRED or down_ms is None or heard_ms is None:
            continue
        if since_ms < down_ms <= min(until_ms, counted_to_ms.get(session.partition, 0)):
            number = bisect_right(times, down_ms) - 1
            default = default_timeouts[number][1] if number >= 0 else default_ms
            found.append(down_ms - heard_ms - (session.timeout_ms or default))
    return found


def changed_records(changes: StoredTable, since_ms: int, until_ms: int) -> pl.DataFrame:
    """The records that changed something: partition, offset, at_ms; blocks."""
    rows = changes.rows(
        pl.col("at_ms").is_between(since_ms, until_ms, closed="right"), columns=["partition", "offset", "at_ms"]
    )
    return rows.unique(["partition", "offset"])


def commit_delays(records: pl.DataFrame, committed: Sequence[JobCommit]) -> list[int]:
    """How long after a record's time its rows were in the table, milliseconds; below 0 where clocks differ.

    Args:
        records: partition, offset, at_ms; those of which no commit tells are left out.
        committed: By time.
    """
    progress: dict[int, tuple[list[int], list[int]]] = {}
    for commit in committed:
        for partition, next_offset in commit.next_offsets.items():
            offsets, times = progress.setdefault(partition, ([], []))
            offsets.append(next_offset)
            times.append(commit.at_ms)
    return list(_delays(records, progress))


def _delays(records: pl.DataFrame, progress: Mapping[int, tuple[list[int], list[int]]]) -> Iterator[int]:
    for partition, offset, at_ms in records.select("partition", "offset", "at_ms").iter_rows():
        offsets, times = progress.get(partition, ([], []))
        number = bisect_right(offsets, offset)
        # Before the first commit that is known there were others: which of them had it, nothing says.
        if 0 < number < len(offsets):
            yield times[number] - at_ms


@dataclass(frozen=True, slots=True)
class Spread:
    """Many durations in a few figures, milliseconds; all but ``count`` are None where there is none.

    Attributes:
        p50_ms: That which half of them do not exceed: always one of them (nearest rank), as the others.
    """

    count: int
    mean_ms: float | None
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None
    max_ms: int | None


def spread(durations_ms: Iterable[int]) -> Spread:
    """Of durations in any order."""
    ordered = sorted(durations_ms)
    if not ordered:
        return Spread(0, None, None, None, None, None)
    p50_ms, p95_ms, p99_ms = (ordered[math.ceil(q * len(ordered)) - 1] for q in _QUANTILES)
    return Spread(len(ordered), sum(ordered) / len(ordered), p50_ms, p95_ms, p99_ms, ordered[-1])
