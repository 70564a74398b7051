"""How the server is, in parts, each with a reason that a person can act on.

``failed`` is said of what keeps the server from doing its work at all, and makes it not ready; ``degraded`` of what it
lives through: it goes on answering, and taking it out of service would not help. In particular a Kafka
that is lost while the server runs: all servers lose it at the same time, and clients need their routes all the same.
"""

from collections.abc import Iterable
from typing import Final, Literal

from namesrv_stream.plurals import counted
from namesrv_stream.server.gateway import GatewayStatus
from namesrv_stream.server.http.answers import PartHealth
from namesrv_stream.server.native.lane import LaneStatus
from namesrv_stream.server.table_figures import TableStatus

State = Literal["ok", "degraded", "failed"]
_COLOURS = {"ok": "green", "degraded": "yellow", "failed": "red"}
#: A record that the job refused makes its part yellow for so long; it stays counted, and in the dead-letter topic.
REFUSED_SHOWN_MS: Final = 900_000
_ORDER: tuple[State, ...] = ("ok", "degraded", "failed")


def health(
    gateway: GatewayStatus,
    tables: TableStatus,
    native_lane: LaneStatus,
    *,
    held_brokers: int,
    stale_after_ms: int,
    now_ms: int,
) -> tuple[PartHealth, ...]:
    """The parts, in the order in which a person would look at them."""
    return (
        _server(gateway),
        _kafka(gateway),
        _tables(tables, stale_after_ms),
        _job(tables, now_ms),
        _guard(held_brokers),
        _native_lane(native_lane),
    )


def worst(parts: Iterable[PartHealth]) -> State:
    """The state of the whole."""
    return max((part.state for part in parts), key=_ORDER.index)


def colour(parts: Iterable[PartHealth]) -> str:
    """The same as green, yellow or red."""
    return _COLOURS[worst(parts)]


def as_text(parts: Iterable[PartHealth]) -> str:
    """A line a part, for people and for the logs of probes."""
    marks = {"ok": "[+]", "degraded": "[~]", "failed": "[-]"}
    texts = ((part, part.reason or part.detail) for part in parts)
    return "".join(f"{marks[p.state]} {p.name} {p.state}{f': {text}' if text else ''}\n" for p, text in texts)


def _part(
    name: str, state: State, reason: str | None = None, since_ms: int | None = None, detail: str | None = None
) -> PartHealth:
    return PartHealth(name=name, state=state, reason=reason, since_ms=since_ms, detail=detail)


def _server(gateway: GatewayStatus) -> PartHealth:
    if gateway.is_stopping:
        return _part("server", "failed", "it is stopping")
    if gateway.is_talking and gateway.is_blind:
        text = "it stood still, or Kafka is slow: closed connections end no broker for the moment"
        return _part("server", "degraded", text)
    return _part("server", "ok")


def _kafka(gateway: GatewayStatus) -> PartHealth:
    if gateway.is_talking:
        return _part("kafka", "ok", since_ms=gateway.since_ms)
    if not gateway.has_started:
        text = f"Kafka has not taken records since this server's start: {gateway.reason}"
        return _part("kafka", "failed", text, gateway.since_ms)
    of_which, nobody = "", "nobody expires"
    if len(gateway.away) < gateway.partitions:
        of_which, nobody = f" of partitions {', '.join(map(str, gateway.away))}", "none of their brokers expires"
    text = (
        f"Kafka takes no records{of_which}: {gateway.reason}; queries go on from memory, {nobody}, "
        f"registrations wait, operators' changes are refused"
    )
    return _part("kafka", "degraded", text, gateway.since_ms)


def _tables(tables: TableStatus, stale_after_ms: int) -> PartHealth:
    if failure := tables.failure():
        return _part("tables", "degraded", f"they cannot be read: {failure}")
    if tables.version < 0:
        return _part(
            "tables", "degraded", "there are none yet: the job has not made them; this server knows its own brokers"
        )
    if tables.age_ms > stale_after_ms:
        text = (
            f"no commit of the job for {tables.age_ms / 1000:.0f} s: routes are as of then, and what came in here since"
        )
        return _part("tables", "degraded", text)
    return _part("tables", "ok")


def _job(tables: TableStatus, now_ms: int) -> PartHealth:
    job, refused_at_ms = tables.job, tables.refused_at_ms
    if job is not None and refused_at_ms is not None and now_ms - refused_at_ms < REFUSED_SHOWN_MS:
        text = (
            f"it refused {counted(job.dead_letters, 'record or item', 'records or items')} since its start, the last "
            f"within {REFUSED_SHOWN_MS // 60_000} minutes: `namesrv-stream dead-letters` lists them"
        )
        return _part("job", "degraded", text, refused_at_ms)
    return _part("job", "ok", since_ms=job.started_ms if job else None)


def _guard(held_brokers: int) -> PartHealth:
    if held_brokers:
        return _part("guard", "degraded", f"it holds {held_brokers} brokers that seem to have ended: `guard list`")
    return _part("guard", "ok")


def _native_lane(status: LaneStatus) -> PartHealth:
    if status.is_fault:
        return _part("native_lane", "degraded", f"{status.text}; Python answers all route queries, more slowly")
    return _part("native_lane", "ok", detail=status.text)
