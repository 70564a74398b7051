"""The HTTP port on the server's own event loop."""

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import orjson
import uvicorn
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from namesrv_stream.clock import Clock
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.server.address_counts import AddressCounts
from namesrv_stream.server.changes.catch_up import CatchUp
from namesrv_stream.server.changes.feed import ChangeFeed
from namesrv_stream.server.fleet import Fleet
from namesrv_stream.server.http.changes_page import ChangesPage
from namesrv_stream.server.http.conditional import conditional
from namesrv_stream.server.http.console import ConsolePage, ConsoleSources
from namesrv_stream.server.http.health_page import HealthPage
from namesrv_stream.server.http.hosts import MISDIRECTED, AllowedHosts, only_for
from namesrv_stream.server.http.limits import Limits
from namesrv_stream.server.http.lists import Lists
from namesrv_stream.server.http.openapi import openapi_document, query_schemas
from namesrv_stream.server.http.problems import Problem
from namesrv_stream.server.http.protocol import HttpProtocol
from namesrv_stream.server.http.query import check_query
from namesrv_stream.server.http.route_page import RoutePage
from namesrv_stream.server.http.state_page import StatePage
from namesrv_stream.server.http.tls_protocol import TlsProtocol
from namesrv_stream.server.http_figures import HttpFigures
from namesrv_stream.server.listener import NameServerAddrs, address
from namesrv_stream.server.past_routes import PastRoutes
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.served_state import ServedState
from namesrv_stream.server.server_figures import ServerFigures
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.story import Story
from namesrv_stream.server.tls import ServerTls
from namesrv_stream.settings import Settings
from namesrv_stream.tables.storage import tables_of

_LOG = logging.getLogger(__name__)


class HttpServer:
    """Starlette on uvicorn, on an already bound socket.

    Attributes:
        address: ``host:port``.
        routes: All that is answered.

    Args:
        bound: The socket.
        server: Whose view is told of.
        name_server_addrs: For clients that ask for their name servers.
        state: What is served, in short.
        past_routes: For routes as they were.
        feed: Told of all that the view takes over.
        story: Told of the same, in short.
        figures: For scrapes and health.
        tls: All connections are TLS by this; None for plain HTTP.
        clock: For what is old.
        settings: Of which ``http``, ``data`` and ``snapshot`` matter.
        peer_log: For what peers cause.
    """

    def __init__(
        self,
        bound: socket.socket,
        server: NameServer,
        *,
        name_server_addrs: NameServerAddrs,
        state: ServedState,
        past_routes: PastRoutes,
        feed: ChangeFeed,
        story: Story,
        figures: ServerFigures,
        tls: ServerTls | None,
        clock: Clock,
        settings: Settings,
        peer_log: PeerLog,
    ) -> None:
        self._bound = bound
        self._feed = feed
        self._name_server_addrs = name_server_addrs
        self.address = address(bound)
        steps, limits = Steps(), settings.http
        catch_up = CatchUp(tables_of(settings), limits.changes_catch_up_rows)
        changes = ChangesPage(server.view, state.partitions, feed, catch_up, steps=steps, figures=figures.http)
        health = HealthPage(figures, settings.snapshot.stale_after_ms, clock)
        fleet = Fleet(server.view, figures.gateway, story)
        lists, states = Lists(server, fleet, steps), StatePage(state)
        sources = ConsoleSources(server, state, fleet, story, feed, figures, health, past_routes, clock, settings)
        console = ConsolePage(sources, steps)
        self.routes = [
            _route(path, endpoint)
            for path, endpoint in {
                "/": console.page,
                "/console/parts/{part}": console.part,
                "/console/static/{name}": console.static,
                "/healthz": health.healthz,
                "/readyz": health.readyz,
                "/metrics": health.metrics,
                "/routes/{topic}": RoutePage(server, past_routes).route,
                "/topics": lists.topics,
                "/clusters": lists.clusters,
                "/brokers": lists.brokers,
                "/kv": lists.kv,
                "/kv/{namespace}": lists.kv_namespace,
                "/changes": changes.changes,
                "/changes/state": changes.state,
                "/state": states.state,
                "/state/keys": states.keys,
                "/state/rows": states.rows,
                # A client with a unit name asks for nsaddr-UNIT?nofix=1: one list for all units.
                "/rocketmq/nsaddr": self._name_servers,
                "/rocketmq/nsaddr-{unit}": self._name_servers,
                "/openapi.json": self._openapi,
            }.items()
        ]
        hosts = AllowedHosts([limits.listen_host, *limits.allowed_hosts])
        router = Router(self.routes, default=_nothing_here)
        app = ExceptionMiddleware(
            only_for(hosts, router), handlers={Problem: partial(_problem, peer_log, figures.http)}
        )
        limited = Limits(
            app,
            limits,
            figures.http,
            streams=frozenset({"/changes"}),
            templates={route.endpoint: route.name for route in self.routes},
            peer_log=peer_log,
        )
        protocol = partial(
            HttpProtocol,
            max_connections=limits.max_connections,
            max_connections_per_address=limits.max_connections_per_address,
            addresses=AddressCounts(),
            request_timeout_s=limits.request_timeout_ms / 1000,
            figures=figures.http,
        )
        # uvicorn's words are not for our operators: peers that break the protocol are told and counted.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        config = uvicorn.Config(
            limited,
            http=protocol if tls is None else partial(_with_tls, tls, peer_log, protocol),  # type: ignore[arg-type] # a class, or what makes its objects
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = _QuietServer(config)
        figures.count_http_connections = lambda: len(self._uvicorn.server_state.connections)

    async def run(self) -> None:
        """Serve until ``stop``."""
        await self._uvicorn.serve(sockets=[self._bound])

    def stop(self) -> None:
        self._feed.close()
        self._uvicorn.should_exit = True

    async def _name_servers(self, request: Request) -> Response:
        """Source: rocketmq 5.3.3, DefaultTopAddressing: the first line of the body is the list."""
        reached_host, _ = request.scope["server"]
        return PlainTextResponse(self._name_server_addrs.reached_by(reached_host) + "\n")

    async def _openapi(self, request: Request) -> Response:
        """What is here, for programs."""
        return conditional(request, orjson.dumps(openapi_document()))


def _route(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    """A path of the OpenAPI document, by which it is named; its query is checked before the endpoint sees it."""
    schemas = query_schemas(path)

    async def checked(request: Request) -> Response:
        if schemas is not None:
            check_query(request.query_params, schemas)
        return await endpoint(request)

    # Names of topics and of KV namespaces may hold slashes.
    return Route(re.sub(r"{(topic|namespace)}", r"{\1:path}", path), checked, name=path)


async def _problem(peer_log: PeerLog, figures: HttpFigures, request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    if error.status == MISDIRECTED:
        figures.event("host_refused")
        peer_log.tell(_LOG, logging.WARNING, "HTTP request refused: %s", error.detail)
    return error.response(request.headers)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    raise Problem(404, "there is nothing here; GET /openapi.json says what there is")


def _with_tls(tls: ServerTls, peer_log: PeerLog, make: Callable[..., HttpProtocol], **arguments: Any) -> TlsProtocol:
    return TlsProtocol(make(**arguments), tls, peer_log)


class _QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await super().shutdown(sockets)
