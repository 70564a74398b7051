"""What every request passes first: methods, bodies, how many at a time, and readers that do not read."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from namesrv_stream.logs import safe
from namesrv_stream.server.http.protocol import CONNECTION, HttpProtocol, Port
from namesrv_stream.server.http.responses import TRY_AGAIN, Problem

logger = logging.getLogger(__name__)

_METHODS: Final = ("GET", "HEAD")
#: Of all answers: nothing here is a page, unless it says so itself.
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_RETRY: Final = {"Retry-After": "1"}


class Limits:
    """ASGI middleware around the whole application.

    Args:
        app: The application.
        port: Of the port.
        streams: Paths whose answers may have no end.
        templates: Endpoint to the path by which its answers are counted: there are few of these.
    """

    def __init__(self, app: ASGIApp, port: Port, *, streams: frozenset[str], templates: Mapping[Any, str]) -> None:
        self._app = app
        self._port = port
        self._streams = streams
        self._templates = templates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # WebSockets: there are none
            return
        load, is_stream = self._port.load, scope["path"] in self._streams
        answer = _Answer(scope, send, self._port.settings.slow_reader_ms / 1000)
        problem = _refused(scope) or self._one_too_many(is_stream)
        if problem is not None:
            await problem.response(Headers(scope=scope))(scope, receive, answer.send)
            self._count("(refused)", answer)
            return
        load.streams += is_stream
        load.inflight += not is_stream
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            text, path = "HTTP request failed unexpectedly path=%s", safe(scope["path"])
            self._port.peer_log.tell(logger, logging.ERROR, text, path, is_fault=True)
            if not answer.status:
                problem = Problem(500, "the request failed unexpectedly; the server's log says why")
                await problem.response(Headers(scope=scope))(scope, receive, answer.send)
            else:
                answer.abort("answer_failed")
        finally:
            load.streams -= is_stream
            load.inflight -= not is_stream
            self._count(self._templates.get(scope.get("endpoint"), "(unknown)"), answer)

    def _count(self, route: str, answer: "_Answer") -> None:
        self._port.counters.count("rocketmq_namesrv_http_requests_total", route, str(answer.status))

    def _one_too_many(self, is_stream: bool) -> Problem | None:
        limits, load = self._port.settings, self._port.load
        if is_stream and load.streams >= limits.max_streams:
            self._port.event("stream_refused")
            text = f"http.max_streams={limits.max_streams} follow the changes already"
            return Problem(503, f"{text}; ask again, or another server", kind=TRY_AGAIN, headers=_RETRY)
        if not is_stream and load.inflight >= limits.max_requests:
            self._port.event("request_refused")
            text = f"http.max_requests={limits.max_requests} are being answered"
            return Problem(503, f"{text}; ask again", kind=TRY_AGAIN, headers=_RETRY)
        return None


class _Answer:
    """One answer on its way; gives its reader up that does not read."""

    def __init__(self, scope: Scope, send: Send, slow_reader_s: float) -> None:
        self.status = 0
        self._scope = scope
        self._send = send
        self._slow_reader_s = slow_reader_s

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            names = {name for name, _ in headers}
            message = {**message, "headers": headers + [h for h in _HEADERS if h[0] not in names]}
        try:
            async with asyncio.timeout(self._slow_reader_s):
                await self._send(message)
        except TimeoutError:
            self.abort("slow_reader")
            return
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            # Nothing waits for the reader any more, and much may be unread.
            self._connection.expect_reader(self._slow_reader_s)

    def abort(self, event: str) -> None:
        self._connection.abort(event)

    @property
    def _connection(self) -> HttpProtocol:
        connection: HttpProtocol = self._scope["state"][CONNECTION]
        return connection


def _refused(scope: Scope) -> Problem | None:
    """Why a request is none of ours, whatever it asks for."""
    if scope["method"] not in _METHODS:
        return Problem(405, "this port answers questions only: GET and HEAD", headers={"Allow": ", ".join(_METHODS)})
    headers = Headers(scope=scope)
    if headers.get("content-length", "0").strip("0") or "transfer-encoding" in headers:
        # What is left of the body is not read: the connection ends with the answer.
        return Problem(413, "a question here has no body", headers={"Connection": "close"})
    return None
