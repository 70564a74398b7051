"""The pipeline: each part with its reason, and how far and how fast it is."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration
from namesrv_stream.server.http.answers import PartHealth
from namesrv_stream.server.http.console.question import Tone
from namesrv_stream.server.server_figures import ServerFigures
from namesrv_stream.tables.job_figures import BATCH_BOUNDS_MS, JobFigures

_MEANING: Final = {
    "server": "answers brokers and clients",
    "kafka": "takes every event",
    "tables": "are what the job has folded",
    "job": "folds events into routes",
    "guard": "keeps brokers when too many seem to end at once",
}
TONES: Final[dict[str, Tone]] = {"ok": "good", "degraded": "warn", "failed": "bad"}


def pipeline(figures: ServerFigures, parts: Sequence[PartHealth], clock: Clock) -> dict[str, Any]:
    """What the template ``pipeline`` shows."""
    refused: Tone = next((TONES[part.state] for part in parts if part.name == "job" and part.reason), "calm")
    return {
        "parts": [
            (part, TONES[part.state], part.reason or part.detail or _MEANING.get(part.name, "")) for part in parts
        ],
        "figures": [*_own_figures(figures), *_job_figures(figures.tables.job, refused, clock.now_ms())],
    }


def _figure(label: str, value: object, note: str, *, warn: bool = False) -> dict[str, Any]:
    shown = f"{value:,}" if isinstance(value, int) else value
    return {"label": label, "value": shown, "note": note, "tone": "warn" if warn else "calm"}


def _own_figures(figures: ServerFigures) -> list[dict[str, Any]]:
    gateway, tables = figures.gateway.status, figures.tables
    lag_ms, unpublished = tables.lag_ms, gateway.unpublished_brokers + gateway.unpublished_changes
    return [
        _figure(
            "snapshot",
            duration(tables.age_ms) if tables.version >= 0 else "none",
            f"version {tables.version:,}; the job commits each second",
            warn=tables.age_ms > 10_000,
        ),
        _figure(
            "event lag",
            "unknown" if lag_ms is None else duration(lag_ms),
            "age of the newest folded record, by Kafka's stamp",
            warn=lag_ms is not None and lag_ms > 10_000,
        ),
        _figure(
            "publish queue",
            gateway.queued_records,
            f"records that wait for Kafka; the oldest for {duration(gateway.oldest_age_ms)}",
            warn=gateway.oldest_age_ms > 2_000,
        ),
        _figure("not folded yet", figures.view.pending_count, "events that this server accepted"),
        _figure(
            "unpublished events",
            unpublished,
            f"kept while Kafka was away; it was lost {gateway.lost_sessions:,} times",
            warn=unpublished > 0,
        ),
    ]


def _job_figures(job: JobFigures | None, refused: Tone, now_ms: int) -> list[dict[str, Any]]:
    if job is None:
        return [_figure("job", "unknown", "it has committed nothing since this server's start", warn=True)]
    batches, age = sum(job.batch_counts), duration(max(0, now_ms - job.started_ms))
    mean = f"mean {duration(job.batch_ms / batches)} of {batches:,} batches" if batches else "no batch is done yet"
    letters = _figure("dead letters", job.dead_letters, "records that the job refused, since its start")
    return [
        _figure("batch", _quantile(job.batch_counts, 0.99), f"99 of 100 take less; {mean}"),
        _figure("records folded", job.records, f"since the job's start {age} ago"),
        letters | {"tone": refused},
    ]


def _quantile(counts: Sequence[int], share: float) -> str:
    """The bound below which so many of the batches took."""
    total = sum(counts)
    if not total:
        return "unknown"
    bounds = [f"≤ {duration(bound)}" for bound in BATCH_BOUNDS_MS] + [f"> {duration(BATCH_BOUNDS_MS[-1])}"]
    return next(b for b, count in zip(bounds, accumulate(counts), strict=True) if count >= share * total)
