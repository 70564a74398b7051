"""The summary at the top of the page (verdict, counts, clusters), and the pipeline with the progress of every part."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration
from namesrv_stream.run_books import with_run_book
from namesrv_stream.server.http.answers import PartHealth
from namesrv_stream.server.http.console.brokers import LIVE, FleetSnapshot
from namesrv_stream.server.http.console.query import Tone
from namesrv_stream.server.http.status_page import has_refused, worst
from namesrv_stream.server.server_metrics import ServerMetrics
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.commit_applier import TableStatus
from namesrv_stream.tables.job_commits import BATCH_BOUNDS_MS
from namesrv_stream.text_table import counted, plural, times

_MEANING: Final = {
    "server": "answers brokers and clients",
    "kafka": "accepts every event",
    "tables": "contain what the job has folded",
    "job": "folds events into routes",
    "guard": "keeps brokers when too many seem to fail at once",
    "address_views": "tell clients of other networks the addresses that they can reach",
}
TONES: Final[dict[str, Tone]] = {"ok": "good", "degraded": "warn", "failed": "bad"}


def pipeline(figures: ServerMetrics, parts: Sequence[PartHealth], clock: Clock) -> dict[str, Any]:
    texts = [(part, TONES[part.state], _text(part)) for part in parts]
    shown = [*_own_figures(figures), *_job_figures(figures.tables, clock.now_ms())]
    return {"parts": texts, "figures": shown}


def _text(part: PartHealth) -> str:
    if part.reason:
        return with_run_book(part.reason, part.run_book)
    return part.detail or _MEANING.get(part.name, "")


def _figure(label: str, value: object, note: str, *, warn: bool = False) -> dict[str, Any]:
    shown = f"{value:,}" if isinstance(value, int) else value
    return {"label": label, "value": shown, "note": note, "tone": "warn" if warn else "calm"}


def _own_figures(figures: ServerMetrics) -> list[dict[str, Any]]:
    gateway, tables = figures.gateway.status, figures.tables
    lag_ms, unpublished = tables.lag_ms, gateway.unpublished_brokers + gateway.unpublished_changes
    age, lag = duration(tables.age_ms), "unknown" if lag_ms is None else duration(lag_ms)
    age = age if tables.has_commit else "unknown" if tables.version >= 0 else "none"
    version = f"version {tables.version:,}; the job commits every second"
    oldest = f"records that wait for Kafka; the oldest for {duration(gateway.oldest_age_ms)}"
    lost = f"kept while Kafka was unavailable; the connection was lost {times(gateway.lost_sessions)}"
    return [
        _figure("snapshot", age, version, warn=tables.age_ms > 10_000),
        _figure("event lag", lag, "age of the newest folded record, by Kafka's clock", warn=(lag_ms or 0) > 10_000),
        _figure("publish queue", gateway.queued_records, oldest, warn=gateway.oldest_age_ms > 2_000),
        _figure("not folded yet", figures.view.pending_count, "events that this server accepted"),
        _figure("unpublished events", unpublished, lost, warn=unpublished > 0),
    ]


def _job_figures(tables: TableStatus, now_ms: int) -> list[dict[str, Any]]:
    job = tables.job
    if job is None:
        return [_figure("job", "unknown", "it has committed nothing since this server's start", warn=True)]
    batches, age = sum(job.batch_counts), duration(max(0, now_ms - job.started_ms))
    mean = f"mean {duration(job.batch_ms / batches)} of {batches:,} batches" if batches else "no batch is done yet"
    refused = "records that the job refused, since its start"
    return [
        _figure("batch", _quantile(job.batch_counts, 0.99), f"99 of 100 take less; {mean}"),
        _figure("records folded", job.records, f"since the job's start {age} ago"),
        _figure("dead letters", job.dead_letters, refused, warn=has_refused(tables, now_ms)),
    ]


def _quantile(counts: Sequence[int], share: float) -> str:
    """Return, as text, an upper bound on the duration that this share of the batches (0 to 1) did not exceed."""
    total = sum(counts)
    if not total:
        return "unknown"
    bounds = [f"≤ {duration(bound)}" for bound in BATCH_BOUNDS_MS] + [f"> {duration(BATCH_BOUNDS_MS[-1])}"]
    return next(b for b, count in zip(bounds, accumulate(counts), strict=True) if count >= share * total)


_MOST_CLUSTERS: Final = 12
_BAR: Final = ("alive", "unknown", "late", "held", "gone", "replaced", "left")


async def summary(
    figures: ServerMetrics, fleet: FleetSnapshot, parts: Sequence[PartHealth], steps: Steps
) -> dict[str, Any]:
    state, attention = worst(parts), fleet.count("gone", "late")
    names = await steps.sorted(fleet.clusters, key=lambda name: (*_urgency(fleet, name), name))
    live_clusters = sum(await steps.all(fleet.count_in(name, *LIVE) > 0 for name in names))
    return {
        "tone": "warn" if state == "ok" and attention else TONES[state],
        "verdict": _verdict(state, attention),
        "sentence": _sentence(figures, fleet, live_clusters),
        "reasons": [with_run_book(part.reason, part.run_book) for part in parts if part.reason],
        "tiles": _tiles(figures, fleet),
        "clusters": [_cluster(fleet, name) for name in names[:_MOST_CLUSTERS]],
        "more_clusters": max(0, len(names) - _MOST_CLUSTERS),
    }


def _verdict(state: str, attention: int) -> str:
    if state == "failed":
        return "Not ready"
    if state == "degraded":
        return "Serving, but something is wrong"
    if attention:
        return f"Serving; {counted(attention, 'broker')} {plural(attention, 'needs', 'need')} attention"
    return "All is well"


def _sentence(figures: ServerMetrics, fleet: FleetSnapshot, live_clusters: int) -> str:
    tables, view = figures.tables, figures.view
    known = f"{counted(fleet.count(*LIVE), 'broker')} in {counted(live_clusters, 'cluster')}"
    if tables.version < 0:
        return f"There are no tables yet: this server itself has heard {known}."
    offsets = " ".join(f"{partition}:{offset:,}" for partition, offset in sorted(view.next_offsets.items())[:8])
    if len(view.next_offsets) > 8:
        offsets += f" and {len(view.next_offsets) - 8} more"
    age = f"{duration(tables.age_ms)} old" if tables.has_commit else "from before this server's start"
    pending = view.pending_count
    own = f" and {counted(pending, 'event')} of its own that the job has not folded" if pending else ""
    return (
        f"Serving {known} and {view.table.topic_count:,} topics: table version {tables.version:,}, "
        f"{age}, up to Kafka offset {offsets}{own}."
    )


def _tiles(figures: ServerMetrics, fleet: FleetSnapshot) -> list[tuple[str, int, str, Tone, str]]:
    """Return the tiles: label, number, note, tone, and the state that their link selects in the list of brokers."""
    late, held, gone, unknown = (fleet.count(status) for status in ("late", "held", "gone", "unknown"))
    alive, left = fleet.count("alive", "late", "unknown"), fleet.count("left", "replaced")
    known = f"{unknown:,} without a heartbeat at this server" if unknown else "all with heartbeats at this server"
    return [
        ("alive", alive, known if alive else "no broker has registered", "good" if alive else "calm", ""),
        ("late", late, "last heartbeat older than half of the timeout", "warn" if late else "calm", "late"),
        ("protected", held, "kept by the mass-expiry guard", "warn" if held else "calm", "held"),
        ("down", gone, "in the last day, without unregistering", "bad" if gone else "calm", "ended"),
        ("unregistered", left, "in the last day, or replaced", "calm", "ended"),
        ("topics", figures.view.table.topic_count, f"{len(figures.connections):,} connections", "calm", ""),
    ]


def _urgency(fleet: FleetSnapshot, cluster: str) -> tuple[int, int]:
    """Return the sort key of a cluster: most brokers that need attention first, then the largest clusters."""
    return -fleet.count_in(cluster, "held", "late", "gone"), -fleet.count_in(cluster, "alive", "unknown")


def _cluster(fleet: FleetSnapshot, name: str) -> dict[str, Any]:
    """Return a cluster's figures. ``parts`` are the segments of its bar: status, count, start and length in percent."""
    counts = {status: fleet.count_in(name, status) for status in _BAR}
    total = sum(counts.values()) or 1
    parts, begin = [], 0.0
    for status, count in counts.items():
        if count:
            parts.append((status, count, begin, 100 * count / total))
            begin += 100 * count / total
    live = sum(counts[status] for status in LIVE)
    tone = "bad" if counts["gone"] else "warn" if counts["held"] or counts["late"] else "good" if live else "calm"
    return {"name": name, "live": live, "parts": parts, "tone": tone}
