"""The list of name servers: given, or fetched from an address server; any of them can answer.

Source: rocketmq 5.3.3, DefaultTopAddressing: the first line of the answer is the list, and a request takes at most 3 s.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import SplitResult, urlsplit

from namesrv_stream.client.client_connection import address_of
from namesrv_stream.client.client_errors import (
    AddressServerUnreachable,
    ClientClosed,
    ConnectionLost,
    NameServersUnreachable,
    RequestTimedOut,
)
from namesrv_stream.client.server_link import ServerLink
from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.remoting.command import AclCredentials, RemotingCommand, signed

_MAX_ANSWER_BYTES: Final = 64 * 1024
_PORTS: Final = {"http": 80, "https": 443}
T = TypeVar("T")
#: Source: rocketmq 5.3.3, NettyClientConfig.connectTimeoutMillis and ClientConfig.mqClientApiTimeout.
CONNECT_TIMEOUT_MS: Final = 3_000
REQUEST_TIMEOUT_MS: Final = 3_000
_LEFT: Final = "no longer in the list"


def is_address_server(name_servers: str) -> bool:
    """Whether the text is the URL of an address server and not a list."""
    return name_servers.strip().lower().startswith(("http://", "https://"))


async def fetch_name_servers(url: str, timeout_ms: int = 3_000) -> tuple[str, ...]:
    """Request the list of an address server, without proxies or redirects: address servers are in the same network.

    Args:
        url: ``http://host[:port]/path``.
        timeout_ms: Time limit of the whole request, in milliseconds.

    Returns:
        The name servers, ``host:port`` each, at least one.

    Raises:
        AddressServerUnreachable: The address server did not answer, or its answer is not a list.
        ConfigError: ``url`` has a different form.
    """
    parts = _split(url)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            answer = await _get(parts)
    except TimeoutError:
        raise AddressServerUnreachable(url, f"no answer within {timeout_ms} ms") from None
    except (OSError, UnicodeError) as error:
        reason = "connection refused" if isinstance(error, ConnectionRefusedError) else str(error)
        raise AddressServerUnreachable(url, reason) from None
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    if not status[0].startswith("HTTP/") or status[1:2] != ["200"]:
        raise AddressServerUnreachable(url, f"answered {' '.join(status)[:80]!r}")
    try:
        return parse_name_servers(body.lstrip().decode("utf-8", "replace").partition("\n")[0])
    except ConfigError as error:
        raise AddressServerUnreachable(url, f"its first line is not a list: {error.key[:80]}") from None


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        is_valid = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0 and url.isascii()
    except ValueError:  # a port that is not a number, an incomplete IPv6 address
        is_valid = False
    if not is_valid or any(not char.isprintable() or char == " " for char in url.strip()):
        raise ConfigError("name servers", url, "expected http://host[:port]/path")
    return parts


async def _get(parts: SplitResult) -> bytes:
    port = parts.port or _PORTS[parts.scheme]
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=parts.scheme == "https" or None)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # HTTP/1.0, so that the answer is not chunked and ends with the connection.
        writer.write(f"GET {target} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: text/plain\r\n\r\n".encode())
        answer = b""
        while len(answer) < _MAX_ANSWER_BYTES and (data := await reader.read(_MAX_ANSWER_BYTES)):
            answer += data
        return answer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def parse_name_servers(text: str) -> tuple[str, ...]:
    """Return the distinct addresses in ``a:9876;b:9876``, in order; commas are accepted as well.

    Raises:
        ConfigError: There is no address, or one is not ``host:port``.
    """
    addrs = tuple(dict.fromkeys(addr for part in text.replace(",", ";").split(";") if (addr := part.strip())))
    if not addrs:
        raise ConfigError("name servers", repr(text), "expected host:port, several separated by ;")
    for addr in addrs:
        address_of(addr)
    return addrs


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The outcome of a request at one of several name servers.

    Attributes:
        addr: The server.
        value: Its answer; None after an error.
        error: The error; None after an answer.
    """

    addr: str
    value: T | None = None
    error: NamesrvStreamError | None = None


class NameServers:
    """Sends requests to one of several name servers, to the same one until it fails.

    A server that failed is used again only after its back-off, or if every other one has failed, too.
    """

    def __init__(
        self,
        addrs: Iterable[str],
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        credentials: AclCredentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare the servers, without a connection.

        Args:
            addrs: ``host:port`` each; at least one.
            connect_timeout_ms: Time limit of a connection attempt, in milliseconds.
            credentials: Credentials that sign every request; None for unsigned requests.
        """
        self._tls = tls
        self._connect_timeout_ms = connect_timeout_ms
        self._credentials = credentials
        self._is_closed = False
        self._links = [ServerLink(addr, connect_timeout_ms, tls) for addr in addrs]
        # Clients of one list should not all use its first server. Source: rocketmq 5.3.3,
        # NettyRemotingClient.initValueIndex.
        self._chosen = random.choice(self._links)

    @property
    def addrs(self) -> Sequence[str]:
        """All addresses."""
        return [link.addr for link in self._links]

    @property
    def chosen(self) -> str:
        """The address of the server that ``invoke`` tries first, unless it is in back-off."""
        return self._chosen.addr

    async def invoke(self, request: RemotingCommand, timeout_ms: int = REQUEST_TIMEOUT_MS) -> RemotingCommand:
        """Send a request to the chosen server and, if that fails, to the others in turn.

        Args:
            request: An idempotent request, since several servers may get it, or one of them twice.

        Returns:
            The first response, whatever its code: a refusal is an answer, too.

        Raises:
            NameServersUnreachable: None of them answered.
            RequestTooLarge: The request does not fit into a frame.
            ClientClosed: ``close`` was called.
        """
        request = self._signed(request)
        reasons: dict[str, str] = {}
        tried: set[ServerLink] = set()
        # The list may be replaced meanwhile, so every step looks up the next server.
        while untried := [link for link in self._order() if link not in tried]:
            link = untried[0]
            tried.add(link)
            try:
                response = await link.invoke(request, timeout_ms)
            except (ConnectionLost, RequestTimedOut) as error:
                reasons[link.addr] = error.reason
            except ClientClosed:
                if self._is_closed:
                    raise
                reasons[link.addr] = _LEFT
            else:
                if link in self._links:
                    self._chosen = link
                return response
        raise NameServersUnreachable(reasons)

    async def invoke_each(
        self, request: RemotingCommand, decode: Callable[[RemotingCommand], T], timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> list[Outcome[T]]:
        """Send a request to every server, one after the other, as mqadmin does for an operator's change.

        Args:
            decode: Decodes a response; may raise a NamesrvStreamError.

        Returns:
            The outcome at every server, in the order of the list.

        Raises:
            ClientClosed: ``close`` was called.
        """
        outcomes: list[Outcome[T]] = []
        for addr in self.addrs:
            try:
                outcomes.append(Outcome(addr, value=decode(await self.invoke_at(addr, request, timeout_ms))))
            except ClientClosed:
                if self._is_closed:
                    raise
                outcomes.append(Outcome(addr, error=ConnectionLost(addr, _LEFT)))
            except NamesrvStreamError as error:
                outcomes.append(Outcome(addr, error=error))
        return outcomes

    async def invoke_at(
        self, addr: str, request: RemotingCommand, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> RemotingCommand:
        """Send a request to one server only.

        Args:
            addr: One of ``addrs``.
            request: An idempotent request, since the server may get it twice.

        Returns:
            The response, whatever its code.

        Raises:
            ConnectionLost: The connection cannot be opened, or ended before the answer.
            RequestTimedOut: No answer in time.
            RequestTooLarge: The request does not fit into a frame.
            ClientClosed: ``close`` was called, or the server is no longer in the list.
        """
        link = next((link for link in self._links if link.addr == addr), None)
        if link is None:
            raise ClientClosed
        return await link.invoke(self._signed(request), timeout_ms)

    def only(self, addr: str) -> "NameServers":
        """Return a ``NameServers`` of this server only, with the same credentials and TLS; the caller must close it."""
        return NameServers((addr,), self._connect_timeout_ms, self._credentials, self._tls)

    async def replace_addrs(self, addrs: Iterable[str]) -> None:
        """Use another list: connections to servers in both lists stay open, others are closed.

        Args:
            addrs: ``host:port`` each; at least one.
        """
        links = {link.addr: link for link in self._links}
        self._links = [
            links.pop(addr) if addr in links else ServerLink(addr, self._connect_timeout_ms, self._tls)
            for addr in addrs
        ]
        if self._chosen not in self._links:
            self._chosen = random.choice(self._links)
        await asyncio.gather(*(link.close() for link in links.values()))

    async def close(self) -> None:
        """Close all connections permanently; pending requests end with ClientClosed."""
        self._is_closed = True
        await asyncio.gather(*(link.close() for link in self._links))

    def _order(self) -> list[ServerLink]:
        """Return the order of attempts: the chosen server, the next ones, then those in back-off, shortest first."""
        now_s = asyncio.get_running_loop().time()
        start = self._links.index(self._chosen)
        turn = [*self._links[start:], *self._links[:start]]
        return sorted(turn, key=lambda link: max(0.0, link.retry_at_s - now_s))

    def _signed(self, request: RemotingCommand) -> RemotingCommand:
        if self._is_closed:
            raise ClientClosed
        return request if self._credentials is None else signed(request, self._credentials)
