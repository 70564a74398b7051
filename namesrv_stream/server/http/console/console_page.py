"""The console's endpoints: the page, its separate parts, and its static files.

The server renders everything, and the templates escape it. The page's script fetches parts again and replaces the old
ones. So everything is rendered in one place, and the page works without the script.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from namesrv_stream import __version__
from namesrv_stream.clock import Clock
from namesrv_stream.errors import SystemBusy
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.why.facts import Question as About
from namesrv_stream.route.why.findings import Explanation
from namesrv_stream.server.http.answers import Problem, conditional
from namesrv_stream.server.http.console.brokers import FleetSnapshots, brokers
from namesrv_stream.server.http.console.later_parts import OtherServers, WhatIf
from namesrv_stream.server.http.console.query import FILTERS, SHOWN, WINDOWS, Question, shown
from namesrv_stream.server.http.console.summary import pipeline, summary
from namesrv_stream.server.http.console.timeline import timeline
from namesrv_stream.server.http.console.topics import Offer, offers_now, offers_of, route_diff, topics
from namesrv_stream.server.http.operation import answers
from namesrv_stream.server.http.routes_page import REFUSALS, PastRoutes
from namesrv_stream.server.http.status_page import StatusPage
from namesrv_stream.server.http.why_page import WhyPage
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.server_metrics import ServerMetrics
from namesrv_stream.server.start.process import NameServerAddrs
from namesrv_stream.server.steps import Kept, Steps
from namesrv_stream.server.tls import ServerTls
from namesrv_stream.server.view.feed import ChangeFeed
from namesrv_stream.server.view.fleet import Fleet
from namesrv_stream.server.view.recent_events import RecentEvents
from namesrv_stream.server.view.served_state import ServedState
from namesrv_stream.server.view.sorted_topics import SortedTopics
from namesrv_stream.settings import Settings

if TYPE_CHECKING:
    from namesrv_stream.history.past_route import PastRoute


@dataclass(frozen=True, slots=True)
class Sources:
    """Components of the server that the pages read. ``tls`` is used only if ``http.tls`` is set."""

    server: NameServer
    name_server_addrs: NameServerAddrs
    state: ServedState
    past_routes: PastRoutes
    feed: ChangeFeed
    recent_events: RecentEvents
    figures: ServerMetrics
    tls: ServerTls
    clock: Clock
    settings: Settings
    peer_log: PeerLog


PARTS: Final = ("summary", "brokers", "topics", "route", "timeline", "pipeline", "servers", "what-if")
#: Parts that the script loads after the page, because other servers and the history can be slow.
_LATER: Final = ("servers", "what-if")
#: How long an explanation is used: the script fetches the parts of an open page again every five seconds.
_EXPLAINED_MS: Final = 5_000
_STATIC: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HTML: Final = "text/html"
#: Only this server's scripts and styles, nothing from other sites, and no embedding in frames.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ConsolePage:
    """The endpoints of the console. Only one event loop may use it."""

    def __init__(
        self, sources: Sources, fleet: Fleet, status: StatusPage, why: WhyPage, all_topics: SortedTopics, steps: Steps
    ) -> None:
        self._from = sources
        self._fleet = fleet
        self._status = status
        self._why = why
        self._explanations: Kept[About, Explanation] = Kept(_EXPLAINED_MS, sources.clock)
        self._topics = all_topics
        self._steps = steps
        self._fleets = FleetSnapshots(sources.server.view, fleet, steps, sources.clock)
        self._others = OtherServers(sources.settings.http.console_servers, sources.state, sources.clock)
        self._what_ifs = WhatIf(sources.settings, sources.clock)
        self._loading = asyncio.Lock()
        self._templates: dict[str, Template] | None = None
        self._static = _read_static()

    @answers("/", (_HTML, None))
    async def page(self, _: Request, query: Question) -> Response:
        """Return the console's page."""
        parts = [name for name in PARTS if name not in _LATER or (name == "what-if" and query.past)]
        position = self._from.feed.end.token()  # taken first, so that the script misses no later change
        shown = {name.replace("-", "_"): await self._part(name, query) for name in parts}
        later = [name for name in PARTS if name not in parts]
        shown |= {"position": position, "later": later, "windows": list(WINDOWS)}
        return await self._answer("page", query, shown)

    @answers("/console/parts/{part}", (_HTML, None), errors=(404,))
    async def part(self, request: Request, query: Question) -> Response:
        """Return one part of the console's page, for the console's own script."""
        name = request.path_params["part"]
        if name not in PARTS:
            raise Problem(404, f"no part {name}: there are {', '.join(PARTS)}")
        return await self._answer(name, query, {name.replace("-", "_"): await self._part(name, query)})

    @answers("/console/static/{name}", ("text/css", None), statuses=(200, 304), errors=(404,))
    async def static(self, request: Request) -> Response:
        """Return a static file of the console."""
        found = self._static.get(request.path_params["name"])
        if found is None:
            raise Problem(404, f"no file {request.path_params['name']}")
        body, media_type = found
        answer = conditional(request, body, media_type)
        answer.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return answer

    async def _answer(self, name: str, question: Question, parts: Mapping[str, Any]) -> Response:
        templates = await self._loaded()
        common = {"version": __version__, "server_id": self._from.state.server_id, "now_ms": self._from.clock.now_ms()}
        texts = templates[name].generate(**parts, q=question, **common)
        pieces = (text.encode("utf-8", "replace") for text in texts)
        return StreamingResponse(self._steps.joined(pieces), media_type=_HTML, headers=HEADERS)

    async def _loaded(self) -> dict[str, Template]:
        """Return all templates. The first request compiles them on a thread, which takes tens of milliseconds."""
        async with self._loading:
            if self._templates is None:
                self._templates = await asyncio.to_thread(_load_templates)
            return self._templates

    async def _part(self, name: str, question: Question) -> Any:
        """Return the variables of a part's template."""
        sources, clock, steps = self._from, self._from.clock, self._steps
        recent_events, fleet = sources.recent_events, self._fleets.newest
        match name:
            case "summary":
                return await summary(sources.figures, await fleet(), self._status.parts(), steps)
            case "brokers":
                picked = await self._fleets.pick(await fleet(), question, SHOWN[question.shown])
                found = await brokers(picked, question, recent_events=recent_events, clock=clock, steps=steps)
                is_missed = bool(question.find) and not found["cards"]
                return found | {"why": await self._explained(About("broker", question.find)) if is_missed else None}
            case "topics":
                names = await self._topics.names(question.cluster or None)
                return await topics(sources.server, names, question, steps, sources.clock.monotonic_ms())
            case "timeline":
                await recent_events.begin(sources.server.view.next_offsets)
                return await timeline(recent_events, question, clock, steps)
            case "pipeline":
                return pipeline(sources.figures, self._status.parts(), clock)
            case "servers":
                known = [(server, self._fleet.why_not_listed(server)) for server in self._fleet.name_servers()]
                entries = {"unknown": self._fleet.unknown_unlisted, "still_listed": self._fleet.still_listed}
                return {"compared": await self._others.compared(), "known": known, **entries}
            case "what-if":
                timeout_ms = self._fleet.settings().default_timeout_ms
                return await self._what_ifs.shown(question.past, timeout_ms, await fleet())
            case _:
                return await self._route(question)

    async def _explained(self, about: About) -> Explanation | None:
        """Return the answer of ``why``, which all open pages share for some seconds; None if the server is busy."""
        try:
            return await self._explanations.get(about, partial(self._why.explain, about))
        except SystemBusy:
            return None

    async def _route(self, question: Question) -> dict[str, Any]:
        topic, server = question.topic, self._from.server
        if not topic:
            return {}
        then: PastRoute | None = None
        before: Sequence[tuple[str, Offer]] = ()
        problem = ""
        if question.as_of:
            try:
                then, before = await self._from.past_routes.ask(topic, question.as_of, _with_offers)
            except REFUSALS as error:
                problem = str(error)
        is_compared = bool(before) or (bool(question.as_of) and "no route for topic" in problem)
        async with self._steps.step():
            offering = list(server.table.queue_data_of(topic))  # a copy, so that all offers are from one moment
        is_found = any(group.is_registered for group, _ in offering)
        acting = server.answers.support_acting_master
        now = offers_now(offering if is_found else (), topic, support_acting_master=acting)
        diff = await route_diff(now, before, is_compared=is_compared, steps=self._steps)
        why = await self._explained(About("topic", topic))
        return diff | {"found": is_found, "is_compared": is_compared, "then": then, "problem": problem, "why": why}


def _with_offers(answer: "PastRoute") -> "tuple[PastRoute, Sequence[tuple[str, Offer]]]":
    """Return a past route and the offers of its broker names. Called on a thread."""
    return answer, list(offers_of(answer.route))


def _load_templates() -> dict[str, Template]:
    environment = Environment(
        loader=PackageLoader("namesrv_stream.server.http.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    return {name: environment.get_template(f"{name}.html.jinja") for name in ("page", *PARTS)}


def _read_static() -> dict[str, tuple[bytes, str]]:
    """Return the static files: name → content and media type."""
    folder = files("namesrv_stream.server.http.console").joinpath("static")
    kinds = {file: _STATIC.get(f".{file.name.rpartition('.')[2]}") for file in folder.iterdir()}
    return {file.name: (file.read_bytes(), media_type) for file, media_type in kinds.items() if media_type}
