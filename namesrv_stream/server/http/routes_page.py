"""Routes, and lists of topics, clusters, brokers and KV entries. An answer shows one moment and is computed in steps.

``PastRoutes`` reads past routes from the history on its own threads, a few queries at a time.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from namesrv_stream.clock import Clock
from namesrv_stream.errors import ConfigError, NamesrvStreamError, StoreUnreachable, SystemBusy
from namesrv_stream.logs import safe
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.processor.route_body import RouteRequest
from namesrv_stream.server.http.answers import (
    BrokerProcess,
    Clusters,
    DrainOfBroker,
    EndOfBroker,
    Entries,
    HoldOfGuard,
    Namespaces,
    PastRoute,
    Problem,
    TopicRoute,
    Topics,
    conditional,
)
from namesrv_stream.server.http.operation import JSON, Query, answers
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.fleet import Broker, Fleet
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory, TableSchemaMismatch

if TYPE_CHECKING:
    from namesrv_stream.history import past_route


Result = TypeVar("Result")

logger = logging.getLogger(__name__)

#: Maximum number of queries that read the tables, and of queries that wait. Further ones are refused.
_THREADS: Final = 2
_WAITING: Final = 32
#: ``2026-11-20T03:12:00+01:00`` in a URL without percent-encoding: its + arrives as a space.
_UNQUOTED_ZONE: Final = re.compile(r"(.*\d:\d\d\S*) (\d\d:\d\d)")
#: Errors that ``ask`` raises → HTTP status.
STATUS_OF: Final[dict[type[NamesrvStreamError], int]] = {
    ConfigError: 400,
    NotInHistory: 404,
    TableSchemaMismatch: 503,
    StoreUnreachable: 503,
    SystemBusy: 503,
}
REFUSALS: Final = tuple(STATUS_OF)


class PastRoutes:
    """Answers queries for past routes for the HTTP port. Only one event loop may use it."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        # Not the loop's default threads: the server's own work on these must not wait for queries of the history.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="past-routes")
        self._asked = 0

    async def ask(
        self,
        topic: str,
        as_of: str,
        convert: "Callable[[past_route.PastRoute], Result]",
        address_view: str | None = None,
    ) -> Result:
        """Read a topic's route at an instant, and return what ``convert`` makes of it; both run on a thread.

        ``address_view`` is the name of the client's address view; None for no view.

        Raises:
            ConfigError: ``as_of`` is not an instant, or lies in the future.
            NotInHistory: There was no route then, or the history does not cover it; the text says which.
            TableSchemaMismatch: A table is damaged, or has a different schema from what this version expects.
            StoreUnreachable: The tables' object store does not answer.
            SystemBusy: Too many queries are waiting.
        """
        as_of = quoted_zone(as_of)
        return await self.read(lambda: convert(self._answer(topic, as_of, address_view)))

    async def read(self, question: Callable[[], Result]) -> Result:
        """Call ``question``, which queries the tables, on a thread, and return its result.

        Raises the errors of ``ask``.
        """
        if self._asked >= _THREADS + _WAITING:
            raise SystemBusy("too many queries for past routes at once; try again")
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, question)
        except (TableSchemaMismatch, StoreUnreachable) as error:
            logger.warning("the history cannot be read: %s", safe(str(error)))
            raise
        finally:
            self._asked -= 1

    def _answer(self, topic: str, as_of: str, address_view: str | None) -> "past_route.PastRoute":
        # Imported by the first query, so that servers without such queries do not load it.
        from namesrv_stream.history.past_route import read_past_route

        now_ms = self._clock.now_ms()
        return read_past_route(
            self._settings, topic, as_of, now_ms, flag="as_of", source="query", address_view=address_view
        )


def quoted_zone(as_of: str) -> str:
    """Return an instant from a URL with the + of its zone restored; it arrives as a space if not percent-encoded."""
    return _UNQUOTED_ZONE.sub(r"\1+\2", as_of)


class RouteQuery(Query):
    as_of: str | None = Field(
        None,
        description="An instant: epoch milliseconds, ISO 8601, or `-10m`; needs the history.",
        examples=["2026-11-21T03:12Z"],
    )
    view: str | None = Field(
        None, description="Name of an address view: the route as its clients receive it.", examples=["outside"]
    )


class ClusterQuery(Query):
    cluster: str | None = Field(None, description="Only entries of this cluster.", examples=["c0"])


class TopicsQuery(ClusterQuery):
    prefix: str = Field("", description="Only names with this prefix.", examples=["Topic"])
    limit: int | None = Field(None, ge=1, le=999_999_999, description="Maximum number of names.", examples=[1000])
    after: str = Field("", description="Only names after this one.", examples=["TopicTest"])


class BrokersQuery(ClusterQuery):
    state: Literal["alive", "held", "ended", "any"] | None = Field(
        None, description="Only brokers in this state. Default: alive or held.", examples=["held"]
    )


class RoutesPage:
    """The endpoints for routes and lists. Only one event loop may use it."""

    def __init__(self, server: NameServer, past_routes: PastRoutes, fleet: Fleet, steps: Steps) -> None:
        self._server = server
        self._past_routes = past_routes
        self._fleet = fleet
        self._steps = steps

    @answers("/routes/{topic}", (JSON, TopicRoute | PastRoute), statuses=(200, 304), errors=(404, 503))
    async def route(self, request: Request, query: RouteQuery) -> Response:
        """Return a topic's route as clients receive it, with an ETag; or a past route, and what changed it last."""
        topic = request.path_params["topic"]
        if query.as_of is not None:
            try:
                text = await self._past_routes.ask(topic, query.as_of, lambda found: found.json_text(), query.view)
            except REFUSALS as error:
                raise Problem(STATUS_OF[type(error)], str(error)) from None
            return Response(text, media_type=JSON)
        view = None if query.view is None else self._server.views.by_name.get(query.view)
        if query.view is not None and view is None:
            raise Problem(404, f"no address view {query.view}")
        body = self._server.answers.route_body(RouteRequest(topic, address_view=view))
        if body is None:
            of_view = f" with an address in view {query.view}" if view else ""
            raise Problem(404, f"no route for topic {topic}: no known broker{of_view} offers it")
        return conditional(request, body)

    @answers("/topics", (JSON, Topics))
    async def topics(self, _: Request, query: TopicsQuery) -> Response:
        """Return the names of all topics that brokers serve, sorted; the last name as `?after=` gives the next page."""
        names: Iterable[str] = self._server.table.topics()
        if query.cluster is not None:
            groups = map(self._server.table.group, self._server.table.clusters().get(query.cluster, ()))
            names = dict.fromkeys(chain.from_iterable(group.topics for group in groups))
        wanted = (name for name in list(names) if name.startswith(query.prefix) and name > query.after)
        found = await self._steps.sorted(wanted)
        page = found[: query.limit]
        following = page[-1] if page and len(page) < len(found) else None
        body = orjson.dumps({"count": len(page), "next": following})[:-1] + b',"topics":'
        return self._stream(chain([body], _array(map(orjson.dumps, page)), [b"}"]))

    @answers("/clusters", (JSON, Clusters))
    async def clusters(self, _: Request) -> Response:
        """Return the addresses of all brokers, by cluster, broker name and brokerId."""
        table = self._server.table
        clusters = {name: sorted(names) for name, names in sorted(table.clusters().items())}
        groups = table.groups.copy()

        def addrs(names: list[str]) -> Iterator[tuple[str, Iterable[bytes]]]:
            for name in names:
                of_name = {str(broker_id): addr for broker_id, addr in sorted(groups[name].broker_addrs.items())}
                yield name, [orjson.dumps(of_name)]

        return self._stream(_object((cluster, _object(addrs(names))) for cluster, names in clusters.items()))

    @answers("/brokers", (JSON, list[BrokerProcess]))
    async def brokers(self, _: Request, query: BrokersQuery) -> Response:
        """Return all broker processes: who receives their heartbeats, heartbeat ages, why brokers are held or ended."""
        ended = await self._fleet.ended() if query.state in ("ended", "any") else []
        groups = await self._steps.sorted(
            list(self._server.table.groups.values()) if query.state != "ended" else [],
            key=lambda group: (group.cluster, group.broker_name),
        )
        wanted = (
            _broker(broker).model_dump_json().encode()
            for broker in chain(self._fleet.live(groups), ended)
            if query.cluster in (None, broker.key.live_key.cluster) and query.state in (None, "any", broker.state)
        )
        return self._stream(_array(wanted))

    @answers("/kv", (JSON, Namespaces))
    async def kv(self, _: Request) -> Response:
        """Return the KV table, by namespace and key."""
        namespaces = {namespace: entries.copy() for namespace, entries in sorted(self._server.table.kv.items())}
        return self._stream(_object((namespace, _entries(entries)) for namespace, entries in namespaces.items()))

    @answers("/kv/{namespace}", (JSON, Entries), errors=(404,))
    async def kv_namespace(self, request: Request) -> Response:
        """Return one namespace of the KV table."""
        namespace = request.path_params["namespace"]
        entries = self._server.table.kv.get(namespace)
        if entries is None:
            raise Problem(404, f"no KV namespace {namespace}")
        return self._stream(_entries(entries.copy()))

    def _stream(self, pieces: Iterable[bytes]) -> Response:
        return StreamingResponse(self._steps.joined(pieces), media_type=JSON)


def _broker(broker: Broker) -> BrokerProcess:
    fields, key, end = broker._asdict(), broker.key, None
    if broker.ended is not None:
        of_end = {name: getattr(broker.ended, name) for name in ("at_ms", "cause", "detail", "partition", "offset")}
        end = EndOfBroker(**of_end, replaced_by=broker.replaced_by)
    hold = HoldOfGuard(**broker.held._asdict()) if broker.held else None
    names = ("broker_id", "timeout_ms", "expires_after_ms", "age_ms", "since_ms", "is_older", "servers")
    return BrokerProcess(
        cluster=key.live_key.cluster,
        broker_name=key.broker_name,
        broker_addr=key.live_key.broker_addr,
        state=broker.state,
        drained=DrainOfBroker(**broker.drained._asdict()) if broker.drained else None,
        held=hold,
        ended=end,
        contradictions=list(broker.contradictions),
        **{name: fields[name] for name in names},
    )


def _array(items: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a JSON array, piece by piece."""
    between = b"["
    for item in items:
        yield between + item
        between = b","
    yield b"[]" if between == b"[" else b"]"


def _object(members: Iterable[tuple[str, Iterable[bytes]]]) -> Iterator[bytes]:
    """Yield a JSON object, piece by piece."""
    between = b"{"
    for name, value in members:
        yield between + orjson.dumps(name) + b":"
        yield from value
        between = b","
    yield b"{}" if between == b"{" else b"}"


def _entries(entries: dict[str, str]) -> Iterator[bytes]:
    return _object((key, [orjson.dumps(value)]) for key, value in entries.items())
