"""Host names that the HTTP port answers for.

A web page can make its own name resolve to 127.0.0.1 ("DNS rebinding"): the browser then takes this server for the
page's own and lets it read every answer. The browser still sends the page's name as ``Host``, so unknown names are
refused. Literal addresses and ``localhost`` are safe: no web page can be loaded from a name of that kind and resolve it
elsewhere.
"""

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from namesrv_stream.logs import safe
from namesrv_stream.server.http.responses import Problem

MISDIRECTED = 421


class AllowedHosts:
    """Names without a port; ``*.example.com`` stands for every name that ends in ``.example.com``."""

    def __init__(self, names: Iterable[str]) -> None:
        names = [name.lower() for name in names]
        self._names = frozenset(["localhost", *names])
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))

    def allows(self, host: str) -> bool:
        """Whether a ``Host`` header, with or without a port, names this server."""
        name = _name(host)
        return name in self._names or name.endswith(self._endings) or _is_address(name)


def only_for(hosts: AllowedHosts, app: ASGIApp) -> ASGIApp:
    """``app`` for requests to these hosts; raises a ``Problem`` for others."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        # A request of HTTP/1.0 may have none; every browser sends one.
        host = Headers(scope=scope).get("host", "localhost")
        if not hosts.allows(host):
            raise Problem(
                MISDIRECTED,
                f"this server does not answer for the host name {safe(_name(host))}: use its IP address, or add the "
                "name to its setting http.allowed_hosts",
            )
        await app(scope, receive, send)

    return checked


def _name(host: str) -> str:
    """The name or address of a ``Host`` header, in lower case, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
