"""What the job says of itself with each commit of ``route_changes``, in the commit's own metadata (ADR 0022).

The figures are of all batches before the one that is committed, since the job's start: counters that only rise until
the job is started again.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import orjson

#: Key of the commit's metadata.
JOB_FIGURES_KEY: Final = "namesrv_stream.job"

#: Upper bounds of ``batch_counts``, milliseconds.
BATCH_BOUNDS_MS: Final = (50, 100, 200, 350, 500, 750, 1_000, 2_000, 5_000, 10_000, 30_000)


@dataclass(frozen=True, slots=True)
class JobFigures:
    """One moment of a job.

    Attributes:
        started_ms: When it was started, epoch milliseconds.
        at_ms: LogAppendTime of the newest record that is folded, of the partition that is most behind.
        records: Folded so far.
        dead_letters: Sent so far.
        batch_counts: Micro-batches by ``BATCH_BOUNDS_MS``, those above the last bound at the end.
        batch_ms: Time that they took in all, from Spark's call to the end of the commit.
    """

    started_ms: int
    at_ms: int = 0
    records: int = 0
    dead_letters: int = 0
    batch_counts: tuple[int, ...] = (0,) * (len(BATCH_BOUNDS_MS) + 1)
    batch_ms: int = 0


_NUMBERS: Final = [field.name for field in fields(JobFigures) if field.name != "batch_counts"]


def encode_job_figures(figures: JobFigures) -> dict[str, str]:
    """As metadata of a commit."""
    return {JOB_FIGURES_KEY: orjson.dumps(asdict(figures)).decode()}


def decode_job_figures(metadata: Mapping[str, Any]) -> JobFigures | None:
    """Inverse of ``encode_job_figures``; None where a commit has none, or those of a release that we do not know."""
    try:
        found = orjson.loads(metadata[JOB_FIGURES_KEY])
        counts = tuple(int(count) for count in found["batch_counts"])
        if len(counts) != len(BATCH_BOUNDS_MS) + 1:
            return None
        return JobFigures(batch_counts=counts, **{name: int(found[name]) for name in _NUMBERS})
    except (KeyError, TypeError, ValueError):
        return None
