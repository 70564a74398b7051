"""``/state``: what a server serves, for comparing it with others (``namesrv-stream skew``)."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from namesrv_stream.route.digest import Part
from namesrv_stream.server.http.problems import Problem
from namesrv_stream.server.served_state import ServedState


class StatePage:
    """Endpoints; of one event loop."""

    def __init__(self, state: ServedState) -> None:
        self._state = state

    async def state(self, _: Request) -> Response:
        """Version, age, offsets and digest of what is served."""
        return JSONResponse(await self._state.describe())

    async def keys(self, request: Request) -> Response:
        """The digest of each part of ``?partition=``."""
        return JSONResponse(await self._state.keys(self._partition(request)))

    async def rows(self, request: Request) -> Response:
        """What the part ``?partition=&kind=&name=`` holds."""
        partition, query = self._partition(request), request.query_params
        if "kind" not in query:
            raise Problem(400, "kind: expected one of broker, kv, settings, servers, guard")
        rows = await self._state.rows(Part(partition, query["kind"], query.get("name", "")))
        return Response(rows, media_type="application/json")

    def _partition(self, request: Request) -> int:
        text = request.query_params.get("partition", "")
        if text not in map(str, range(self._state.partitions)):
            raise Problem(400, f"partition: expected 0 to {self._state.partitions - 1}")
        return int(text)
