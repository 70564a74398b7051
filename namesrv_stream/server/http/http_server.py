"""The HTTP port, which runs on the server's own event loop."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

import orjson
import uvicorn
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from namesrv_stream.server.http.answers import NameServerList, NameServerOfList, Problem, Source, conditional
from namesrv_stream.server.http.changes_page import ChangesPage
from namesrv_stream.server.http.console.console_page import ConsolePage, Sources
from namesrv_stream.server.http.limits import CROSS_SITE, MISDIRECTED, AllowedHosts, Limits, limited, only_for
from namesrv_stream.server.http.operation import JSON, answers, openapi_document, operations, route
from namesrv_stream.server.http.orphans_page import OrphansPage
from namesrv_stream.server.http.protocol import HttpProtocol, Port, TlsProtocol
from namesrv_stream.server.http.routes_page import RoutesPage
from namesrv_stream.server.http.status_page import StatusPage
from namesrv_stream.server.http.why_page import WhyPage
from namesrv_stream.server.start.process import NameServerAddrs, address
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.fleet import Fleet
from namesrv_stream.server.view.follower import CatchUp
from namesrv_stream.server.view.sorted_topics import SortedTopics
from namesrv_stream.tables.storage import tables_of

logger = logging.getLogger(__name__)


class HttpServer:
    """Runs Starlette on uvicorn, with a socket that is already bound."""

    def __init__(self, bound: socket.socket, sources: Sources) -> None:
        self._bound = bound
        self._feed = sources.feed
        self.address = address(bound)
        settings, figures, steps = sources.settings, sources.figures, Steps()
        limits, tls = settings.http, sources.tls if settings.http.tls else None
        port = Port(limits, figures.counters, figures.http, sources.peer_log)
        fleet, catch_up = figures.fleet, CatchUp(tables_of(settings), limits.changes_catch_up_rows)
        topics = SortedTopics(sources.server.view, steps, sources.clock)
        status = StatusPage(figures, sources.state, sources.clock)
        why = WhyPage(
            sources.server, sources.past_routes, figures, status, sources.state, settings, topics, steps, sources.clock
        )
        pages = (
            ConsolePage(sources, fleet, status, why, topics, steps),
            status,
            why,
            RoutesPage(sources.server, sources.past_routes, fleet, topics, steps, sources.clock),
            OrphansPage(sources.server, sources.state.server_id, topics, steps, sources.clock),
            ChangesPage(sources.server.view, sources.state.partitions, sources.feed, catch_up, figures.counters, steps),
            DirectoryPage(sources.name_server_addrs, fleet),
        )
        found = [each for page in pages for each in operations(page)]
        self.routes = [limited(route(operation, endpoint), operation.load, port) for operation, endpoint in found]
        hosts = AllowedHosts([limits.listen_host, *limits.allowed_hosts])
        router = Router(self.routes, default=_unknown_path)
        app = ExceptionMiddleware(only_for(hosts, router), handlers={Problem: partial(_problem, port)})
        templates = {route.endpoint: route.name for route in self.routes}
        # uvicorn's messages do not help operators. Clients that break the protocol get an answer and are counted.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

        def new_connection(**of_uvicorn: Any) -> asyncio.Protocol:
            connection = HttpProtocol(port, **of_uvicorn)
            return connection if tls is None else TlsProtocol(connection, tls, port.peer_log)

        config = uvicorn.Config(
            Limits(app, port, templates),
            http=new_connection,  # type: ignore[arg-type] # instead of a class
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = _QuietServer(config)
        figures.http.connections = lambda: len(self._uvicorn.server_state.connections)

    async def run(self) -> None:
        # Otherwise the first answer that is streamed would load it, and all other requests would wait.
        await asyncio.to_thread(import_module, "anyio._backends._asyncio")
        await self._uvicorn.serve(sockets=[self._bound])

    def stop(self) -> None:
        self._feed.close()
        self._uvicorn.should_exit = True


def document() -> dict[str, Any]:
    pages = (ConsolePage, StatusPage, WhyPage, RoutesPage, OrphansPage, ChangesPage, DirectoryPage)
    return openapi_document(operation for page in pages for operation, _ in operations(page))


@cache
def _document_json() -> bytes:
    """Return the document as JSON; the first call takes tens of milliseconds."""
    return orjson.dumps(document())


class DirectoryPage:
    """The endpoints from which programs learn the addresses of name servers, and the API of this port."""

    def __init__(self, name_server_addrs: NameServerAddrs, fleet: Fleet) -> None:
        self._name_server_addrs = name_server_addrs
        self._fleet = fleet

    @answers("/rocketmq/{subgroup}", ("text/plain", None), any_query=True, load="vital")
    async def name_servers(self, request: Request) -> Response:
        """Return the name servers' addresses, separated by `;`, for clients without a namesrvAddr.

        All subgroups and units have the same list. Source: rocketmq 5.5.0, MixAll.getWSAddr and DefaultTopAddressing:
        the path is /rocketmq/SUBGROUP, or SUBGROUP-UNIT?nofix=1, and parameters may follow; SUBGROUP is nsaddr at
        clients and empty at a proxy by default. The first line of the body is the list.
        """
        return PlainTextResponse(";".join(self._addresses(request)) + "\n")

    def _addresses(self, request: Request) -> list[str]:
        reached_host, _ = request.scope["server"]
        return self._name_server_addrs.reached_by(reached_host, self._fleet.listed_addresses())

    @answers("/servers", (JSON, NameServerList))
    async def servers(self, request: Request) -> Response:
        """Return the name servers that the log knows, and the addresses that clients receive."""
        known = self._fleet.name_servers()
        by_log: Source = "log" if any(server.is_listed for server in known) else "this server"
        found = NameServerList(
            addresses=self._addresses(request),
            source="http.nsaddr" if self._name_server_addrs.configured else by_log,
            servers=[NameServerOfList(**s._asdict(), why_not=self._fleet.why_not_listed(s)) for s in known],
            unknown_unlisted=self._fleet.unknown_unlisted,
            still_listed=self._fleet.still_listed,
        )
        return Response(found.model_dump_json(), media_type=JSON)

    @answers("/openapi.json", (JSON, dict[str, Any]), statuses=(200, 304))
    async def openapi(self, request: Request) -> Response:
        """Return the description of this HTTP API, in OpenAPI 3.1."""
        return conditional(request, await asyncio.to_thread(_document_json))


#: Status of a refusal that is logged and counted → event.
_EVENTS: Final = {MISDIRECTED: "host_refused", CROSS_SITE: "cross_site_refused"}


async def _problem(port: Port, request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    if event := _EVENTS.get(error.status):
        port.event(event)
        port.peer_log.log(logger, logging.WARNING, "HTTP request refused: %s", error.detail)
    return error.response(request.headers)


async def _unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise Problem(404, "unknown path; GET /openapi.json lists all paths")


class _QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers, because the process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await super().shutdown(sockets)
