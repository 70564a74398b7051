"""Asks a server whether it is ready, and what time it has."""

import http.client
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from namesrv_stream.clock import SystemClock

_TIMEOUT_S: Final = 5.0
_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of it.

    Attributes:
        body: The answer's.
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
    context = ssl.create_default_context()
    if not is_certificate_checked:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # Not by a proxy of the environment: servers are near.
    https = urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
    began = time.monotonic()
    try:
        with opener.open(url + "/readyz", timeout=_TIMEOUT_S) as answer:
            body, date = answer.read(), answer.headers.get("Date")
    except urllib.error.HTTPError as refused:
        with refused:  # a server that is not ready says so with 503
            body, date = refused.read(), refused.headers.get("Date")
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        return Asked(reason=f"does not answer: {reason}")
    return Asked(body, _ahead_ms(date, round((time.monotonic() - began) * 1000)))


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
