"""``/healthz``, ``/readyz`` and ``/metrics``."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from namesrv_stream.clock import Clock
from namesrv_stream.metrics import CONTENT_TYPE
from namesrv_stream.server.health import Part, as_text, colour, health, worst
from namesrv_stream.server.server_figures import ServerFigures


class HealthPage:
    """Endpoints; of one event loop.

    Args:
        figures: Of the server.
        stale_after_ms: Without a commit of the job for so long, the tables are stale.
        clock: For how long ago a record was refused.
    """

    def __init__(self, figures: ServerFigures, stale_after_ms: int, clock: Clock) -> None:
        self._figures = figures
        self._clock = clock
        self._stale_after_ms = stale_after_ms

    async def healthz(self, request: Request) -> Response:
        """200 while the process answers; says which part is down, and since when."""
        parts = self.parts()
        if _wants_text(request):
            return PlainTextResponse(f"{colour(parts)}\n{as_text(parts)}")
        return JSONResponse(self._facts(parts))

    async def readyz(self, request: Request) -> Response:
        """200 once brokers can register, and until the server stops; else 503."""
        parts = self.parts()
        is_ready = worst(parts) != "failed"
        status = 200 if is_ready else 503
        if _wants_text(request):
            return PlainTextResponse(f"{'ready' if is_ready else 'not ready'}\n{as_text(parts)}", status)
        reasons = [f"{part.name}: {part.reason}" for part in parts if part.reason]
        return JSONResponse({"ready": is_ready, "reasons": reasons, **self._facts(parts)}, status)

    async def metrics(self, _: Request) -> Response:
        """For Prometheus."""
        return Response(await self._figures.text(), media_type=CONTENT_TYPE)

    def parts(self) -> Sequence[Part]:
        """How the server is."""
        figures = self._figures
        return health(
            figures.gateway.status,
            figures.tables.standing,
            figures.tables.job,
            refused_at_ms=figures.tables.refused_at_ms,
            held_brokers=len(figures.view.table.held),
            stale_after_ms=self._stale_after_ms,
            now_ms=self._clock.now_ms(),
        )

    def _facts(self, parts: Sequence[Part]) -> dict[str, Any]:
        figures, view = self._figures, self._figures.view
        return {
            "state": colour(parts),
            "parts": [{k: v for k, v in part._asdict().items() if v not in ("", None)} for part in parts],
            "kafka": "up" if figures.gateway.is_talking else "down",
            "brokers": sum(len(g.broker_addrs) for g in view.table.registered_groups()),
            "held_brokers": len(view.table.held),
            "connections": len(figures.connections),
            "pending_events": view.pending_count,
            "version": figures.tables.standing.version,
            "age_ms": figures.tables.standing.age_ms,
            "next_offsets": {str(p): o for p, o in sorted(view.next_offsets.items())},
        }


def _wants_text(request: Request) -> bool:
    """``?format=text``, or a reader that takes text and no JSON."""
    given = request.query_params.get("format")
    accept = request.headers.get("accept", "")
    return given == "text" or (given is None and "text/plain" in accept and "json" not in accept)
