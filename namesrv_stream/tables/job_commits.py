"""What the job records in each commit of ``route_changes``, and log lines about committed rows.

A commit records figures about the job, the committed offsets, and the time of the commit. The figures are in the
commit's metadata (ADR 0022). They are totals since the start of the job: of records up to this commit, and of batches
before it.

Log lines are about held brokers and changed settings: one line per cluster or setting, for any number of rows. The job
logs the rows that it has written, a server the rows that it has applied.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from namesrv_stream.logs import safe
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.liveness_settings import setting_changes
from namesrv_stream.route.model import Hold, LeaseKey, decode_hold
from namesrv_stream.tables.delta.commit import commit_versions, read_commit
from namesrv_stream.tables.layout import TOPIC_ID_PROPERTY, app_id, partition_of_app_id

if TYPE_CHECKING:  # it loads Polars, which a server starts without
    from namesrv_stream.tables.delta.stored_table import StoredTable


@dataclass(frozen=True, slots=True)
class JobCommit:
    """One commit of the job.

    Attributes:
        at_ms: Time by the job's clock, epoch milliseconds.
        next_offsets: Partition → first offset that is not in the table, for the partitions that advanced.
    """

    at_ms: int
    next_offsets: Mapping[int, int]


def job_commits(table: "StoredTable", after_ms: int) -> list[JobCommit]:
    """Return the job's commits after a time, preceded by the last one before it, in order of time; blocks.

    Delta's log keeps commits for a day only.

    Args:
        table: ``route_changes``.
        after_ms: The time, epoch milliseconds.

    Raises:
        TableDamaged: A commit is damaged.
        StoreUnreachable: The object store does not answer.
    """
    topic_id = table.properties.get(TOPIC_ID_PROPERTY, "")
    found: list[JobCommit] = []
    for version in reversed(commit_versions(table.storage)):
        commit = read_commit(table.storage, version)
        if commit is None:  # the job has cleaned it up meanwhile
            continue
        partitions = {name: partition_of_app_id(name) for name in commit.transactions}
        offsets = {
            p: commit.transactions[name]
            for name, p in partitions.items()
            if p is not None and name == app_id(topic_id, p)
        }
        if offsets:
            found.append(JobCommit(int(commit.info.get("timestamp", 0)), offsets))
            if found[-1].at_ms <= after_ms:
                break
    return found[::-1]


#: Key of the commit's metadata.
JOB_FIGURES_KEY: Final = "namesrv_stream.job"

#: Upper bounds of ``batch_counts``, milliseconds.
BATCH_BOUNDS_MS: Final = (50, 100, 200, 350, 500, 750, 1_000, 2_000, 5_000, 10_000, 30_000)


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The figures of a job at one time.

    Attributes:
        started_ms: Start of the job, epoch milliseconds.
        at_ms: LogAppendTime of the newest folded record in the partition that is furthest behind, epoch milliseconds.
        records: Number of records folded since the start.
        dead_letters: Number of dead letters since the start.
        batch_counts: Micro-batches by duration; one count per bound of ``BATCH_BOUNDS_MS``, and one above the last.
        batch_ms: Total duration of the micro-batches, from Spark's call to the end of the commit, milliseconds.
    """

    started_ms: int
    at_ms: int = 0
    records: int = 0
    dead_letters: int = 0
    batch_counts: tuple[int, ...] = (0,) * (len(BATCH_BOUNDS_MS) + 1)
    batch_ms: int = 0


_NUMBERS: Final = [field.name for field in fields(JobFigures) if field.name != "batch_counts"]


def encode_job_figures(figures: JobFigures) -> dict[str, str]:
    """Return the figures as metadata of a commit."""
    return {JOB_FIGURES_KEY: orjson.dumps(asdict(figures)).decode()}


def decode_job_figures(metadata: Mapping[str, Any]) -> JobFigures | None:
    """Inverse of ``encode_job_figures``; None if a commit has no figures, or those of an unknown release."""
    try:
        found = orjson.loads(metadata[JOB_FIGURES_KEY])
        counts = tuple(int(count) for count in found["batch_counts"])
        if len(counts) != len(BATCH_BOUNDS_MS) + 1:
            return None
        return JobFigures(batch_counts=counts, **{name: int(found[name]) for name in _NUMBERS})
    except (KeyError, TypeError, ValueError):
        return None


logger = logging.getLogger(__name__)

#: Kinds of rows that are logged.
LOGGED_KINDS: Final = frozenset({ChangeKind.GUARD, ChangeKind.SETTING})


def log_commit(changes: Iterable[RouteChange]) -> None:
    """Log which brokers are held or released, and which settings changed, in one commit.

    Args:
        changes: Rows in log order within each partition. Rows of other kinds are ignored.
    """
    rows = [row for row in changes if row.kind in LOGGED_KINDS]
    held, released = defaultdict[str, list[RouteChange]](list), defaultdict[str, list[RouteChange]](list)
    for row in rows:
        if row.kind == ChangeKind.GUARD:
            (released if row.gone else held)[row.cluster or ""].append(row)
    for cluster, of_cluster in sorted(held.items()):
        # A held broker gets a further row whenever more brokers of its cluster seem to fail.
        fresh = [row for row in of_cluster if decode_hold(row.value or "").since_ms == row.at_ms]
        if fresh:
            hold = decode_hold(fresh[-1].value or "")
            _log_held(cluster, len({_process(row) for row in fresh}), hold, fresh[-1].detail or hold.reason)
    for cluster, of_cluster in sorted(released.items()):
        last_cause = {_process(row): str(row.cause) for row in of_cluster}
        logger.info(
            "brokers no longer held cluster=%s brokers=%d causes=%s detail=%s",
            safe(cluster),
            len(last_cause),
            ",".join(f"{cause}:{count}" for cause, count in sorted(Counter(last_cause.values()).items())),
            safe(of_cluster[-1].detail or ""),
        )
    for change in setting_changes(rows):
        where = ",".join(f"{partition}:{offset}" for partition, offset in sorted(change.partitions.items()))
        logger.info(
            "setting changed setting=%s old=%s new=%s by=%s at=%s",
            *(safe(text) for text in (change.name, change.old or "", change.new, change.source)),
            where,
        )


def log_held(held: Mapping[LeaseKey, Hold]) -> None:
    """Log the held brokers of a table that was just opened."""
    for cluster, count in sorted(Counter(key.live_key.cluster for key in held).items()):
        hold = max((hold for key, hold in held.items() if key.live_key.cluster == cluster), key=lambda h: h.since_ms)
        _log_held(cluster, count, hold, f"{hold.ending} of {hold.brokers} brokers seemed to end at once: {hold.reason}")


def _log_held(cluster: str, count: int, hold: Hold, reason: str) -> None:
    until = datetime.fromtimestamp(hold.until_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    logger.warning("brokers held cluster=%s brokers=%d until=%s reason=%s", safe(cluster), count, until, safe(reason))


def _process(row: RouteChange) -> tuple[str | None, str | None]:
    return row.broker_name, row.broker_addr
