"""The pipeline: each part with its reason, and how far and how fast it is."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration
from namesrv_stream.server.http.answers import PartHealth
from namesrv_stream.server.http.console.question import Tone
from namesrv_stream.server.http.console.words import clock_time
from namesrv_stream.server.server_figures import ServerFigures
from namesrv_stream.tables.job_figures import BATCH_BOUNDS_MS, JobFigures

_MEANING: Final = {
    "server": "answers brokers and clients",
    "kafka": "takes every event",
    "tables": "are what the job has folded",
    "job": "folds events into routes",
    "guard": "keeps brokers when too many seem to end at once",
}
_TONES: Final[dict[str, Tone]] = {"ok": "good", "degraded": "warn", "failed": "bad"}


class Figure(NamedTuple):
    """One figure; ``note`` says what it is good for."""

    label: str
    value: str
    note: str
    tone: Tone = "calm"


def pipeline(figures: ServerFigures, parts: Sequence[PartHealth], clock: Clock) -> dict[str, Any]:
    """What the template ``pipeline`` shows."""
    return {
        "parts": [
            {
                "name": part.name,
                "state": part.state,
                "tone": _TONES[part.state],
                "text": part.reason or _MEANING.get(part.name, ""),
                "since": "" if part.since_ms is None else clock_time(part.since_ms),
            }
            for part in parts
        ],
        "figures": _figures(figures, parts, clock),
    }


def _figures(figures: ServerFigures, parts: Sequence[PartHealth], clock: Clock) -> list[Figure]:
    gateway, tables = figures.gateway.status, figures.tables
    job, lag_ms = tables.job, tables.lag_ms
    found = [
        Figure(
            "snapshot",
            duration(tables.age_ms) if tables.version >= 0 else "none",
            f"version {tables.version:,}; the job commits each second",
            "warn" if tables.age_ms > 10_000 else "calm",
        ),
        Figure(
            "event lag",
            "unknown" if lag_ms is None else duration(lag_ms),
            "age of the newest folded record, by Kafka's stamp",
            "warn" if lag_ms is not None and lag_ms > 10_000 else "calm",
        ),
        Figure(
            "waiting for Kafka",
            f"{gateway.queued_records:,}",
            f"records; the oldest for {duration(gateway.oldest_age_ms)}",
            "warn" if gateway.oldest_age_ms > 2_000 else "calm",
        ),
        Figure("not folded yet", f"{figures.view.pending_count:,}", "events that this server accepted"),
        Figure(
            "to tell Kafka",
            f"{gateway.unpublished_brokers + gateway.unpublished_changes:,}",
            f"facts kept while it was away; it was lost {gateway.lost_sessions:,} times",
            "warn" if gateway.unpublished_brokers + gateway.unpublished_changes else "calm",
        ),
    ]
    if job is None:
        return [*found, Figure("job", "unknown", "it has committed nothing since this server's start", "warn")]
    refused: Tone = next((_TONES[part.state] for part in parts if part.name == "job" and part.reason), "calm")
    return [*found, *_job_figures(job, refused, clock.now_ms())]


def _job_figures(job: JobFigures, refused: Tone, now_ms: int) -> list[Figure]:
    batches = sum(job.batch_counts)
    mean = f"mean {duration(job.batch_ms / batches)} of {batches:,} batches" if batches else "no batch is done yet"
    return [
        Figure("batch", _quantile(job.batch_counts, 0.99), f"99 of 100 take less; {mean}"),
        Figure("records folded", f"{job.records:,}", f"since the job's start {_hours(now_ms - job.started_ms)} ago"),
        Figure("dead letters", f"{job.dead_letters:,}", "records that the job refused, since its start", refused),
    ]


def _hours(ms: int) -> str:
    return duration(max(0, ms))


def _quantile(counts: Sequence[int], share: float) -> str:
    """The bound below which so many of the batches took."""
    total = sum(counts)
    if not total:
        return "unknown"
    bounds = [f"≤ {duration(bound)}" for bound in BATCH_BOUNDS_MS] + [f"> {duration(BATCH_BOUNDS_MS[-1])}"]
    return next(b for b, count in zip(bounds, accumulate(counts), strict=True) if count >= share * total)
