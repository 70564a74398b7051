"""The orphan report: routes that lead to no live broker, and topics and brokers that no client asks for."""

from dataclasses import astuple
from typing import Final

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from namesrv_stream.clock import Clock
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.why.orphans import OrphanReport, find_orphans
from namesrv_stream.server.core import ASKED_RESOLUTION_MS
from namesrv_stream.server.http.operation import JSON, Query, answers
from namesrv_stream.server.steps import Steps

_DAY_MS: Final = 86_400_000


class OrphansQuery(Query):
    days: int = Field(
        7, ge=1, le=3_650, description="Topics asked for within this many days are not orphans.", examples=[30]
    )


class OrphansPage:
    """The endpoint of the orphan report. Only one event loop may use it."""

    def __init__(self, server: NameServer, server_id: str, steps: Steps, clock: Clock) -> None:
        self._server = server
        self._server_id = server_id
        self._steps = steps
        self._clock = clock

    @answers("/orphans", (JSON, OrphanReport))
    async def orphans(self, _: Request, query: OrphansQuery) -> Response:
        """Return routes that lead to no live broker, and topics and brokers that no client asked this server for."""
        server, at_ms, monotonic_ms = self._server, self._clock.now_ms(), self._clock.monotonic_ms()
        since_ms = monotonic_ms - query.days * _DAY_MS - ASKED_RESOLUTION_MS
        asked = {topic for topic, asked_ms in server.asked.items() if asked_ms >= since_ms}
        found = [o async for some in self._steps.lists(find_orphans(server.table, asked)) for o in some if o]
        ordered = await self._steps.sorted(found, key=astuple)
        counted_since_ms = at_ms - monotonic_ms + server.started_ms
        report = OrphanReport(self._server_id, at_ms, counted_since_ms, query.days, ordered)
        return Response(orjson.dumps(report), media_type=JSON)
