"""Asks a server whether it is ready, and what time it has."""

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from namesrv_stream.client.server_states import BadAnswer, ServerUnreachable, fetch
from namesrv_stream.clock import SystemClock

_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of it.

    Attributes:
        body: The answer's, whatever its status: a server that is not ready says so with 503.
        ahead_ms: How far the server's clock is ahead of ours, less what the question took; None where it is not said.
        reason: Why there is no answer; "" where there is one.
    """

    body: bytes = b""
    ahead_ms: int | None = None
    reason: str = ""


def ask(url: str, *, is_certificate_checked: bool = True) -> Asked:
    """``GET /readyz``; blocks, 5 s at most.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        is_certificate_checked: Whether the server's must be one that this machine trusts, for that host.
    """
    began = time.monotonic()
    try:
        answer = fetch(
            url,
            "/readyz",
            timeout_s=_TIMEOUT_S,
            most_bytes=_MOST_BYTES,
            is_certificate_checked=is_certificate_checked,
        )
    except (ServerUnreachable, BadAnswer) as error:
        return Asked(reason=error.reason)
    return Asked(answer.body, _ahead_ms(answer.date, round((time.monotonic() - began) * 1000)))


def _ahead_ms(date: str | None, took_ms: int) -> int | None:
    """0 where the second that the answer names, and the time that the question took, allow it."""
    if date is None:
        return None
    try:
        second_ms = round(parsedate_to_datetime(date).timestamp() * 1000)
    except ValueError:
        return None
    now_ms = SystemClock().now_ms()
    if second_ms > now_ms:
        return second_ms - now_ms
    return min(0, second_ms + _SECOND_MS + took_ms - now_ms)
