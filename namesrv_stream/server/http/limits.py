"""Checks that every request passes first: method, body, number of requests, slow readers, host name, and origin.

A web page can make its own name resolve to 127.0.0.1 ("DNS rebinding"). The browser then treats this server as the
page's own and lets the page read every answer. The browser still sends the page's name as ``Host``, so unknown names
are refused. Literal addresses and ``localhost`` are safe: no web page can be loaded from such a name and then resolve
it to another address.

A web page of another site can also send requests whose answers it cannot read, for example as images, and so cause
work. Browsers say so in ``Sec-Fetch-Site``. Only links are followed, for example from a chat, an alert or Grafana.
Other programs do not send this header.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from namesrv_stream.logs import safe
from namesrv_stream.server.http.answers import TRY_AGAIN, Problem
from namesrv_stream.server.http.operation import Load
from namesrv_stream.server.http.protocol import CONNECTION, HttpProtocol, Port

logger = logging.getLogger(__name__)

_METHODS: Final = ("GET", "HEAD")
#: Default headers of all answers: a browser treats no answer as a page, unless the answer replaces them.
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_RETRY: Final = {"Retry-After": "1"}
#: More than any path of this port has; parsing a parameter takes a microsecond.
_MOST_PARAMETERS: Final = 100


class Limits:
    """ASGI middleware around the whole application.

    Answers are counted by the path template of their endpoint (``templates``), so that there are few labels.
    """

    def __init__(self, app: ASGIApp, port: Port, templates: Mapping[Any, str]) -> None:
        self._app = app
        self._port = port
        self._templates = templates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # WebSockets are not supported
            return
        answer = _Answer(scope, send, self._port.settings.slow_reader_ms / 1000)
        if (problem := _refused(scope)) is not None:
            await problem.response(Headers(scope=scope))(scope, receive, answer.send)
            self._count("(refused)", answer)
            return
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            text, path = "HTTP request failed unexpectedly path=%s", safe(scope["path"])
            self._port.peer_log.log(logger, logging.ERROR, text, path, is_fault=True)
            if not answer.status:
                problem = Problem(500, "the request failed unexpectedly; the server's log has the reason")
                await problem.response(Headers(scope=scope))(scope, receive, answer.send)
            else:
                answer.connection.abort("answer_failed")
        finally:
            self._count(self._templates.get(scope.get("endpoint"), "(unknown)"), answer)

    def _count(self, route: str, answer: "_Answer") -> None:
        self._port.counters.count("rocketmq_namesrv_http_requests_total", route, str(answer.status))


def limited(route: Route, load: Load, port: Port) -> Route:
    """Return a route that refuses requests while too many of the same load are being answered."""
    app = route.app

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        limits, now = port.settings, port.load
        if load == "stream" and now.streams >= limits.max_streams:
            port.event("stream_refused")
            text = f"advanced.http.max_streams={limits.max_streams} followers of the changes are connected already"
            raise Problem(503, f"{text}; try again, or use another server", kind=TRY_AGAIN, headers=_RETRY)
        if load == "request" and now.inflight >= limits.max_requests:
            port.event("request_refused")
            text = f"advanced.http.max_requests={limits.max_requests} requests are being answered already"
            raise Problem(503, f"{text}; try again", kind=TRY_AGAIN, headers=_RETRY)
        now.streams += load == "stream"
        now.inflight += load == "request"
        try:
            await app(scope, receive, send)
        finally:
            now.streams -= load == "stream"
            now.inflight -= load == "request"

    route.app = app if load == "vital" else counted
    return route


class _Answer:
    """One answer that is being sent. It closes the connection if the client does not read."""

    def __init__(self, scope: Scope, send: Send, slow_reader_s: float) -> None:
        self.status = 0
        self.connection: HttpProtocol = scope["state"][CONNECTION]
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
            self.connection.abort("slow_reader")
            return
        self.connection.wrote()
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            # Nothing else waits for the client any more, but much of the answer may be unread.
            self.connection.expect_reader(self._slow_reader_s)


def _refused(scope: Scope) -> Problem | None:
    """Return why a request is refused, whatever its path is; None if it is not."""
    if scope["method"] not in _METHODS:
        return Problem(405, "this port accepts only GET and HEAD", headers={"Allow": ", ".join(_METHODS)})
    headers = Headers(scope=scope)
    if headers.get("content-length", "0").strip("0") or "transfer-encoding" in headers:
        # The rest of the body is not read, so the connection must close after the answer.
        return Problem(413, "requests to this port must have no body", headers={"Connection": "close"})
    if scope["query_string"].count(b"&") >= _MOST_PARAMETERS:
        return Problem(400, f"the query has more than {_MOST_PARAMETERS} parameters")
    return None


MISDIRECTED = 421
CROSS_SITE = 403


class AllowedHosts:
    """Allowed host names, without ports; ``*.example.com`` means every name that ends in ``.example.com``."""

    def __init__(self, names: Iterable[str]) -> None:
        names = [name.lower() for name in names]
        self._names = frozenset(["localhost", *names])
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))

    def allows(self, host: str) -> bool:
        """Return whether a ``Host`` header, with or without a port, names this server."""
        name = _name(host)
        if name in self._names or name.endswith(self._endings):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def only_for(hosts: AllowedHosts, app: ASGIApp) -> ASGIApp:
    """Return ``app`` restricted to requests to these hosts, and not by other sites; others raise a ``Problem``."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        # HTTP/1.0 requests may lack the header, but every browser sends it.
        headers = Headers(scope=scope)
        host = headers.get("host", "localhost")
        if not hosts.allows(host):
            raise Problem(
                MISDIRECTED,
                f"this server does not answer for the host name {safe(_name(host))}: use its IP address, or add the "
                "name to its setting http.allowed_hosts",
            )
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_link(scope, headers):
            raise Problem(CROSS_SITE, "a page of another site sent this request: this server only follows its links")
        await app(scope, receive, send)

    return checked


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser opens the answer as a page, and not inside another one."""
    of_link = ("GET", "navigate", "document")
    return (scope["method"], headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == of_link


def _name(host: str) -> str:
    """Return the name or address in a ``Host`` header, in lower case, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")
