"""Routes, and lists of topics, clusters, brokers and KV entries. An answer shows one moment and is computed in steps.

``PastRoutes`` reads past routes from the history on its own threads, a few queries at a time.
"""

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from namesrv_stream.clock import Clock
from namesrv_stream.errors import ConfigError, NamesrvStreamError, StoreUnreachable, SystemBusy
from namesrv_stream.logs import safe
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.processor.route_body import RouteAnswers, RouteRequest
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.http.answers import (
    BrokerProcess,
    Clusters,
    Entries,
    Namespaces,
    PastRoute,
    Problem,
    TopicRoute,
    Topics,
    array,
    conditional,
    json_object,
)
from namesrv_stream.server.http.operation import JSON, Query, answers
from namesrv_stream.server.steps import Kept, Steps
from namesrv_stream.server.view.fleet import Broker, Fleet
from namesrv_stream.server.view.sorted_topics import SortedTopics
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory, TableSchemaMismatch

if TYPE_CHECKING:
    from namesrv_stream.history import past_route


Result = TypeVar("Result")

logger = logging.getLogger(__name__)

#: Maximum number of queries that read the tables, and of queries that wait. Further ones are refused.
_THREADS: Final = 2
_WAITING: Final = 32
#: Names of a list that are encoded at once.
_NAMES_AT_ONCE: Final = 1_000
#: The event loop encodes a route with at most so many brokers itself, in a few milliseconds.
_FEW_BROKERS: Final = 200
#: How long the body of a route with more brokers is used, if they have not changed.
_KEPT_MS: Final = 10_000
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
    """Return an instant from a URL with the + of its zone restored; it arrives as a space if not percent-encoded.

    ``2026-11-20T03:12:00 01:00`` means ``2026-11-20T03:12:00+01:00``, and ``2026-11-20 03:12`` has no zone.
    """
    at, _, zone = as_of.rpartition(" ")
    return f"{at}+{zone}" if ":" in at and zone[2:3] == ":" else as_of


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
    # The last name of a page, whatever brokers have registered; a URL has no room for a longer one.
    after: str = Field("", max_length=8_192, description="Only names after this one.", examples=["TopicTest"])


class BrokersQuery(ClusterQuery):
    state: Literal["alive", "held", "ended", "any"] | None = Field(
        None, description="Only brokers in this state. Default: alive or held.", examples=["held"]
    )


class RoutesPage:
    """The endpoints for routes and lists. Only one event loop may use it."""

    def __init__(
        self,
        server: NameServer,
        past_routes: PastRoutes,
        fleet: Fleet,
        topics: SortedTopics,
        steps: Steps,
        clock: Clock,
    ) -> None:
        self._server = server
        self._past_routes = past_routes
        self._fleet = fleet
        self._topics = topics
        # By the identities of the groups, which are kept with the body, so that no other object has them.
        self._bodies: Kept[tuple[object, ...], tuple[object, bytes | None]] = Kept(_KEPT_MS, clock)
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
        body = await self._body(RouteRequest(topic, address_view=view))
        if body is None:
            of_view = f" with an address in view {query.view}" if view else ""
            raise Problem(404, f"no route for topic {topic}: no known broker{of_view} offers it")
        return conditional(request, body)

    async def _body(self, request: RouteRequest) -> bytes | None:
        """Return the body of a route. If it has many brokers, a thread encodes it, once for the same brokers."""
        server, table = self._server, self._server.table
        names = table.names_offering(request.topic)
        if len(names) <= _FEW_BROKERS:
            return server.answers.route_body(request)
        groups = [*map(table.group, names), *table.groups_mapping(request.topic)]

        async def make() -> tuple[object, bytes | None]:
            view = RouteView(table.part_of([request.topic]))
            answers = RouteAnswers(view, support_acting_master=server.answers.support_acting_master)
            return groups, await asyncio.to_thread(answers.route_body, request)

        return (await self._bodies.get((request, *map(id, groups)), make))[1]

    @answers("/topics", (JSON, Topics))
    async def topics(self, _: Request, query: TopicsQuery) -> Response:
        """Return the names of all topics that brokers serve, sorted; the last name as `?after=` gives the next page."""
        names = await self._topics.names(query.cluster)
        begin = max(bisect_left(names, query.prefix), bisect_right(names, query.after))
        end = max(begin, bisect_left(names, True, key=lambda name: name[: len(query.prefix)] > query.prefix))
        last = end if query.limit is None else min(end, begin + query.limit)
        body = orjson.dumps({"count": last - begin, "next": names[last - 1] if begin < last < end else None})
        rows = array([piece] for piece in _pieces(names, begin, last))
        return self._stream(chain([body[:-1] + b',"topics":'], rows, [b"}"]))

    @answers("/clusters", (JSON, Clusters))
    async def clusters(self, _: Request) -> Response:
        """Return the addresses of all brokers, by cluster, broker name and brokerId."""
        table = self._server.table
        groups = table.groups.copy()
        named = [(cluster, name) for cluster, names in table.clusters().items() for name in names]
        in_order = groupby(await self._steps.sorted(named), itemgetter(0))

        def addrs(names: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Iterable[bytes]]]:
            for _, name in names:
                of_name = {str(broker_id): addr for broker_id, addr in sorted(groups[name].broker_addrs.items())}
                yield name, [orjson.dumps(of_name)]

        return self._stream(json_object((cluster, json_object(addrs(names))) for cluster, names in in_order))

    @answers("/brokers", (JSON, list[BrokerProcess]))
    async def brokers(self, _: Request, query: BrokersQuery) -> Response:
        """Return all broker processes: who receives their heartbeats, heartbeat ages, why brokers are held or ended."""
        await self._fleet.read_drains()
        ended = await self._fleet.ended() if query.state in ("ended", "any") else []
        groups = await self._steps.sorted(
            list(self._server.table.groups.values()) if query.state != "ended" else [],
            key=lambda group: (group.cluster, group.broker_name),
        )
        found = (
            _broker(broker)
            if query.cluster in (None, broker.key.live_key.cluster) and query.state in (None, "any", broker.state)
            else ()
            for broker in chain(self._fleet.live(groups), ended)
        )
        return self._stream(array(found))

    @answers("/kv", (JSON, Namespaces))
    async def kv(self, _: Request) -> Response:
        """Return the KV table, by namespace and key."""
        namespaces = {namespace: entries.copy() for namespace, entries in sorted(self._server.table.kv.items())}
        return self._stream(json_object((namespace, _entries(entries)) for namespace, entries in namespaces.items()))

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


def _broker(broker: Broker) -> Iterator[bytes]:
    """Yield a broker as JSON of ``BrokerProcess``, in pieces; it can have 100,000 contradictions."""
    key, end, of_end = broker.key, broker.ended, ("at_ms", "cause", "detail", "partition", "offset")
    fields = orjson.dumps(
        {
            "cluster": key.live_key.cluster,
            "broker_name": key.broker_name,
            "broker_id": broker.broker_id,
            "broker_addr": key.live_key.broker_addr,
            "state": broker.state,
            "timeout_ms": broker.timeout_ms,
            "expires_after_ms": broker.expires_after_ms,
            "age_ms": broker.age_ms,
            "since_ms": broker.since_ms,
            "is_older": broker.is_older,
            "servers": broker.servers,
            "drained": broker.drained._asdict() if broker.drained else None,
            "held": broker.held._asdict() if broker.held else None,
            "ended": {n: getattr(end, n) for n in of_end} | {"replaced_by": broker.replaced_by} if end else None,
        }
    )
    contradictions = array([piece] for piece in _pieces(broker.contradictions, 0, len(broker.contradictions)))
    yield fields[:-1] + b',"contradictions":' + next(contradictions)
    yield from contradictions
    yield b"}"


def _pieces(names: Sequence[str], begin: int, end: int) -> Iterator[bytes]:
    """Yield a part of a list of names as JSON without brackets, in pieces without commas between them."""
    for at in range(begin, end, _NAMES_AT_ONCE):
        yield orjson.dumps(names[at : min(at + _NAMES_AT_ONCE, end)])[1:-1]


def _entries(entries: dict[str, str]) -> Iterator[bytes]:
    return json_object((key, [orjson.dumps(value)]) for key, value in entries.items())
