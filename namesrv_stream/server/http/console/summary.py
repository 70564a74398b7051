"""The top of the page: one sentence of truth, the counts, and each cluster."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from namesrv_stream.instants import duration
from namesrv_stream.server.http.answers import PartHealth
from namesrv_stream.server.http.console.look import Look
from namesrv_stream.server.http.console.question import Tone
from namesrv_stream.server.http.health import worst
from namesrv_stream.server.server_figures import ServerFigures

_MOST_CLUSTERS: Final = 12
_TONES: Final[Mapping[str, Tone]] = {"ok": "good", "degraded": "warn", "failed": "bad"}


class Tile(NamedTuple):
    """One figure that is shown large; ``state`` is what the brokers' list is asked for."""

    label: str
    value: str
    note: str
    tone: Tone
    state: str


class Cluster(NamedTuple):
    """How a cluster's brokers are; ``parts`` are (standing, count, begin and length in percent)."""

    name: str
    live: int
    parts: Sequence[tuple[str, int, float, float]]
    tone: Tone


def summary(figures: ServerFigures, look: Look, parts: Sequence[PartHealth]) -> dict[str, Any]:
    """What the template ``summary`` shows."""
    state = worst(parts)
    gone, late, held = look.count("gone"), look.count("late"), look.count("held")
    tone = _TONES[state]
    if tone == "good" and (late or gone):
        tone = "warn"
    names = sorted({cluster for cluster, _ in look.counts}, key=lambda name: (-_urgency(look, name), name))
    return {
        "tone": tone,
        "verdict": _verdict(state, late, gone),
        "sentence": _sentence(figures, look, names),
        "reasons": [part.reason for part in parts if part.reason],
        "tiles": _tiles(figures, look, late, held, gone),
        "clusters": [_cluster(look, name) for name in names[:_MOST_CLUSTERS]],
        "more_clusters": max(0, len(names) - _MOST_CLUSTERS),
    }


def _verdict(state: str, late: int, gone: int) -> str:
    if state == "failed":
        return "Not ready"
    if state == "degraded":
        return "It works, but something is wrong"
    if late or gone:
        return "It works; some brokers want a look"
    return "All is well"


def _sentence(figures: ServerFigures, look: Look, clusters: Sequence[str]) -> str:
    tables, view = figures.tables, figures.view
    alive = look.count("alive", "late", "unknown", "held")
    told = f"{alive:,} broker{'s' * (alive != 1)} in {_clusters(look, clusters)}"
    if tables.version < 0:
        return f"There are no tables yet: this server knows {told} by itself."
    offsets = " ".join(f"{partition}:{offset:,}" for partition, offset in sorted(view.next_offsets.items())[:8])
    if len(view.next_offsets) > 8:
        offsets += f" and {len(view.next_offsets) - 8} more"
    pending = view.pending_count
    own = f" and {pending:,} event{'s' * (pending != 1)} of its own that the job has not folded" if pending else ""
    return (
        f"Serving {told} and {view.table.topic_count:,} topics: table version {tables.version:,}, "
        f"{duration(tables.age_ms)} old, up to Kafka offset {offsets}{own}."
    )


def _clusters(look: Look, names: Sequence[str]) -> str:
    count = sum(any(look.counts[name, how] for how in ("alive", "late", "unknown", "held")) for name in names)
    return f"{count:,} cluster{'s' * (count != 1)}"


def _tiles(figures: ServerFigures, look: Look, late: int, held: int, gone: int) -> list[Tile]:
    alive, unknown, left = look.count("alive", "late", "unknown"), look.count("unknown"), look.count("left", "replaced")
    heard = f"{unknown:,} not heard by this server" if unknown else "all heard by this server"
    return [
        Tile("alive", f"{alive:,}", heard if alive else "no broker has registered", "good" if alive else "calm", ""),
        Tile("late", f"{late:,}", "older than half their timeout", "warn" if late else "calm", "late"),
        Tile("held", f"{held:,}", "kept by the mass-expiry guard", "warn" if held else "calm", "held"),
        Tile("gone", f"{gone:,}", "in the last day, without a goodbye", "bad" if gone else "calm", "ended"),
        Tile("left", f"{left:,}", "in the last day, with a goodbye or replaced", "calm", "ended"),
        Tile("topics", f"{figures.view.table.topic_count:,}", f"{len(figures.connections):,} connections", "calm", ""),
    ]


def _urgency(look: Look, cluster: str) -> int:
    """By what a person would look at first: how many want a look, then size."""
    wanting = sum(look.counts[cluster, how] for how in ("held", "late", "gone"))
    return wanting * 1_000_000 + sum(look.counts[cluster, how] for how in ("alive", "unknown"))


def _cluster(look: Look, name: str) -> Cluster:
    counts = {how: look.counts[name, how] for how in ("alive", "unknown", "late", "held", "gone", "replaced", "left")}
    total = sum(counts.values()) or 1
    parts, begin = [], 0.0
    for how, count in counts.items():
        if count:
            parts.append((how, count, begin, 100 * count / total))
            begin += 100 * count / total
    live = sum(counts[how] for how in ("alive", "unknown", "late", "held"))
    tone: Tone = "bad" if counts["gone"] else "warn" if counts["held"] or counts["late"] else "good" if live else "calm"
    return Cluster(name, live, parts, tone)
