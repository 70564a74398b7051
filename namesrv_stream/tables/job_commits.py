"""What the job records in each commit of ``route_changes``: its own figures, and when it committed which offsets.

The figures are in the commit's metadata (ADR 0022). They cover all batches before the committed one since the start of
the job, so they are counters that only rise until the job is restarted.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import orjson

from namesrv_stream.tables.delta.commit import commit_versions, read_commit
from namesrv_stream.tables.schema.layout import TOPIC_ID_PROPERTY, app_id, partition_of_app_id

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
    """Return the job's commits since a time and the one before, by time; blocks.

    Delta's log keeps commits for a day only.

    Args:
        table: ``route_changes``.
        after_ms: Epoch milliseconds.

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
        at_ms: LogAppendTime of the newest folded record in the partition that is most behind, epoch milliseconds.
        records: Number of records folded since the start.
        dead_letters: Number of dead letters since the start.
        batch_counts: Micro-batches by duration; one count per bound of ``BATCH_BOUNDS_MS``, and one above the last.
        batch_ms: Total duration of the micro-batches, from Spark's call to the end of the commit.
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
