"""Asks servers over HTTP what they serve.

Not over remoting: RocketMQ has no such request, and a code of our own could one day be one of theirs.
"""

import asyncio
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

from pydantic import TypeAdapter, ValidationError

from namesrv_stream.errors import ConfigError, NamesrvStreamError, PrerequisiteMissing

_TIMEOUT_S: Final = 10.0
#: Of one answer; rows of a broker of 70,000 topics are some megabytes.
_MOST_BYTES: Final = 256 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever was named is asked, and nobody else: an answer must not lead us anywhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener(context: ssl.SSLContext) -> urllib.request.OpenerDirector:
    # No proxy: name servers are next door.
    https = urllib.request.HTTPSHandler(context=context)
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect(), https)


@cache
def _checking() -> urllib.request.OpenerDirector:
    return _opener(ssl.create_default_context())


@cache
def _trusting() -> urllib.request.OpenerDirector:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return _opener(context)


_Answer = TypeVar("_Answer")


class ServerUnreachable(PrerequisiteMissing):
    """A server does not answer over HTTP.

    Attributes:
        url: Its address.
        reason: What happened instead.
    """

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = f"does not answer ({reason})"
        super().__init__(f"{url} {self.reason}", "is it the HTTP address (http.listen_host, http.listen_port)?")


class BadAnswer(NamesrvStreamError):
    """A server answers, but not as one of ours.

    Attributes:
        url: Its address.
        reason: What it answers.
    """

    def __init__(self, url: str, path: str, reason: str) -> None:
        self.url = url
        self.reason = f"answers {path} with {reason}: is it a server of this version?"
        super().__init__(f"{url} {self.reason}")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer as it came.

    Attributes:
        date: What the server's clock said; None where it does not say.
    """

    status: int
    body: bytes
    date: str | None


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server says of itself at ``/state``.

    Attributes:
        version: Of ``route_changes``; -1 for none.
        age_ms: Since it took over a commit of the job.
        pending_events: Accepted and not committed.
        next_offsets: Kafka partition → first offset that is not covered.
        digest: Of all committed rows.
        partitions: Kafka partition → digest.
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
    """A part of a partition, by its names in ``route.digest``."""

    kind: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class PartitionParts:
    """The answer of ``/state/keys``."""

    next_offset: int
    parts: Sequence[PartDigest]


@dataclass(frozen=True, slots=True)
class PartRows:
    """The answer of ``/state/rows``."""

    next_offsets: Mapping[int, int]
    rows: Sequence[Mapping[str, Any]]


def parse_http_addrs(text: str, flag: str = "--http") -> tuple[str, ...]:
    """The addresses in ``http://a:9880;http://b:9880``, in order, each once; ``http://`` may be left out.

    Raises:
        ConfigError: One is none.
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
    """What a server answers at ``path``, which has the fields of ``answer`` at least.

    The certificate of a server on this machine names the address that others know, so it need not be checked.

    Raises:
        ServerUnreachable: No answer.
        BadAnswer: Not one of our servers, or an older one.
    """
    full = path + (f"?{urlencode(query)}" if query else "")
    return await asyncio.to_thread(ask, url, full, answer, is_certificate_checked=is_certificate_checked)


def ask(
    url: str,
    path: str,
    answer: type[_Answer],
    *,
    timeout_s: float = _TIMEOUT_S,
    most_bytes: int = _MOST_BYTES,
    is_certificate_checked: bool = True,
) -> _Answer:
    """The same; blocks.

    Raises:
        ServerUnreachable: No answer.
        BadAnswer: Not one of our servers, an older one, or too long an answer.
    """
    found = fetch(url, path, timeout_s=timeout_s, most_bytes=most_bytes, is_certificate_checked=is_certificate_checked)
    if found.status != HTTPStatus.OK:
        raise BadAnswer(url, path, str(found.status))
    try:
        return TypeAdapter(answer).validate_json(found.body)
    except ValidationError:
        raise BadAnswer(url, path, "something else than expected") from None


def fetch(
    url: str,
    path: str,
    *,
    timeout_s: float = _TIMEOUT_S,
    most_bytes: int = _MOST_BYTES,
    is_certificate_checked: bool = True,
) -> HttpAnswer:
    """What a server answers at ``path``, of whatever status; blocks.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        path: With its query.
        timeout_s: Seconds to wait for its parts.
        most_bytes: Of the body.
        is_certificate_checked: Whether the server's must be one that this machine trusts, for that host.

    Raises:
        ServerUnreachable: No answer, or none under the URL's host name.
        BadAnswer: No HTTP, or too long an answer.
    """
    opener = _checking() if is_certificate_checked else _trusting()
    try:
        with opener.open(url + path, timeout=timeout_s) as answer:
            found = HttpAnswer(answer.status, bytes(answer.read(most_bytes + 1)), answer.headers.get("Date"))
    except urllib.error.HTTPError as error:
        with error:
            found = HttpAnswer(error.code, bytes(error.read(most_bytes + 1)), error.headers.get("Date"))
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        text = (reason.strerror if isinstance(reason, OSError) else None) or reason
        raise ServerUnreachable(url, str(text)) from None
    except http.client.HTTPException as error:
        raise BadAnswer(url, path, f"no HTTP ({type(error).__name__})") from None
    if found.status == HTTPStatus.MISDIRECTED_REQUEST:
        raise ServerUnreachable(url, "421: add this host name to its http.allowed_hosts, or use its IP address")
    if len(found.body) > most_bytes:
        raise BadAnswer(url, path, f"more than {most_bytes} bytes")
    return found
