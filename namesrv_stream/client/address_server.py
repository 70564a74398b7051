"""The list of name servers as an HTTP server tells it: ``GET http://host/rocketmq/nsaddr``.

Source: rocketmq 5.3.3, DefaultTopAddressing: the first line of the answer is the list; 3 s at most.
"""

import asyncio
import contextlib
from typing import Final
from urllib.parse import SplitResult, urlsplit

from namesrv_stream.client.errors import AddressServerUnreachable
from namesrv_stream.client.name_servers import parse_name_servers
from namesrv_stream.errors import ConfigError

_MAX_ANSWER_BYTES: Final = 64 * 1024
_PORTS: Final = {"http": 80, "https": 443}


def is_address_server(name_servers: str) -> bool:
    """Whether the text is the address of such a server rather than a list."""
    return name_servers.strip().lower().startswith(("http://", "https://"))


async def fetch_name_servers(url: str, timeout_ms: int = 3_000) -> tuple[str, ...]:
    """Ask an address server. No proxy is used and no redirection followed: such servers are next door.

    Args:
        url: ``http://host[:port]/path``.
        timeout_ms: Milliseconds for it all.

    Returns:
        The name servers, ``host:port`` each, at least one.

    Raises:
        AddressServerUnreachable: It did not answer, or not with a list.
        ConfigError: ``url`` is no such address.
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
        raise AddressServerUnreachable(url, f"its first line is no list: {error.key[:80]}") from None


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        is_valid = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0 and url.isascii()
    except ValueError:  # a port that is no number, half an IPv6 address
        is_valid = False
    if not is_valid or any(not char.isprintable() or char == " " for char in url.strip()):
        raise ConfigError("name servers", url, "expected http://host[:port]/path")
    return parts


async def _get(parts: SplitResult) -> bytes:
    port = parts.port or _PORTS[parts.scheme]
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=parts.scheme == "https" or None)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # HTTP/1.0, so that the answer comes in one piece that ends with the connection.
        writer.write(f"GET {target} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: text/plain\r\n\r\n".encode())
        answer = b""
        while len(answer) < _MAX_ANSWER_BYTES and (data := await reader.read(_MAX_ANSWER_BYTES)):
            answer += data
        return answer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
