"""The top of the page: one sentence of truth, the counts, and each cluster."""

from collections.abc import Sequence
from typing import Any, Final

from namesrv_stream.instants import duration
from namesrv_stream.plurals import counted, plural
from namesrv_stream.server.http.answers import PartHealth
from namesrv_stream.server.http.console.fleet_snapshot import LIVE, FleetSnapshot
from namesrv_stream.server.http.console.pipeline import TONES
from namesrv_stream.server.http.console.question import Tone
from namesrv_stream.server.http.health import worst
from namesrv_stream.server.server_figures import ServerFigures

_MOST_CLUSTERS: Final = 12
_BAR: Final = ("alive", "unknown", "late", "held", "gone", "replaced", "left")


def summary(figures: ServerFigures, fleet: FleetSnapshot, parts: Sequence[PartHealth]) -> dict[str, Any]:
    """What the template ``summary`` shows."""
    state, attention = worst(parts), fleet.count("gone", "late")
    names = sorted({cluster for cluster, _ in fleet.counts}, key=lambda name: (*_urgency(fleet, name), name))
    return {
        "tone": "warn" if state == "ok" and attention else TONES[state],
        "verdict": _verdict(state, attention),
        "sentence": _sentence(figures, fleet, names),
        "reasons": [part.reason for part in parts if part.reason],
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


def _sentence(figures: ServerFigures, fleet: FleetSnapshot, clusters: Sequence[str]) -> str:
    tables, view = figures.tables, figures.view
    live_clusters = sum(fleet.count_in(name, *LIVE) > 0 for name in clusters)
    known = f"{counted(fleet.count(*LIVE), 'broker')} in {counted(live_clusters, 'cluster')}"
    if tables.version < 0:
        return f"There are no tables yet: this server knows {known} by itself."
    offsets = " ".join(f"{partition}:{offset:,}" for partition, offset in sorted(view.next_offsets.items())[:8])
    if len(view.next_offsets) > 8:
        offsets += f" and {len(view.next_offsets) - 8} more"
    pending = view.pending_count
    own = f" and {counted(pending, 'event')} of its own that the job has not folded" if pending else ""
    return (
        f"Serving {known} and {view.table.topic_count:,} topics: table version {tables.version:,}, "
        f"{duration(tables.age_ms)} old, up to Kafka offset {offsets}{own}."
    )


def _tiles(figures: ServerFigures, fleet: FleetSnapshot) -> list[tuple[str, int, str, Tone, str]]:
    """Label, figure, note, tone, and the state that the brokers' list is asked for."""
    late, held, gone, unknown = (fleet.count(status) for status in ("late", "held", "gone", "unknown"))
    alive, left = fleet.count("alive", "late", "unknown"), fleet.count("left", "replaced")
    heard = f"{unknown:,} not heard by this server" if unknown else "all heard by this server"
    return [
        ("alive", alive, heard if alive else "no broker has registered", "good" if alive else "calm", ""),
        ("late", late, "older than half their timeout", "warn" if late else "calm", "late"),
        ("protected", held, "kept by the mass-expiry guard", "warn" if held else "calm", "held"),
        ("down", gone, "in the last day, without unregistering", "bad" if gone else "calm", "ended"),
        ("unregistered", left, "in the last day, or replaced", "calm", "ended"),
        ("topics", figures.view.table.topic_count, f"{len(figures.connections):,} connections", "calm", ""),
    ]


def _urgency(fleet: FleetSnapshot, cluster: str) -> tuple[int, int]:
    """Those with the most brokers that need attention first, then by size."""
    return -fleet.count_in(cluster, "held", "late", "gone"), -fleet.count_in(cluster, "alive", "unknown")


def _cluster(fleet: FleetSnapshot, name: str) -> dict[str, Any]:
    """A cluster; its ``parts`` are status, count, begin and length in percent."""
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
