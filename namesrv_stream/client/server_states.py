"""Queries servers over HTTP for the state that they serve.

The queries do not use remoting, because RocketMQ has no such request. A request code of this product's own might
collide with a future one of RocketMQ (ADR 0057).
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError

from namesrv_stream.addresses import http_url
from namesrv_stream.client.client_connection import reason_of
from namesrv_stream.errors import ConfigError, NamesrvStreamError, PrerequisiteMissing

_TIMEOUT_S: Final = 10.0
#: Longest time for a whole answer, in timeouts.
_TOTAL: Final = 6
#: Limit of one answer; the rows of a broker with 70,000 topics have some megabytes.
_MOST_BYTES: Final = 256 << 20


@cache
def _context(is_certificate_checked: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not is_certificate_checked:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


_Answer = TypeVar("_Answer")
_Found = TypeVar("_Found")


class ServerUnreachable(PrerequisiteMissing):
    """A server does not answer over HTTP.

    Attributes:
        url: HTTP address of the server.
        reason: Why there is no answer, as a clause without the address.
    """

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = f"does not answer ({reason})"
        super().__init__(
            f"{url} {self.reason}", "check that it is the HTTP address (http.listen_host, http.listen_port)"
        )


class BadAnswer(NamesrvStreamError):
    """A server answers, but not as a server of this product.

    Attributes:
        url: HTTP address of the server.
        reason: What is wrong with the answer, as a clause without the address.
    """

    def __init__(self, url: str, path: str, reason: str) -> None:
        self.url = url
        self.reason = f"answers {path} with {reason}: it is not a server of this version"
        super().__init__(f"{url} {self.reason}")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP answer with any status.

    Attributes:
        date: The ``Date`` header, which has the time of the server's clock; None if the answer has none.
    """

    status: int
    body: bytes = field(repr=False)  # asyncio.run formats the result twice
    date: str | None


@dataclass(frozen=True, slots=True)
class ServerState:
    """The answer of ``/state``.

    Attributes:
        version: Version of ``route_changes``; -1 for none.
        age_ms: Milliseconds since the server applied the last commit of the job; before the first one, since its start.
        pending_events: Accepted events that are not committed.
        next_offsets: Kafka partition → first offset that the committed rows do not cover.
        digest: Digest of all committed rows.
        partitions: Kafka partition → digest of its committed rows.
    """

    server_id: str
    server_epoch: int
    software: str
    version: int
    age_ms: int
    pending_events: int
    next_offsets: Mapping[int, int]
    digest: str
    partitions: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class PartDigest:
    """The digest of one part of a partition; parts are named as in ``route.digest``."""

    kind: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class PartitionParts:
    """The answer of ``/state/keys``: the digests of all parts of a partition."""

    next_offset: int
    parts: Sequence[PartDigest]


@dataclass(frozen=True, slots=True)
class PartRows:
    """The answer of ``/state/rows``: the rows of one part of a partition."""

    next_offsets: Mapping[int, int]
    rows: Sequence[Mapping[str, Any]]


def parse_http_addrs(text: str, flag: str = "--http") -> tuple[str, ...]:
    """Return the distinct addresses in ``http://a:9880;http://b:9880``, in order; ``http://`` is optional.

    Raises:
        ConfigError: There is no address, or one is not ``http://host:port`` or ``https://host:port``.
    """
    addrs = []
    for part in text.replace(",", ";").split(";"):
        if not (addr := part.strip().rstrip("/")):
            continue
        try:
            addrs.append(http_url(addr))
        except ValueError:
            raise ConfigError("command line", flag, f"{addr!r} is not http://host:port") from None
    if not addrs:
        raise ConfigError("command line", flag, "expected http://host:port, several separated by ;")
    return tuple(dict.fromkeys(addrs))


async def get(
    url: str, path: str, answer: type[_Answer], *, is_certificate_checked: bool = True, **query: str | int
) -> _Answer:
    """Return the answer of a server at ``path``, decoded as ``answer``, a dataclass whose fields the answer must have.

    Without ``is_certificate_checked``, the certificate is not verified. That is for servers on this machine: their
    certificates contain the address that other machines use.

    Raises:
        ServerUnreachable: No answer.
        BadAnswer: The server is another product or too old.
    """
    full = path + (f"?{urlencode(query)}" if query else "")
    return await asyncio.to_thread(ask, url, full, answer, is_certificate_checked=is_certificate_checked)


async def ask_each(
    urls: Sequence[str], query: Callable[[str], Awaitable[_Found]]
) -> tuple[dict[str, _Found], dict[str, ServerUnreachable | BadAnswer]]:
    """Query all servers at once. Return what ``query`` returns for each of them, and why the others did not answer."""

    async def outcome(url: str) -> _Found | ServerUnreachable | BadAnswer:
        try:
            return await query(url)
        except (ServerUnreachable, BadAnswer) as failure:
            return failure

    found: dict[str, _Found] = {}
    failures: dict[str, ServerUnreachable | BadAnswer] = {}
    for url, result in zip(urls, await asyncio.gather(*map(outcome, urls)), strict=True):
        if isinstance(result, ServerUnreachable | BadAnswer):
            failures[url] = result
        else:
            found[url] = result
    return found, failures


def ask(
    url: str,
    path: str,
    answer: type[_Answer],
    *,
    timeout_s: float = _TIMEOUT_S,
    most_bytes: int = _MOST_BYTES,
    is_certificate_checked: bool = True,
) -> _Answer:
    """As ``get``; blocks.

    Raises:
        ServerUnreachable: No answer.
        BadAnswer: The server is another product or too old, or its answer is too long.
    """
    found = fetch(url, path, timeout_s=timeout_s, most_bytes=most_bytes, is_certificate_checked=is_certificate_checked)
    if found.status != HTTPStatus.OK:
        raise BadAnswer(url, path, str(found.status))
    try:
        return TypeAdapter(answer).validate_json(found.body)
    except ValidationError:
        raise BadAnswer(url, path, "something unexpected") from None


def fetch(
    url: str,
    path: str,
    *,
    timeout_s: float = _TIMEOUT_S,
    most_bytes: int = _MOST_BYTES,
    is_certificate_checked: bool = True,
) -> HttpAnswer:
    """Return the answer of a server at ``path``, with any status but 421; blocks.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        path: Path with its query string.
        timeout_s: Longest wait for the next bytes, in seconds; the whole answer may take six times as long.
        most_bytes: Largest size of the body, in bytes.
        is_certificate_checked: Whether this machine must trust the server's certificate for that host.

    Raises:
        ServerUnreachable: The server does not answer, or refuses the host name of the URL (421).
        BadAnswer: The answer is not HTTP, or too long.
    """
    limits = timeout_s, _TOTAL * timeout_s, most_bytes + 1
    try:
        found = exchange(url + path, *limits, is_certificate_checked=is_certificate_checked)
    except OSError as error:
        raise ServerUnreachable(url, str(error)) from None
    except ValueError:
        raise BadAnswer(url, path, "something that is not HTTP") from None
    if found.status == HTTPStatus.MISDIRECTED_REQUEST:
        raise ServerUnreachable(url, "421: add this host name to its http.allowed_hosts, or use its IP address")
    if len(found.body) > most_bytes:
        raise BadAnswer(url, path, f"more than {most_bytes} bytes")
    return found


def exchange(
    url: str,
    timeout_s: float,
    total_s: float,
    most_bytes: int,
    *,
    report: bytes | None = None,
    headers: Mapping[str, str] = {},
    is_certificate_checked: bool = True,
    uses_proxy: bool = False,
) -> HttpAnswer:
    """Send a GET, or a POST with ``report``, and return the answer with any status; blocks. Follows no redirect.

    Args:
        timeout_s: Longest wait for the connection and for the next bytes, in seconds.
        total_s: Longest time from the connection to the end of the body, in seconds. The lookup of the host's name may
            take longer, because only the system's resolver limits it.
        most_bytes: Reading ends when the body has this size, in bytes, or somewhat more; 0 for no body.
        uses_proxy: Whether to send it through the proxy that the environment names.

    Raises:
        OSError: There is no complete answer in time.
        ValueError: The answer is not HTTP, or the URL, or the proxy's, cannot be used.
    """
    import httpx  # takes a quarter of the time in which a command starts

    async def answer() -> HttpAnswer:
        method, context = "POST" if report else "GET", _context(is_certificate_checked)
        async with (
            asyncio.timeout(total_s),
            httpx.AsyncClient(verify=context, timeout=timeout_s, trust_env=uses_proxy) as client,
            client.stream(method, url, content=report, headers={**headers, "Accept-Encoding": "identity"}) as found,
        ):
            body, pieces = bytearray(), found.aiter_raw()
            while len(body) < most_bytes and (piece := await anext(pieces, b"")):
                body += piece
            return HttpAnswer(found.status_code, bytes(body), found.headers.get("Date"))

    try:
        return asyncio.run(answer())
    except (TimeoutError, httpx.TimeoutException):
        raise TimeoutError("timed out") from None
    except httpx.TransportError as error:
        cause: BaseException = error
        while inner := getattr(cause, "exceptions", (cause.__cause__ or cause.__context__,))[0]:
            cause = inner
        # If httpcore's own error is the cause, and none of h11, the peer closed the connection.
        is_garbled = isinstance(error, httpx.RemoteProtocolError) and cause is not error.__cause__
        raise (ValueError if is_garbled else OSError)(reason_of(cause)) from None
    except (httpx.InvalidURL, ImportError) as error:  # ImportError: the proxy is one for SOCKS
        raise ValueError(str(error)) from None
