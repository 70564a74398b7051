"""``/routes/{topic}``: as clients get it, with a tag by which a reader need not load it again; or as it was."""

from starlette.requests import Request
from starlette.responses import Response

from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.server.http.conditional import conditional
from namesrv_stream.server.http.problems import Problem
from namesrv_stream.server.past_routes import REFUSALS, STATUS_OF, PastRoutes


class RoutePage:
    """Endpoint; of one event loop."""

    def __init__(self, server: NameServer, past_routes: PastRoutes) -> None:
        self._server = server
        self._past_routes = past_routes

    async def route(self, request: Request) -> Response:
        """The route of now, or of ``?as_of=``: then with what changed it last."""
        topic = request.path_params["topic"]
        as_of = request.query_params.get("as_of")
        if as_of is not None:
            try:
                text = await self._past_routes.ask(topic, as_of, lambda found: found.json_text())
            except REFUSALS as error:
                raise Problem(STATUS_OF[type(error)], str(error)) from None
            return Response(text, media_type="application/json")
        body = self._server.answers.route_body(topic, strict=True)
        if body is None:
            raise Problem(404, f"no route for topic {topic}: no broker that is known offers it")
        return conditional(request, body)
