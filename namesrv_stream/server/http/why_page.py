"""Explains why a topic or broker has no route, or one that clients cannot use.

Threads read the rows from the tables. The routes in memory decide what is wrong now. A server without a route asks the
servers in ``http.console_servers``, and never an address from a request.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import is_
from typing import Final, Literal
from urllib.parse import quote, urlencode

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from namesrv_stream.client.server_states import BadAnswer, PartRows, ServerUnreachable, ask, fetch
from namesrv_stream.clock import Clock
from namesrv_stream.errors import StoreUnreachable
from namesrv_stream.instants import duration
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.events import partition_of
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import DRAINED_BROKERS, MASTER_ID
from namesrv_stream.route.why.explain import DEFAULT_TOPIC, ORDER_NAMESPACE, explain
from namesrv_stream.route.why.facts import Facts, Known, Question, Refusal, is_address
from namesrv_stream.route.why.findings import Explanation, Finding, Why, finding
from namesrv_stream.server.http.answers import Problem
from namesrv_stream.server.http.operation import JSON, Query, answers
from namesrv_stream.server.http.routes_page import REFUSALS, STATUS_OF, PastRoutes, quoted_zone
from namesrv_stream.server.http.status_page import StatusPage
from namesrv_stream.server.server_metrics import ServerMetrics
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.served_state import ServedState
from namesrv_stream.server.view.sorted_topics import SortedTopics
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory, TableSchemaMismatch

#: An answer must be complete within a second, so another server gets less time.
_OTHERS_TIMEOUT_S: Final = 0.7
_MOST_BYTES: Final = 1 << 20
_MOST_SERVERS_AT_ONCE: Final = 16
#: Rows that were read before the routes changed do not explain the change, so they are read again.
_MOST_READS: Final = 3


class WhyQuery(Query):
    at: str | None = Field(
        None,
        description="An instant: epoch milliseconds, ISO 8601, or `-10m`; needs the history.",
        examples=["2026-11-21T03:12Z"],
    )
    cluster: str | None = Field(None, description="The cluster in which the client looks for it.", examples=["c0"])
    zone: str | None = Field(None, description="The client's zone, if it is in zone mode.", examples=["z1"])
    client: str | None = Field(
        None, description="The client's IP address, which may choose an address view.", examples=["203.0.113.7"]
    )


class WhyPage:
    """The endpoints of ``why``. Only one event loop may use it."""

    def __init__(
        self,
        server: NameServer,
        past_routes: PastRoutes,
        figures: ServerMetrics,
        status: StatusPage,
        state: ServedState,
        settings: Settings,
        topics: SortedTopics,
        steps: Steps,
        clock: Clock,
    ) -> None:
        self._server = server
        self._topics = topics
        self._steps = steps
        self._past_routes = past_routes
        self._figures = figures
        self._status = status
        self._state = state
        self._settings = settings
        self._clock = clock
        self._threads = ThreadPoolExecutor(_MOST_SERVERS_AT_ONCE, thread_name_prefix="why-servers")

    @answers("/why/topics/{topic}", (JSON, Explanation), errors=(404, 503))
    async def topic(self, request: Request, query: WhyQuery) -> Response:
        """Return why clients have no route of a topic, or one that they cannot use: causes, evidence, advice."""
        return await self._answer(_question("topic", request.path_params["topic"], query), query.at)

    @answers("/why/brokers/{broker_name}", (JSON, Explanation), errors=(404, 503))
    async def broker(self, request: Request, query: WhyQuery) -> Response:
        """Return why a broker name is in no route, or in one that clients cannot use: causes, evidence, advice."""
        return await self._answer(_question("broker", request.path_params["broker_name"], query), query.at)

    async def _answer(self, question: Question, at: str | None) -> Response:
        name = question.name
        if not name.strip():
            raise Problem(400, f"{question.subject}: expected a name")
        for parameter, value in (("cluster", question.cluster), ("zone", question.zone)):
            if value is not None and not value.strip():
                raise Problem(400, f"{parameter}: is empty")
        if question.client is not None and not is_address(question.client):
            raise Problem(400, "client: expected an IP address")
        if question.client is not None and at is not None:
            raise Problem(400, "client: cannot be combined with at")
        try:
            found = await (self.explain(question) if at is None else self._explain_past(question, at))
        except REFUSALS as error:
            raise Problem(STATUS_OF[type(error)], str(error)) from None
        self._figures.counters.count("rocketmq_namesrv_why_total", question.subject, found.findings[0].cause)
        return Response(orjson.dumps(found), media_type=JSON)

    async def explain(self, question: Question) -> Explanation:
        """Answer a question about the present; if the tables cannot be read, from memory alone.

        Raises:
            SystemBusy: Too many queries of the tables are waiting.
        """
        (known, failure), elsewhere = await asyncio.gather(self._read(question), self._elsewhere(question))
        late = await self._late(question)
        # Only now, because the tables may be opened again meanwhile. For a thread, because a topic can be at 10,000
        # brokers.
        table = self._server.table.part_of((question.name, DEFAULT_TOPIC), (ORDER_NAMESPACE, DRAINED_BROKERS))
        facts = Facts(
            question,
            replace(known, has_brokers=next(table.registered_groups(), None) is not None),
            table,
            self._clock.now_ms(),
            elsewhere=elsewhere,
            refusals=self._refusals(),
            of_server=[*self._server_findings(failure)],
            late=late,
            with_order=self._server.options.order_message_enable,
            view=None if question.client is None else self._server.views.view_of("", question.client),
        )
        return await self._past_routes.read(lambda: explain(facts, server_id=self._state.server_id))

    async def _read(self, question: Question) -> tuple[Known, str]:
        """Return what the tables say, and ""; if they cannot be read, return what is in memory, and the reason."""
        names = [] if self._is_routed(question) else await self._names(question.subject)

        # Imported by the first query, so that servers without such queries do not load it.
        def read() -> Known:
            from namesrv_stream.history.why import read_newest

            return read_newest(self._settings, question, names)

        def compare() -> Known:
            from namesrv_stream.history.why import near_misses

            return Known(near=near_misses(names, question.name) if names else ())

        try:
            for _ in range(_MOST_READS):
                before = self._groups(question)
                known = await self._past_routes.read(read)
                after = self._groups(question)
                if len(before) == len(after) and all(map(is_, before, after)):
                    break
        except (NotInHistory, TableSchemaMismatch, StoreUnreachable) as error:
            return await self._past_routes.read(compare), str(error)
        return known, ""

    async def _names(self, subject: str) -> Sequence[str]:
        """Return all topics, or all broker names."""
        if subject == "topic":
            return await self._topics.names()
        return [group.broker_name for group in self._server.table.registered_groups()]

    def _is_routed(self, question: Question) -> bool:
        return any(group and group.is_registered for group in self._groups(question))

    def _groups(self, question: Question) -> list[BrokerGroup | None]:
        """Return the broker groups that the answer depends on; a group is replaced when it changes."""
        table, name = self._server.table, question.name
        names = [name] if question.subject == "broker" else table.names_offering(name)
        return [table.groups.get(name) for name in names]

    async def _explain_past(self, question: Question, at: str) -> Explanation:
        def read() -> Explanation:
            from namesrv_stream.history.why import explain_past

            now_ms = self._clock.now_ms()
            return explain_past(self._settings, question, quoted_zone(at), now_ms, flag="at", source="query")

        return await self._past_routes.read(read)

    def _server_findings(self, failure: str) -> Iterator[Finding]:
        """Yield what is wrong with this server: from its health, and ``failure``, why the tables cannot be read."""
        now_ms, waiting_ms = self._clock.now_ms(), self._figures.gateway.status.oldest_age_ms
        since_of = {
            "server": now_ms - waiting_ms if waiting_ms else None,
            "tables": now_ms - self._figures.tables.age_ms,
        }
        for part in self._status.parts():
            if part.state != "ok" and part.name in ("server", "kafka", "" if failure else "tables"):
                why = Why.SERVER_STALE if part.name == "tables" else Why.SERVER_BLIND
                since_ms = since_of.get(part.name, part.since_ms)
                yield finding(why, self._state.server_id, [part.reason or part.state], since_ms=since_ms)
        if failure:
            yield finding(Why.SERVER_STALE, self._state.server_id, [f"answers come from memory: {failure}"])

    def _refusals(self) -> dict[str, Refusal]:
        """Return the refused requests, with times of the wall clock."""
        shift_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        return {
            name: Refusal(refusal.text, refusal.since_ms + shift_ms, refusal.last_ms + shift_ms)
            for name, refusal in self._server.refusals.items()
        }

    async def _late(self, question: Question) -> list[str]:
        """Return the processes of a broker that are late; those of a topic's masters only if all of these are late."""
        table, fleet, is_topic = self._server.table, self._figures.fleet, question.subject == "topic"
        names = table.names_offering(question.name) if is_topic else [question.name]
        live = await self._steps.all(fleet.live(map(table.group, names)))
        processes = [broker for broker in live if not is_topic or broker.broker_id == MASTER_ID]
        late = [broker for broker in processes if broker.is_late]
        if is_topic and len(late) < len(processes):
            return []
        return [
            f"{b.key.live_key.broker_addr} {duration(b.age_ms or 0)} ago, timeout {duration(b.expires_after_ms)}"
            for b in late
        ]

    async def _elsewhere(self, question: Question) -> Sequence[str]:
        """Return the URLs of the other servers that have the requested route, if this one has none."""
        if self._is_routed(question):
            return ()
        urls, ask_on = self._settings.http.console_servers, asyncio.get_running_loop().run_in_executor
        partitions = self._state.partitions
        found = await asyncio.gather(*(ask_on(self._threads, _has_route, url, question, partitions) for url in urls))
        return [url for url, has_route in zip(urls, found, strict=True) if has_route]


def _question(subject: Literal["topic", "broker"], name: str, query: WhyQuery) -> Question:
    return Question(subject, name, query.cluster, query.zone, query.client)


def _has_route(url: str, question: Question, partitions: int) -> bool:
    """Return whether another server has the requested route; False if it does not answer."""
    try:
        if question.subject == "topic":
            path = f"/routes/{quote(question.name, safe='')}"
            return fetch(url, path, timeout_s=_OTHERS_TIMEOUT_S, most_bytes=_MOST_BYTES).status == 200
        part = {"partition": partition_of(question.name, partitions), "kind": "broker", "name": question.name}
        path = f"/state/rows?{urlencode(part)}"
        rows = ask(url, path, PartRows, timeout_s=_OTHERS_TIMEOUT_S, most_bytes=_MOST_BYTES).rows
        return any(row["kind"] == ChangeKind.BROKER_DATA for row in rows)
    except (ServerUnreachable, BadAnswer):
        return False
