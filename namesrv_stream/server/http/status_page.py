"""Status of the server: ``/healthz``, ``/readyz``, ``/metrics``, and ``/state`` (for ``namesrv-stream skew``).

Health has parts, each with a reason that an operator can act on. ``failed`` means that the server cannot work at all,
so it is not ready. ``degraded`` means that the server still answers, and that taking it out of service would not help.
An outage of Kafka while the server runs is ``degraded``: it affects all servers at the same time, and clients still
need their routes.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from namesrv_stream.client.server_states import PartitionParts, PartRows, ServerState
from namesrv_stream.clock import Clock
from namesrv_stream.metrics import CONTENT_TYPE
from namesrv_stream.route.digest import Part
from namesrv_stream.run_books import RunBook, with_run_book
from namesrv_stream.server.gateway.gateway import GatewayStatus
from namesrv_stream.server.http.answers import Health, PartHealth, Problem, Readiness
from namesrv_stream.server.http.operation import JSON, Query, answers
from namesrv_stream.server.server_metrics import ServerMetrics
from namesrv_stream.server.steps import Kept
from namesrv_stream.server.view.client_views import UnmappedAddresses
from namesrv_stream.server.view.commit_applier import TableStatus
from namesrv_stream.server.view.served_state import ServedState
from namesrv_stream.text_table import counted

State = Literal["ok", "degraded", "failed"]
_COLOURS = {"ok": "green", "degraded": "yellow", "failed": "red"}
#: The job's part is ``degraded`` for this time after a refused record, which stays in the dead-letter topic.
REFUSED_SHOWN_MS: Final = 900_000
#: The server's part is ``degraded`` for this time after a start that followed a hang.
_HANG_SHOWN_MS: Final = 600_000
_ORDER: tuple[State, ...] = ("ok", "degraded", "failed")


def worst(parts: Iterable[PartHealth]) -> State:
    """Return the worst state of the parts, which is the server's state."""
    return max((part.state for part in parts), key=_ORDER.index)


def as_text(parts: Iterable[PartHealth]) -> str:
    """Return one line per part, for people and for the logs of probes."""
    marks = {"ok": "[+]", "degraded": "[~]", "failed": "[-]"}
    texts = ((part, with_run_book(part.reason, part.run_book) if part.reason else part.detail) for part in parts)
    return "".join(f"{marks[p.state]} {p.name} {p.state}{f': {text}' if text else ''}\n" for p, text in texts)


def _part(
    name: str,
    state: State,
    reason: str | None = None,
    run_book: RunBook | None = None,
    since_ms: int | None = None,
    detail: str | None = None,
) -> PartHealth:
    return PartHealth(name=name, state=state, reason=reason, run_book=run_book, since_ms=since_ms, detail=detail)


def _server(gateway: GatewayStatus, recent_hangs: int, started_ms: int) -> PartHealth:
    if gateway.is_stopping:
        return _part("server", "failed", "it is stopping", RunBook.STOPPING)
    if gateway.is_connected and gateway.is_blind:
        text = "it was stalled, or Kafka is slow: closed connections remove no broker at the moment"
        return _part("server", "degraded", text, RunBook.EVENT_LOOP_STALLS)
    if recent_hangs:
        text = f"it hung, was killed and started again ({counted(recent_hangs, 'time')} so far)"
        return _part("server", "degraded", text, RunBook.SERVER_HANGS, started_ms)
    return _part("server", "ok")


def _kafka(gateway: GatewayStatus) -> PartHealth:
    if gateway.is_connected:
        return _part("kafka", "ok", since_ms=gateway.since_ms)
    if not gateway.has_started:
        text = f"Kafka has accepted no records since this server's start: {gateway.reason}"
        return _part("kafka", "failed", text, RunBook.KAFKA_DOWN, gateway.since_ms)
    of_which, expiry = "", "no broker expires"
    if len(gateway.away) < gateway.partitions:
        of_which, expiry = f" of partitions {', '.join(map(str, gateway.away))}", "none of their brokers expires"
    text = (
        f"Kafka accepts no records{of_which}: {gateway.reason}; queries are answered from memory, {expiry}, "
        f"registrations wait, operators' changes are refused"
    )
    return _part("kafka", "degraded", text, RunBook.KAFKA_DOWN, gateway.since_ms)


def _tables(tables: TableStatus) -> PartHealth:
    if failure := tables.failure():
        return _part("tables", "degraded", f"answers come from memory: {failure}", RunBook.TABLES_UNREADABLE)
    if tables.missed_in:
        text = f"the log shows that the job has committed, but {tables.missed_in} contains no tables: check data.tables"
        text += " (without it, data.dir); this server knows its own brokers only"
        return _part("tables", "failed", text, RunBook.SERVER_BEHIND)
    if tables.version < 0:
        text = "there are none yet: the job has not created them; this server knows its own brokers"
        return _part("tables", "degraded", text, RunBook.JOB_DOWN)
    if tables.has_commit and not tables.is_stale:
        return _part("tables", "ok")
    text = f"no commit of the job {_silence(tables)}: routes {'have that age' if tables.has_commit else 'are older'}"
    return _part("tables", "degraded", f"{text}, except for what this server has received since", RunBook.JOB_DOWN)


def _silence(tables: TableStatus) -> str:
    age = f"{tables.age_ms / 1000:.0f} s"
    return f"for {age}" if tables.has_commit else f"since this server's start, for {age} (it may still be starting)"


def has_refused(tables: TableStatus, now_ms: int) -> bool:
    """Return whether the job has refused a record in the last ``REFUSED_SHOWN_MS``."""
    return tables.refused_at_ms is not None and now_ms - tables.refused_at_ms < REFUSED_SHOWN_MS


def _job(tables: TableStatus, now_ms: int) -> PartHealth:
    job, refused_at_ms = tables.job, tables.refused_at_ms
    is_known = not (tables.failure() or tables.missed_in)  # otherwise the tables say nothing about the job
    if is_known and (tables.is_stale or not tables.has_commit):
        text = f"no commit {_silence(tables)}: no broker expires"
        return _part("job", "degraded", text, RunBook.JOB_DOWN, now_ms - tables.age_ms)
    if job is not None and has_refused(tables, now_ms):
        text = (
            f"it refused a record within the last {REFUSED_SHOWN_MS // 60_000} minutes, and "
            f"{counted(job.dead_letters, 'record or item', 'records or items')} since its start: "
            f"`namesrv-stream dead-letters` lists them"
        )
        return _part("job", "degraded", text, RunBook.DEAD_LETTERS, refused_at_ms)
    refusals_end_ms = 0 if refused_at_ms is None else refused_at_ms + REFUSED_SHOWN_MS
    return _part("job", "ok", since_ms=max(job.started_ms, tables.resumed_ms, refusals_end_ms) if job else None)


def _address_views(unmapped: UnmappedAddresses) -> list[PartHealth]:
    """Return the health of the address views as one part; an empty list if the server has no views."""
    if not unmapped.is_relevant:
        return []
    reasons = "; ".join(unmapped.reasons())
    if not reasons:
        return [_part("address_views", "ok")]
    return [_part("address_views", "degraded", reasons, RunBook.ADDRESSES_UNMAPPED)]


_TEXT = ("text/plain", None)


class FormatQuery(Query):
    format: Literal["text", "json"] | None = Field(None, description="`text` for lines.", examples=["text"])


class PartitionQuery(Query):
    partition: int = Field(ge=0, le=1_023, description="Kafka partition.", examples=[0])


class PartQuery(PartitionQuery):
    kind: Literal["broker", "kv", "settings", "servers", "guard"] = Field(description="Kind of part.", examples=["kv"])
    name: str = Field("", description="Broker name or namespace.", examples=["broker-a"])


class StatusPage:
    """The endpoints for health, metrics and state. Only one event loop may use it."""

    def __init__(self, figures: ServerMetrics, state: ServedState, clock: Clock) -> None:
        self._figures = figures
        self._state = state
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._metrics: Kept[None, bytes] = Kept(0, clock)

    @answers("/healthz", (JSON, Health), _TEXT, load="vital")
    async def healthz(self, request: Request, query: FormatQuery) -> Response:
        """Return the server's health, by part; the status is 200 whenever the server answers."""
        parts = self.parts()
        if _wants_text(request, query):
            return PlainTextResponse(f"{_COLOURS[worst(parts)]}\n{as_text(parts)}")
        return _json(Health(**self._health(parts)))

    @answers("/readyz", (JSON, Readiness), _TEXT, statuses=(200, 503), load="vital")
    async def readyz(self, request: Request, query: FormatQuery) -> Response:
        """Return whether brokers can register and clients can query routes, with the reasons if not."""
        parts = self.parts()
        is_ready = worst(parts) != "failed"
        status = 200 if is_ready else 503
        if _wants_text(request, query):
            return PlainTextResponse(f"{'ready' if is_ready else 'not ready'}\n{as_text(parts)}", status)
        reasons = [f"{part.name}: {part.reason}" for part in parts if part.reason]
        return _json(Readiness(ready=is_ready, reasons=reasons, **self._health(parts)), status)

    @answers("/metrics", _TEXT, load="vital")
    async def metrics(self, _: Request) -> Response:
        """Return metrics in Prometheus' text format 0.0.4."""
        return Response(await self._metrics.get(None, self._figures.text), media_type=CONTENT_TYPE)

    @answers("/state", (JSON, ServerState))
    async def state(self, _: Request) -> Response:
        """Return a summary of the served state, for the comparison of servers."""
        return Response(orjson.dumps(await self._state.describe(), option=orjson.OPT_NON_STR_KEYS), media_type=JSON)

    @answers("/state/keys", (JSON, PartitionParts))
    async def keys(self, _: Request, query: PartitionQuery) -> Response:
        """Return the digest of every broker name, KV namespace and other part of a partition's state."""
        return Response(orjson.dumps(await self._state.keys(self._partition(query))), media_type=JSON)

    @answers("/state/rows", (JSON, PartRows))
    async def rows(self, _: Request, query: PartQuery) -> Response:
        """Return the rows of one part of a partition's state, for example of a broker name."""
        rows = await self._state.rows(Part(self._partition(query), query.kind, query.name))
        return Response(rows, media_type=JSON)

    def parts(self) -> Sequence[PartHealth]:
        """Return the health of all parts of the server, in the order in which an operator would check them."""
        figures, gateway, tables = self._figures, self._figures.gateway.status, self._figures.tables
        held, native_lane = len(figures.view.table.held), figures.native_lane
        guard, lane = _part("guard", "ok"), _part("native_lane", "ok", detail=native_lane.text)
        if held:
            text = f"it holds {counted(held, 'broker')} that appear to be dead: see `namesrv-stream guard list`"
            guard = _part("guard", "degraded", text, RunBook.BROKERS_HELD)
        if native_lane.is_fault:
            lane = _part("native_lane", "degraded", native_lane.text, RunBook.NATIVE_LANE)
        others = [guard, *_address_views(figures.unmapped), lane]
        now_ms = self._clock.now_ms()
        hangs = figures.hang_restarts if now_ms - self._started_ms < _HANG_SHOWN_MS else 0
        server = _server(gateway, hangs, self._started_ms)
        return [server, _kafka(gateway), _tables(tables), _job(tables, now_ms), *others]

    def _health(self, parts: Sequence[PartHealth]) -> dict[str, Any]:
        figures, view = self._figures, self._figures.view
        return {
            "state": _COLOURS[worst(parts)],
            "parts": parts,
            "kafka": "up" if figures.gateway.is_connected else "down",
            "brokers": view.table.address_count,
            "held_brokers": len(view.table.held),
            "connections": len(figures.connections),
            "pending_events": view.pending_count,
            "version": figures.tables.version,
            "age_ms": figures.tables.age_ms,
            "next_offsets": {str(p): o for p, o in sorted(view.next_offsets.items())},
        }

    def _partition(self, query: PartitionQuery) -> int:
        if query.partition >= self._state.partitions:
            raise Problem(400, f"partition: expected 0 to {self._state.partitions - 1}")
        return query.partition


def _json(health: Health, status: int = 200) -> Response:
    return Response(health.model_dump_json(exclude_none=True), status, media_type=JSON)


def _wants_text(request: Request, query: FormatQuery) -> bool:
    """Return whether the client asked for text: by ``?format=text``, or because it accepts text but not JSON."""
    accept = request.headers.get("accept", "")
    return query.format == "text" or (query.format is None and "text/plain" in accept and "json" not in accept)
