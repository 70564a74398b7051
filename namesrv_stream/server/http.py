"""The HTTP port: health for machines, routes as JSON for people and scripts, the address list for clients."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from namesrv_stream.metrics import CONTENT_TYPE, Metrics
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.digest import Part
from namesrv_stream.route.held_brokers import broker_processes
from namesrv_stream.server.connections import Connections
from namesrv_stream.server.gateway import Gateway
from namesrv_stream.server.listener import NameServerAddrs
from namesrv_stream.server.past_routes import PastRoutes
from namesrv_stream.server.served_state import ServedState


class HttpServer:
    """Starlette on uvicorn, on the server's own event loop and an already bound socket."""

    def __init__(
        self,
        bound: socket.socket,
        server: NameServer,
        gateway: Gateway,
        connections: Connections,
        *,
        name_server_addrs: NameServerAddrs,
        state: ServedState,
        metrics: Metrics,
        past_routes: PastRoutes,
    ) -> None:
        self._bound = bound
        self._server = server
        self._gateway = gateway
        self._connections = connections
        self._name_server_addrs = name_server_addrs
        self._state = state
        self._metrics = metrics
        self._past_routes = past_routes
        host, port = bound.getsockname()[:2]
        self.address = f"{host}:{port}"
        app = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/readyz", self._ready),
                Route("/metrics", self._figures),
                Route("/routes/{topic:path}", self._route),
                Route("/clusters", self._clusters),
                Route("/brokers", self._brokers),
                Route("/state", self._served_state),
                Route("/state/keys", self._state_keys),
                Route("/state/rows", self._state_rows),
                Route("/kv", self._kv),
                Route("/kv/{namespace:path}", self._kv_namespace),
                # A client with a unit name asks for nsaddr-UNIT?nofix=1: one list for all units.
                Route("/rocketmq/nsaddr", self._name_servers),
                Route("/rocketmq/nsaddr-{unit}", self._name_servers),
            ]
        )
        config = uvicorn.Config(app, lifespan="off", access_log=False, log_config=None, timeout_graceful_shutdown=1)
        self._uvicorn = _QuietServer(config)

    async def run(self) -> None:
        """Serve until ``stop``."""
        await self._uvicorn.serve(sockets=[self._bound])

    def stop(self) -> None:
        self._uvicorn.should_exit = True

    async def _health(self, _: Request) -> Response:
        """Always 200 while the process answers; says which part is down."""
        return JSONResponse(self._facts())

    async def _ready(self, _: Request) -> Response:
        """200 once brokers can register, else 503."""
        return JSONResponse(self._facts(), 200 if self._gateway.is_talking else 503)

    async def _figures(self, _: Request) -> Response:
        """For Prometheus."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    def _facts(self) -> dict[str, object]:
        view = self._server.view
        return {
            "kafka": "up" if self._gateway.is_talking else "down",
            "brokers": sum(len(g.broker_addrs) for g in view.table.registered_groups()),
            "held_brokers": len(view.table.held),
            "connections": len(self._connections),
            "pending_events": view.pending_count,
            "next_offsets": {str(p): o for p, o in sorted(view.next_offsets.items())},
        }

    async def _route(self, request: Request) -> Response:
        """The route of now, or of ``?as_of=``: then with what changed it last."""
        topic = request.path_params["topic"]
        as_of = request.query_params.get("as_of")
        if as_of is not None:
            return await self._past_routes.answer(topic, as_of)
        body = self._server.answers.route_body(topic, strict=True)
        if body is None:
            return JSONResponse({"error": f"no route for topic {topic}"}, 404)
        return Response(body, media_type="application/json")

    async def _clusters(self, _: Request) -> Response:
        table = self._server.table
        clusters = {
            cluster: {
                name: {str(i): a for i, a in sorted(table.group(name).broker_addrs.items())} for name in sorted(names)
            }
            for cluster, names in sorted(table.clusters().items())
        }
        return JSONResponse(clusters)

    async def _brokers(self, request: Request) -> Response:
        """Every broker process, and why it is held where it would otherwise be gone; ``?cluster=`` for one cluster."""
        cluster = request.query_params.get("cluster")
        return JSONResponse([p for p in broker_processes(self._server.table) if cluster in (None, p["cluster"])])

    async def _served_state(self, _: Request) -> Response:
        """Version, age, offsets and digest of what is served."""
        return JSONResponse(await self._state.describe())

    async def _state_keys(self, request: Request) -> Response:
        """The digest of each part of ``?partition=``."""
        partition = self._partition(request)
        if partition is None:
            return JSONResponse({"error": f"partition: expected 0 to {self._state.partitions - 1}"}, 400)
        return JSONResponse(await self._state.keys(partition))

    async def _state_rows(self, request: Request) -> Response:
        """What the part ``?partition=&kind=&name=`` holds."""
        partition, query = self._partition(request), request.query_params
        if partition is None or "kind" not in query:
            return JSONResponse({"error": "expected partition, kind and name"}, 400)
        rows = await self._state.rows(Part(partition, query["kind"], query.get("name", "")))
        return Response(rows, media_type="application/json")

    def _partition(self, request: Request) -> int | None:
        """``?partition=``; None where it is none."""
        text = request.query_params.get("partition", "")
        known = map(str, range(self._state.partitions))
        return int(text) if text in known else None

    async def _kv(self, _: Request) -> Response:
        return JSONResponse(self._server.table.kv)

    async def _kv_namespace(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        entries = self._server.table.kv.get(namespace)
        if entries is None:
            return JSONResponse({"error": f"no KV namespace {namespace}"}, 404)
        return JSONResponse(entries)

    async def _name_servers(self, request: Request) -> Response:
        """Source: rocketmq 5.3.3, DefaultTopAddressing: the first line of the body is the list."""
        reached_host, _ = request.scope["server"]
        return PlainTextResponse(self._name_server_addrs.reached_by(reached_host) + "\n")


class _QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await super().shutdown(sockets)
