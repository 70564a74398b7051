"""Events for the receiver of the webhook, and their delivery: in order, each report repeated until it is accepted."""

import hashlib
import hmac
import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from namesrv_stream import __version__
from namesrv_stream.client.server_link import BackOff
from namesrv_stream.client.server_states import exchange
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import iso_instant
from namesrv_stream.logs import safe
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.settings import WebhookSettings

SCHEMA_VERSION: Final = 1

#: (kind of the row, whether its key is deleted) → event. Other rows are never reported.
_EVENTS: Final = {
    (ChangeKind.BROKER_LIVE, True): "broker_down",
    (ChangeKind.GUARD, False): "broker_held",
    (ChangeKind.GUARD, True): "broker_released",
    (ChangeKind.BROKER_DATA, False): "broker_route",
    (ChangeKind.QUEUE_DATA, False): "topic_route",
    (ChangeKind.QUEUE_DATA, True): "topic_route_removed",
}
_COLUMNS: Final = (
    *("at_ms", "cause", "detail", "cluster", "broker_name", "broker_addr", "broker_id", "broker_addrs"),
    *("topic", "read_queue_nums", "write_queue_nums", "perm"),
)
#: What chat programs take for mentions, links, images or code: Slack's ``<!channel>``, the Markdown of Mattermost and
#: Rocket.Chat. Names come from brokers and clients. An underscore is usual in names, and only makes text italic.
_MARKUP: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "&<>@[]`*~"})
#: Lines of ``text``; chat programs show no more.
_MOST_LINES: Final = 20

Event = dict[str, Any]
SIGNATURE_HEADER: Final = "Namesrv-Stream-Signature"
#: For receivers of 0.2.0. Its value covers only the body, so it does not protect from replays.
OLD_SIGNATURE_HEADER: Final = "X-Namesrv-Stream-Signature"
_FIRST_DELAY_MS: Final = 500
_LONGEST_DELAY_MS: Final = 60_000
logger = logging.getLogger(__name__)


def kinds(settings: WebhookSettings) -> str:
    """Return the kinds of rows that can cause the events in ``webhook.events``: the value for ``/changes?kind=``."""
    return ",".join(sorted({kind.value for (kind, _), name in _EVENTS.items() if name in settings.events}))


def events_of(rows: Iterable[Mapping[str, Any]], settings: WebhookSettings) -> list[Event]:
    """Return the events that rows of ``/changes`` cause and that the settings ask for, in the order of the rows."""
    return [event for row in rows if (event := _event(row)) and _is_wanted(event, settings)]


def lost_events(reason: str, at_ms: int) -> Event:
    """Return the event that says that changes were not reported, because the server no longer has them."""
    event = {"id": f"lost:{at_ms}", "event": "events_lost", "at": iso_instant(at_ms), "at_ms": at_ms, "detail": reason}
    return {**event, "text": f"changes were not reported: {reason}"}


def message(events: list[Event]) -> dict[str, Any]:
    """Return the body of one POST. Slack, Mattermost and others show its ``text``."""
    lines = [event["text"] for event in events[:_MOST_LINES]]
    if len(events) > _MOST_LINES:
        lines.append(f"and {len(events) - _MOST_LINES} more")
    return {"schema_version": SCHEMA_VERSION, "text": "\n".join(lines), "events": events}


def _event(row: Mapping[str, Any]) -> Event | None:
    name = _EVENTS.get((row["kind"], row["gone"]))
    if name is None:
        return None
    columns: dict[str, Any] = {column: row[column] for column in _COLUMNS if row.get(column) is not None}
    if "broker_addrs" in columns:  # pairs, since a row is made of tuples
        columns["broker_addrs"] = {str(broker_id): addr for broker_id, addr in columns["broker_addrs"]}
    event = {"id": f"{row['partition']}:{row['offset']}:{row['seq']}", "event": name, "at": iso_instant(row["at_ms"])}
    return {**event, **columns, "text": _text(name, _plain(columns))}


def _plain(value: Any) -> Any:
    """Return a row's values in a form in which chat programs show every text literally, in one line."""
    if isinstance(value, dict):
        return {column: _plain(each) for column, each in value.items()}
    return safe(value).translate(_MARKUP) if isinstance(value, str) else value


def _is_wanted(event: Event, settings: WebhookSettings) -> bool:
    if event["event"] not in settings.events:
        return False
    if settings.clusters and event.get("cluster") not in settings.clusters:
        return False
    return not settings.topics or "topic" not in event or event["topic"] in settings.topics


def _text(name: str, row: Mapping[str, Any]) -> str:
    broker = f"broker {row['broker_name']} of cluster {row.get('cluster', 'unknown')}"
    addr = f"{broker} at {row.get('broker_addr')}"
    because = f" ({row['detail']})" if "detail" in row else ""
    match name:
        case "broker_down":
            return f"{addr} is down: {row['cause']}{because}"
        case "broker_held":
            return f"{addr} seems to be down and is protected by the mass-expiry guard{because}"
        case "broker_released":
            return f"{addr} is no longer protected by the mass-expiry guard: {row['cause']}{because}"
        case "broker_route":
            addrs = ", ".join(f"{broker_id}={addr}" for broker_id, addr in row["broker_addrs"].items())
            return f"{broker} is now at {addrs}: {row['cause']}"
        case "topic_route":
            queues = f"{row['read_queue_nums']} read and {row['write_queue_nums']} write queues, perm {row['perm']}"
            return f"topic {row['topic']} has {queues} at {broker}: {row['cause']}"
        case _:
            return f"topic {row['topic']} is no longer at {broker}: {row['cause']}"


def signature(secret: bytes, url: str, body: bytes, at_s: int) -> str:
    """Return the value of the signature's header: ``t=AT_S,v1=HEX``.

    ``HEX`` is the HMAC-SHA256 of the time and the URL, each in a line, and the body. So a receiver can refuse a report
    that is old, or that was sent to another receiver.

    Args:
        url: The receiver's URL, as the settings have it.
        at_s: Time of the attempt, epoch seconds.
    """
    return f"t={at_s},v1=" + hmac.new(secret, f"{at_s}\n{url}\n".encode() + body, hashlib.sha256).hexdigest()


class Sender:
    """Sends reports to one receiver. The files with its URL and secret are read for every attempt: they may change.

    Raises:
        ConfigError: The constructor cannot read a file, or the file does not contain a URL.
    """

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._url()
        self._secret()

    def send(self, message: dict[str, Any]) -> bool:
        """POST a message until the receiver answers with a status of 200 to 299; blocks.

        Returns:
            Whether the message was accepted within ``advanced.webhook.give_up_ms``; otherwise it is dropped.
        """
        body = orjson.dumps(message)
        until_s = time.monotonic() + self._settings.give_up_ms / 1000
        back_off = BackOff(_FIRST_DELAY_MS, _LONGEST_DELAY_MS)
        while (reason := self._attempt(body)) is not None:
            delay_s = back_off.next_delay_ms() / 1000
            if time.monotonic() + delay_s > until_s:
                ids = ", ".join(event["id"] for event in message["events"])
                logger.error(
                    "report dropped, receiver did not accept it in time reason=%s events=%s", safe(reason), ids
                )
                return False
            logger.warning("report not accepted retry_in_s=%.1f reason=%s", delay_s, safe(reason))
            time.sleep(delay_s)
        return True

    def _attempt(self, body: bytes) -> str | None:
        """Send a report once. Return why the receiver did not accept it in time; None if it did."""
        headers = {"Content-Type": "application/json", "User-Agent": f"namesrv-stream/{__version__}"}
        timeout_s = self._settings.timeout_ms / 1000
        try:
            url = self._url()
            if secret := self._secret():
                headers[SIGNATURE_HEADER] = signature(secret, url, body, SystemClock().now_ms() // 1000)
                headers[OLD_SIGNATURE_HEADER] = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
            status = exchange(url, timeout_s, timeout_s, 0, report=body, headers=headers, uses_proxy=True).status
            return None if 200 <= status < 300 else f"status {status}"
        except (OSError, ValueError, ConfigError) as error:
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
