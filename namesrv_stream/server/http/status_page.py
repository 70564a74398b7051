"""What the server is and serves: ``/healthz``, ``/readyz``, ``/metrics``, ``/state`` (for ``namesrv-stream skew``)."""

from collections.abc import Sequence
from typing import Any, Literal

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from namesrv_stream.client.server_states import PartitionParts, PartRows, ServerState
from namesrv_stream.clock import Clock
from namesrv_stream.metrics import CONTENT_TYPE
from namesrv_stream.route.digest import Part
from namesrv_stream.server.http.answers import Health, PartHealth, Readiness
from namesrv_stream.server.http.health import as_text, colour, health, worst
from namesrv_stream.server.http.operation import JSON, Query, answers
from namesrv_stream.server.http.responses import Problem
from namesrv_stream.server.served_state import ServedState
from namesrv_stream.server.server_figures import ServerFigures

_TEXT = ("text/plain", None)


class FormatQuery(Query):
    format: Literal["text", "json"] | None = Field(None, description="`text` for lines.", examples=["text"])


class PartitionQuery(Query):
    partition: int = Field(ge=0, le=1_023, description="Kafka partition.", examples=[0])


class PartQuery(PartitionQuery):
    kind: Literal["broker", "kv", "settings", "servers", "guard"] = Field(description="Kind of part.", examples=["kv"])
    name: str = Field("", description="Broker name or namespace.", examples=["broker-a"])


class StatusPage:
    """Endpoints; of one event loop."""

    def __init__(self, figures: ServerFigures, state: ServedState, stale_after_ms: int, clock: Clock) -> None:
        self._figures = figures
        self._state = state
        self._clock = clock
        self._stale_after_ms = stale_after_ms

    @answers("/healthz", (JSON, Health), _TEXT)
    async def healthz(self, request: Request, query: FormatQuery) -> Response:
        """How the server is, in parts; 200 while it answers at all."""
        parts = self.parts()
        if _wants_text(request, query):
            return PlainTextResponse(f"{colour(parts)}\n{as_text(parts)}")
        return _json(Health(**self._health(parts)))

    @answers("/readyz", (JSON, Readiness), _TEXT, statuses=(200, 503))
    async def readyz(self, request: Request, query: FormatQuery) -> Response:
        """Whether brokers can register and clients ask, with the reasons why not."""
        parts = self.parts()
        is_ready = worst(parts) != "failed"
        status = 200 if is_ready else 503
        if _wants_text(request, query):
            return PlainTextResponse(f"{'ready' if is_ready else 'not ready'}\n{as_text(parts)}", status)
        reasons = [f"{part.name}: {part.reason}" for part in parts if part.reason]
        return _json(Readiness(ready=is_ready, reasons=reasons, **self._health(parts)), status)

    @answers("/metrics", _TEXT)
    async def metrics(self, _: Request) -> Response:
        """Figures for Prometheus, in its text format 0.0.4."""
        return Response(await self._figures.text(), media_type=CONTENT_TYPE)

    @answers("/state", (JSON, ServerState))
    async def state(self, _: Request) -> Response:
        """What is served, in short: to compare servers with."""
        return Response(orjson.dumps(await self._state.describe(), option=orjson.OPT_NON_STR_KEYS), media_type=JSON)

    @answers("/state/keys", (JSON, PartitionParts))
    async def keys(self, _: Request, query: PartitionQuery) -> Response:
        """The digest of each part of a partition."""
        return Response(orjson.dumps(await self._state.keys(self._partition(query))), media_type=JSON)

    @answers("/state/rows", (JSON, PartRows))
    async def rows(self, _: Request, query: PartQuery) -> Response:
        """What one part holds."""
        rows = await self._state.rows(Part(self._partition(query), query.kind, query.name))
        return Response(rows, media_type=JSON)

    def parts(self) -> Sequence[PartHealth]:
        """How the server is."""
        figures = self._figures
        return health(
            figures.gateway.status,
            figures.tables,
            figures.native_lane,
            held_brokers=len(figures.view.table.held),
            stale_after_ms=self._stale_after_ms,
            now_ms=self._clock.now_ms(),
        )

    def _health(self, parts: Sequence[PartHealth]) -> dict[str, Any]:
        figures, view = self._figures, self._figures.view
        return {
            "state": colour(parts),
            "parts": parts,
            "kafka": "up" if figures.gateway.is_talking else "down",
            "brokers": sum(len(g.broker_addrs) for g in view.table.registered_groups()),
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
    """``?format=text``, or a reader that takes text and no JSON."""
    accept = request.headers.get("accept", "")
    return query.format == "text" or (query.format is None and "text/plain" in accept and "json" not in accept)
