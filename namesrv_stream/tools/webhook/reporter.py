"""The webhook process: follows the changes of a name server over HTTP, and reports those that the settings ask for.

It reports at least once and in order: it stores a position after the receiver has accepted everything before it, or
after the report was dropped (``advanced.webhook.give_up_ms``). A position belongs to the tables and not to a server, so
the webhook can continue at any server of these tables.
"""

import logging
import signal
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from types import FrameType
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from namesrv_stream.client.server_link import BackOff
from namesrv_stream.client.server_states import BadAnswer, ServerUnreachable, fetch
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.processes import locked, read_run_file, write_run_file
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import server_address
from namesrv_stream.tables.storage import Folder
from namesrv_stream.tools.webhook.reports import Sender, events_of, kinds, lost_events, message

#: Prefix of a position at a server whose tables do not exist yet, so that there is nothing to report.
_NO_TABLES: Final = "1.0."
_POSITION_FILE: Final = "position.json"
_RETRY_INTERVAL_S: Final = 1.0
#: Events in one report.
_MOST_EVENTS: Final = 100
#: Seconds for which a server waits for a change before it answers without one.
_WAIT_S: Final = 20
#: Bytes of an answer; a server sends pieces of a quarter of a MiB, or of some MiB if all names are long.
_MOST_BYTES: Final = 64 << 20

logger = logging.getLogger(__name__)


def run_webhook(settings: Settings) -> int:
    """Report changes until SIGTERM or SIGINT; blocks.

    Returns:
        0 after such a signal.

    Raises:
        ConfigError: There is no URL, a file cannot be read, or another process reports from this directory.
    """
    if not settings.webhook.is_configured:
        raise ConfigError("settings", "webhook.url", "is missing: set the URL of the receiver (--url URL)")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    reporter = Reporter(settings)
    with locked(settings.data.webhook_dir / "lock", "data.dir", "another webhook runs on this directory"):
        write_run_file(settings.data.run_dir / "webhook.json", {})
        reporter.run()
    return 0


def _stop(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


class Reporter:
    """Reports to one receiver, and stores the position up to which the receiver has accepted the changes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sender = Sender(settings.webhook)
        self._folder = Folder(settings.data.webhook_dir)
        self._folder.make()
        self._servers = 0  # number of changes to another server
        self._back_off = BackOff(200, 10_000)

    def run(self) -> None:
        """Follow the changes and report them until the process ends."""
        position = str((read_run_file(self._folder.path / _POSITION_FILE) or {}).get("position", ""))
        logger.info("webhook started position=%s", position or "now")
        while True:
            try:
                position = self._step(position)
                self._back_off.reset()
            except (ServerUnreachable, BadAnswer) as error:
                self._servers += 1
                delay_s = self._back_off.next_delay_ms() / 1000
                logger.warning("cannot read changes retry_in_s=%.1f reason=%s", delay_s, error)
                time.sleep(delay_s)

    def _step(self, position: str) -> str:
        """Request the changes after ``position``, report them, and store and return the new position."""
        status, answer = self._ask(position or "now", _WAIT_S if position else 0)
        if status == HTTPStatus.GONE:
            # The current state does not contain the missed changes; the receiver learns that there is a gap.
            status, answer = HTTPStatus.OK, self._ask("now", 0)[1]
            events = [lost_events("the server no longer has the changes since the last report", SystemClock().now_ms())]
        else:
            events = events_of(answer["rows"], self._settings.webhook)
        for begin in range(0, len(events), _MOST_EVENTS):
            self._sender.send(message(events[begin : begin + _MOST_EVENTS]))
        if str(answer["position"]).startswith(_NO_TABLES):
            time.sleep(_RETRY_INTERVAL_S)
            return ""
        if answer["position"] != position:
            self._folder.write(_POSITION_FILE, orjson.dumps({"position": answer["position"]}))
        return str(answer["position"])

    def _ask(self, since: str, wait_s: int) -> tuple[int, dict[str, Any]]:
        servers = _servers(self._settings)
        url = servers[self._servers % len(servers)]
        query = urlencode({"since": since, "wait": wait_s, "kind": kinds(self._settings.webhook)})
        path = f"/changes?{query}"
        is_checked = not _is_own(self._settings)
        found = fetch(url, path, timeout_s=wait_s + 10.0, most_bytes=_MOST_BYTES, is_certificate_checked=is_checked)
        if found.status not in (HTTPStatus.OK, HTTPStatus.GONE):
            raise BadAnswer(url, path, str(found.status))
        try:
            answer = orjson.loads(found.body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or (
            found.status == HTTPStatus.OK and not {"position", "rows"} <= answer.keys()
        ):
            raise BadAnswer(url, path, "something other than changes")
        return found.status, answer


def _is_own(settings: Settings) -> bool:
    """Whether to follow this machine's server, at the loopback address, for which its certificate is not valid."""
    return not settings.webhook.servers


def _servers(settings: Settings) -> Sequence[str]:
    if settings.webhook.servers:
        return settings.webhook.servers
    address = server_address(settings, "http", prefer_running=True)
    return (f"{'https' if settings.http.tls else 'http'}://{address}",)
