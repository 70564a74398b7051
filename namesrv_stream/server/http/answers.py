"""The schemas of the HTTP port's JSON answers, which ``/openapi.json`` contains, and functions for all answers.

Problems are JSON (RFC 9457) or HTML; conditional answers have an ETag.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from html import escape
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange

Count = Annotated[int, Field(ge=0)]
Ms = Annotated[int, Field(description="epoch milliseconds")]
Addrs = Annotated[dict[str, str], Field(description="brokerId → host:port; 0 is the master")]
Position = Annotated[str, Field(description="opaque; pass it as `since`, to this server or another")]
Clusters = Annotated[dict[str, dict[str, Addrs]], Field(description="cluster → broker name → brokerId → address")]
Entries = dict[str, str]
Namespaces = dict[str, Entries]


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ProblemDetails(Answer):
    """Why the request was not answered (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str = Field(description="what is wrong, and what to do")


# ---- /healthz, /readyz ----


class PartHealth(Answer):
    """Health of one part of a server."""

    name: str
    state: Literal["ok", "degraded", "failed"]
    reason: str | None = Field(None, description="why it is not ok, and what that means")
    run_book: str | None = Field(None, description="page and heading of the documentation that says what to do")
    since_ms: Ms | None = None
    detail: str | None = Field(None, description="which implementation of the part runs, if there are several")


class Health(Answer):
    """Health of a server."""

    state: Literal["green", "yellow", "red"]
    parts: list[PartHealth]
    kafka: Literal["up", "down"]
    brokers: Count
    held_brokers: Count
    connections: Count
    pending_events: Count = Field(description="events accepted here that are not in a commit of the job yet")
    version: int = Field(description="version of route_changes; -1 before there is a table")
    age_ms: Count = Field(description="time since this server applied a commit of the job, or since its start")
    next_offsets: dict[str, Count]


class Readiness(Health):
    """Health of a server, and whether brokers can register and clients can query routes."""

    ready: bool
    reasons: list[str]


# ---- /routes/{topic} ----


class BrokerData(Answer):
    """A broker group of a route."""

    brokerAddrs: Addrs
    brokerName: str
    cluster: str
    enableActingMaster: bool
    zoneName: str | None = None


class QueueData(Answer):
    """Queues and permission of a topic in a broker group."""

    brokerName: str
    perm: int
    readQueueNums: int
    topicSysFlag: int
    writeQueueNums: int


class TopicRoute(Answer):
    """RocketMQ's TopicRouteData, in the JSON that clients from 4.9.4 on receive."""

    brokerDatas: list[BrokerData]
    filterServerTable: dict[str, list[str]]
    queueDatas: list[QueueData]
    orderTopicConf: str | None = None
    topicQueueMappingByBroker: dict[str, dict[str, Any]] | None = None


class PastRoute(BaseModel):
    """With `as_of`: the route at an instant, and the last change before it (docs/history.md)."""

    model_config = ConfigDict(extra="allow")


# ---- lists ----


class Topics(Answer):
    """A page of topic names, or all of them."""

    count: Count
    next: str | None = Field(description="`after` of the next page; null if there is none")
    topics: list[str]


class HoldOfGuard(Answer):
    """Why the mass-expiry guard keeps a broker."""

    goes_with: str
    reason: str
    server_id: str | None
    since_ms: Ms
    until_ms: Ms
    ending: Count
    brokers: Count


class EndOfBroker(Answer):
    """Why and when a broker was removed, and the position of the record in the log."""

    at_ms: Ms
    cause: str = Field(description="as in rows of /changes")
    detail: str | None
    partition: Count
    offset: Count
    replaced_by: str | None = Field(description="the address in its cluster that has its brokerId now")


class DrainOfBroker(Answer):
    """The record of a drain of the broker name, which `drain --undo` deletes."""

    at: str | None = Field(description="when it began; null, like `by`, if the KV entry is not a record of a drain")
    by: str | None
    topics: Count = Field(description="topics from which it took the write permission")
    writable_topics: Count = Field(description="how many of them have it again, because the broker registered again")


class BrokerProcess(Answer):
    """One broker process."""

    cluster: str
    broker_name: str
    broker_id: int | None
    broker_addr: str
    state: Literal["alive", "held", "ended"]
    timeout_ms: int | None = Field(description="the timeout that the broker requested; null for the default")
    expires_after_ms: Count = Field(description="the timeout in force, in observed time")
    age_ms: int | None = Field(description="observed time since its last heartbeat here; null without one or if ended")
    since_ms: int | None = Field(
        description="when it came up, epoch milliseconds; null if `is_older`, ended, or not known"
    )
    is_older: bool = Field(description="it came up more than a day ago")
    servers: list[str]
    contradictions: list[str] = Field(description="topics that contradict its DataVersion (docs/contradictions.md)")
    drained: DrainOfBroker | None
    held: HoldOfGuard | None
    ended: EndOfBroker | None


# ---- /servers ----


Source = Literal["http.nsaddr", "log", "this server"]


class NameServerOfList(Answer):
    """A name server that has written to the log, and whether it is on the list for clients."""

    server_id: str
    server_epoch: Ms
    status: str = Field(description="talking, silent, lost or stopped")
    address: str = Field(description="the address that it advertises; empty if none")
    is_listed: bool
    why_not: str | None = Field(description="why it is not listed")


class NameServerList(Answer):
    """The name servers that the log knows, and what /rocketmq/nsaddr answers."""

    addresses: list[str] = Field(description="the answer of /rocketmq/nsaddr")
    source: Source = Field(description="this server: http.nsaddr is not set, and no server advertises an address")
    servers: list[NameServerOfList]
    unknown_unlisted: list[str] = Field(description="ids that an operator unlisted, and that no server has")
    still_listed: list[str] = Field(description="ids that stay listed despite a KV entry: the list would be empty")


# ---- /changes ----


def _row(name: str, text: str, always: tuple[str, ...]) -> type[BaseModel]:
    types = RouteChange.__annotations__ | {"kind": ChangeKind, "cause": Cause}
    fields: dict[str, Any] = {n: (types[n], ... if n in always else None) for n in RouteChange._fields}
    return create_model(name, __base__=Answer, __doc__=text, **fields)


_CHANGE = "The new value of a key, or its deletion; columns that a kind does not use are absent."
_ALWAYS = ("partition", "offset", "seq", "at_ms", "kind", "gone", "cause")


class Changes(Answer):
    """Changes; none if there was no change within the waiting time."""

    position: Position
    whole: bool = Field(description="false if more rows of the same commit follow")
    rows: list[_row("Change", _CHANGE, _ALWAYS)]  # type: ignore[valid-type] # made of RouteChange


class StateRows(Answer):
    """The whole committed state."""

    position: Position
    rows: list[_row("StateRow", "The value of a key.", ("partition", "kind", "gone"))]  # type: ignore[valid-type]


PROBLEM_JSON: Final = "application/problem+json"
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: name server console</title>
<link rel="stylesheet" href="/console/static/console.css">
</head>
<body>
<main class="wide problem">
<h1>{title}</h1>
<p class="missing">{detail}</p>
<p><a href="/">Open the console</a></p>
</main>
</body>
</html>
"""
_PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Vary": "Accept",
}

#: Kinds of problems that a program cannot distinguish by their status alone.
POSITION_GONE = "urn:namesrv-stream:problem:position-gone"
TRY_AGAIN = "urn:namesrv-stream:problem:try-again"


class Problem(Exception):
    """A request that cannot be answered; ``detail`` says what is wrong with it, and what to do.

    ``kind`` is the URI of the kind of problem; "about:blank" if the status is sufficient.
    """

    def __init__(
        self, status: int, detail: str, *, kind: str = "about:blank", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.headers = headers

    def response(self, headers: Headers | None = None) -> Response:
        """Return the answer to a request with these headers: HTML if they accept it, as browsers do; otherwise JSON.

        The console's script accepts HTML too, but needs problems as JSON.
        """
        accept = "" if headers is None else headers.get("accept", "")
        if "text/html" in accept and "json" not in accept:
            title = f"{self.status} {HTTPStatus(self.status).phrase}"
            page = _PAGE.format(title=title, detail=escape(printable(self.detail)))
            return Response(page, self.status, {**(self.headers or {}), **_PAGE_HEADERS}, "text/html")
        title = HTTPStatus(self.status).phrase
        body = ProblemDetails(type=self.kind, title=title, status=self.status, detail=self.detail).model_dump_json()
        return Response(body, self.status, {**(self.headers or {}), "Vary": "Accept"}, PROBLEM_JSON)


def conditional(request: Request, body: bytes, media_type: str = "application/json") -> Response:
    """Return the body with an ETag, or 304 if the client already has it (RFC 9110 §8.8.3, §13.1.2)."""
    tag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}  # clients must revalidate every time
    known = [item.strip().removeprefix("W/") for item in request.headers.get("if-none-match", "").split(",")]
    if tag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)


def array(items: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Yield a JSON array in pieces; each item is in pieces as well, and one without any is left out."""
    between = b"["
    for item in items:
        is_empty = True
        for piece in item:
            yield between + piece if is_empty else piece
            is_empty = False
        if is_empty:
            yield b""  # so that the caller can pause
        else:
            between = b","
    yield b"[]" if between == b"[" else b"]"


def json_object(members: Iterable[tuple[str, Iterable[bytes]]]) -> Iterator[bytes]:
    """Yield a JSON object, piece by piece."""
    between = b"{"
    for name, value in members:
        yield between + orjson.dumps(name) + b":"
        yield from value
        between = b","
    yield b"{}" if between == b"{" else b"}"
