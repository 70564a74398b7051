"""Queries servers over HTTP for the state that they serve.

The queries do not use remoting, because RocketMQ has no such request. A request code of this product's own might
collide with a future one of RocketMQ (ADR 0057).
"""

import asyncio
import http.client
import ssl
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

from pydantic import TypeAdapter, ValidationError

from namesrv_stream.client.bounded_http import answer_to
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
    body: bytes
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
        url = addr if "://" in addr else f"http://{addr}"
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
        except ValueError:
            is_valid = False
        if not is_valid or not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError("command line", flag, f"{addr!r} is not http://host:port")
        addrs.append(url)
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
    try:
        with answer_to(
            urllib.request.Request(url + path),
            urllib.request.ProxyHandler({}),  # no proxy: name servers are in the same network
            timeout_s=timeout_s,
            total_s=_TOTAL * timeout_s,
            context=_context(is_certificate_checked),
        ) as answer:
            found = HttpAnswer(answer.status, bytes(answer.read(most_bytes + 1)), answer.headers.get("Date"))
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        text = (reason.strerror if isinstance(reason, OSError) else None) or reason
        raise ServerUnreachable(url, str(text)) from None
    except http.client.HTTPException as error:
        raise BadAnswer(url, path, f"something that is not HTTP ({type(error).__name__})") from None
    if found.status == HTTPStatus.MISDIRECTED_REQUEST:
        raise ServerUnreachable(url, "421: add this host name to its http.allowed_hosts, or use its IP address")
    if len(found.body) > most_bytes:
        raise BadAnswer(url, path, f"more than {most_bytes} bytes")
    return found
