"""Asks servers over HTTP what they serve.

Not over remoting: RocketMQ has no such request, and a code of our own could one day be one of theirs.
"""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from namesrv_stream.errors import ConfigError, NamesrvStreamError, PrerequisiteMissing

_TIMEOUT_S: Final = 10.0
# No proxy: name servers are next door.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerUnreachable(PrerequisiteMissing):
    """A server does not answer over HTTP."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"{url} does not answer ({reason})", "is it the HTTP address (http.listen_host, http.listen_port)?"
        )


class BadAnswer(NamesrvStreamError):
    """A server answers, but not as one of ours."""


def parse_http_addrs(text: str) -> tuple[str, ...]:
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
            raise ConfigError("command line", "-n", f"{addr!r} is no http://host:port")
        addrs.append(url)
    if not addrs:
        raise ConfigError("command line", "-n", "expected http://host:port, several separated by ;")
    return tuple(dict.fromkeys(addrs))


async def get(url: str, path: str, **query: str | int) -> dict[str, Any]:
    """The JSON object at ``path``.

    Raises:
        ServerUnreachable: No answer.
        BadAnswer: Not one of our servers, or an older one.
    """
    full = f"{url}{path}" + (f"?{urlencode(query)}" if query else "")
    return await asyncio.to_thread(_get, url, full)


def _get(url: str, full: str) -> dict[str, Any]:
    try:
        with _OPENER.open(full, timeout=_TIMEOUT_S) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise BadAnswer(f"{full} answers {error.code}: is it a server of this version?") from None
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError):
            raise BadAnswer(f"{full} answers with something else than JSON") from None
        reason = getattr(error, "reason", None) or error.strerror or error
        raise ServerUnreachable(url, str(reason)) from None
    if not isinstance(found, dict):
        raise BadAnswer(f"{full} answers with something else than an object")
    return found


def offsets_of(state: Mapping[str, Any]) -> dict[int, int]:
    """partition → next offset."""
    return {int(partition): int(offset) for partition, offset in state["next_offsets"].items()}
