"""The orphan report: routes that lead to no live broker, and topics and brokers that no client asks for."""

from itertools import chain
from operator import attrgetter
from typing import Final

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from namesrv_stream.clock import Clock
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.why.orphans import Orphan, OrphanReport, OrphanSearch
from namesrv_stream.server.core import ASKED_RESOLUTION_MS
from namesrv_stream.server.http.answers import array
from namesrv_stream.server.http.operation import JSON, Query, answers
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.sorted_topics import SortedTopics

_DAY_MS: Final = 86_400_000


class OrphansQuery(Query):
    days: int = Field(
        7, ge=1, le=3_650, description="Topics asked for within this many days are not orphans.", examples=[30]
    )


class OrphansPage:
    """The endpoint of the orphan report. Only one event loop may use it."""

    def __init__(self, server: NameServer, server_id: str, topics: SortedTopics, steps: Steps, clock: Clock) -> None:
        self._server = server
        self._server_id = server_id
        self._topics = topics
        self._steps = steps
        self._clock = clock

    @answers("/orphans", (JSON, OrphanReport))
    async def orphans(self, _: Request, query: OrphansQuery) -> Response:
        """Return routes that lead to no live broker, and topics and brokers that no client asked this server for."""
        server, at_ms, monotonic_ms = self._server, self._clock.now_ms(), self._clock.monotonic_ms()
        since_ms = monotonic_ms - query.days * _DAY_MS - ASKED_RESOLUTION_MS
        topics, never_ms = await self._topics.names(), since_ms - 1
        search = OrphanSearch(server.table, topics, lambda topic: server.asked.get(topic, never_ms) >= since_ms)
        others = [o async for some in self._steps.lists(search.others()) for o in some if o is not None]
        ordered = await self._steps.sorted(others, key=attrgetter(*Orphan.__slots__))
        # The kinds in alphabetical order. Those of topics can be a million, so they are found while they are sent.
        found = chain(search.brokers_not_asked(), search.held(), ordered, search.topics_not_asked())
        counted_since_ms = at_ms - monotonic_ms + server.started_ms
        report = orjson.dumps(OrphanReport(self._server_id, at_ms, counted_since_ms, query.days, ()))
        rows = array([orjson.dumps(orphan)] if orphan is not None else () for orphan in found)
        return StreamingResponse(self._steps.joined(chain([report[: -len(b"[]}")]], rows, [b"}"])), media_type=JSON)
