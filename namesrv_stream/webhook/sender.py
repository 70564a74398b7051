"""Sends reports to the receiver, one after the other, until each is taken."""

import hashlib
import hmac
import http.client
import logging
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import orjson

from namesrv_stream import __version__
from namesrv_stream.client.back_off import BackOff
from namesrv_stream.errors import ConfigError
from namesrv_stream.logs import safe
from namesrv_stream.settings import WebhookSettings

SIGNATURE_HEADER: Final = "X-Namesrv-Stream-Signature"
_FIRST_DELAY_MS: Final = 500
_LONGEST_DELAY_MS: Final = 60_000

logger = logging.getLogger(__name__)


def signature(secret: bytes, body: bytes) -> str:
    """The value of the signature's header: ``sha256=`` and the HMAC-SHA256 of the body, in hexadecimal digits."""
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET, without its body."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Sender:
    """One receiver. Files with its URL and its secret are read for every attempt, so that they can be changed.

    Args:
        settings: The webhook's.

    Raises:
        ConfigError: A file cannot be read, or holds no URL.
    """

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._opener = urllib.request.build_opener(_NoRedirect())
        self._url()
        self._secret()

    def send(self, message: dict[str, Any]) -> bool:
        """POST until the receiver answers with a status of 200 to 299; blocks.

        Returns:
            False if it was not taken within ``webhook.give_up_ms``.
        """
        body = orjson.dumps(message)
        until_s = time.monotonic() + self._settings.give_up_ms / 1000
        back_off = BackOff(_FIRST_DELAY_MS, _LONGEST_DELAY_MS)
        while (reason := self._attempt(body)) is not None:
            delay_s = back_off.next_delay_ms() / 1000
            if time.monotonic() + delay_s > until_s:
                ids = ", ".join(event["id"] for event in message["events"])
                logger.error("report dropped, not taken in time reason=%s events=%s", safe(reason), ids)
                return False
            logger.warning("report not taken, next attempt in %.1f s reason=%s", delay_s, safe(reason))
            time.sleep(delay_s)
        return True

    def _attempt(self, body: bytes) -> str | None:
        """Why the receiver did not take it; None if it did."""
        headers = {"Content-Type": "application/json", "User-Agent": f"namesrv-stream/{__version__}"}
        try:
            if secret := self._secret():
                headers[SIGNATURE_HEADER] = signature(secret, body)
            request = urllib.request.Request(self._url(), body, headers, method="POST")
            with self._opener.open(request, timeout=self._settings.timeout_ms / 1000):
                return None
        except urllib.error.HTTPError as error:
            with error:
                return f"status {error.code}"
        except (OSError, http.client.HTTPException, ConfigError) as error:
            return str(error) or type(error).__name__

    def _url(self) -> str:
        if not self._settings.url_file:
            return self._settings.url
        url = _read("webhook.url_file", self._settings.url_file).decode(errors="replace")
        if not url.startswith(("http://", "https://")) or not url.isprintable():
            raise ConfigError(self._settings.url_file, "webhook.url_file", "expected one line, http://… or https://…")
        return url

    def _secret(self) -> bytes:
        return _read("webhook.secret_file", self._settings.secret_file) if self._settings.secret_file else b""


def _read(key: str, path: str) -> bytes:
    try:
        content = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(path, key, f"cannot be read: {error.strerror}") from None
    if not content:
        raise ConfigError(path, key, "is empty")
    return content
