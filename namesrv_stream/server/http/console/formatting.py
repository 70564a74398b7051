"""Formatting for the console: rows of ``route_changes`` as sentences, and durations, roles and names as text."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from markupsafe import Markup, escape

from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.instants import duration, instant
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.server.http.console.question import Tone
from namesrv_stream.server.view.recent_events import TimelineEvent

#: Cause → why a broker was removed.
WHY_ENDED: Final[Mapping[str, str]] = {
    Cause.EXPIRED: "heartbeat timeout",
    Cause.DISCONNECTED: "its connection was closed",
    Cause.UNREGISTERED: "unregistered",
    Cause.SERVER_LOST: "heard only by a server that was lost",
    Cause.SERVER_SILENT: "heard only by a server that stopped writing to Kafka",
    Cause.STATE_REBUILT: "not there after a rebuild of the tables",
}
_SERVER: Final[Mapping[str, tuple[str, Tone]]] = {
    Cause.SERVER_STARTED: ("started", "calm"),
    Cause.SERVER_RESUMED: ("reaches Kafka again; its brokers age from zero", "warn"),
    Cause.SERVER_STOPPED: ("stopped", "calm"),
    Cause.SERVER_SILENT: ("stopped writing to Kafka: it vouches for no broker", "warn"),
    Cause.SERVER_LOST: ("is lost: brokers that only it heard are down", "bad"),
    Cause.SERVER_HEARD: ("is heard again", "good"),
}
_LONGEST: Final = 160


class Event(NamedTuple):
    """One event of the timeline, as text.

    Attributes:
        word: Short label of the kind of event, shown in the tone's colour.
        subject: The broker, topic, server or setting that the event concerns.
        text: The rest of the sentence.
    """

    tone: Tone
    word: str
    subject: str
    text: str


def in_words(event: TimelineEvent) -> Event:
    """Return an event as text."""
    return _EVENTS.get(event.change.kind, _other)(event)


def _broker(event: TimelineEvent) -> Event:
    change = event.change
    where = f"at {change.broker_addr} in {change.cluster}"
    if not change.gone and change.cause == Cause.RETURNED:
        return Event("good", "back", _name(change), f"{where} came back")
    if not change.gone:
        return Event("good", "up", _name(change), f"{where} came")
    why = WHY_ENDED.get(change.cause, change.cause)
    if change.cause == Cause.UNREGISTERED:
        return Event("calm", "left", _name(change), f"{where} {why}")
    return Event("bad", "down", _name(change), f"{where}: {why}")


def _guard(event: TimelineEvent) -> Event:
    change = event.change
    where = f"at {change.broker_addr} in {change.cluster}"
    if not change.gone:
        return Event("warn", "held", _name(change), f"{where} is protected: too many brokers seemed to end at once")
    return Event("calm", "released", _name(change), f"{where} was released by the guard: {plain(change.cause)}")


def _topics(event: TimelineEvent) -> Event:
    change, more = event.change, event.rows - 1
    subject = f"{change.topic}" + (f" and {more:,} more topics" if more else "")
    if change.cause == Cause.WRITE_PERM_WIPED:
        return Event("warn", "perm", subject, f"at {change.broker_name}: writing is switched off")
    if change.cause == Cause.WRITE_PERM_ADDED:
        return Event("calm", "perm", subject, f"at {change.broker_name}: reading and writing are switched on")
    no_longer = "no longer " if change.gone else ""
    return Event("calm", "topic", subject, f"{no_longer}at {change.broker_name}: {plain(change.cause)}")


def _setting(event: TimelineEvent) -> Event:
    change = event.change
    text = "was removed" if change.gone else f"is {change.value} from here on"
    return Event("calm", "setting", change.key or "", text)


def _server(event: TimelineEvent) -> Event:
    change = event.change
    text, tone = _SERVER.get(change.cause, (plain(change.cause), "calm"))
    return Event(tone, "server", f"name server {change.server_id}", text)


def _kv(event: TimelineEvent) -> Event:
    change = event.change
    name = f"{change.namespace} / {change.key}" if change.key is not None else f"{change.namespace}"
    return Event("calm", "kv", name, "was deleted" if change.gone else "was set")


def _other(event: TimelineEvent) -> Event:
    return Event("calm", event.change.kind, _name(event.change), plain(event.change.cause))


_EVENTS: Final[Mapping[str, Callable[[TimelineEvent], Event]]] = {
    ChangeKind.BROKER_LIVE: _broker,
    ChangeKind.GUARD: _guard,
    ChangeKind.QUEUE_DATA: _topics,
    ChangeKind.SETTING: _setting,
    ChangeKind.SERVER: _server,
    ChangeKind.KV: _kv,
}


def _name(change: RouteChange) -> str:
    if change.broker_id is None:
        return change.broker_name or ""
    return f"{change.broker_name} {role(change.broker_id)}"


def role(broker_id: int | None) -> str:
    """Return the role that a brokerId means."""
    if broker_id is None:
        return "replaced"
    return "master" if broker_id == 0 else f"slave {broker_id}"


def plain(cause: str) -> str:
    """Return a cause as plain text, with spaces instead of underscores."""
    return cause.replace("_", " ")


def shown(value: Any) -> Any:
    """Return a value for output: cut if long, with control characters escaped (some reverse the text direction)."""
    if type(value) is not str:
        return value
    text = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
    return text if text.isprintable() else printable(text)


def whole(text: str) -> Markup:
    """Return a text for output that must not be cut, for example a link or the value of a form field."""
    return escape(printable(text))


def ago(ms: float) -> str:
    """Return how long ago something was, to the second."""
    if ms < 1_000:
        return "now"
    return f"{duration(ms) if ms >= 60_000 else f'{ms / 1000:.0f} s'} ago"


def timeout(ms: int) -> str:
    """Return a timeout in its shortest form, because most are round: ``10 s``, ``1 min 30 s``, ``2 min``."""
    return f"{ms / 1000:g} s" if ms < 60_000 else duration(ms).removesuffix(" 00 s")


#: Filters of the templates; ``iso`` is for the ``datetime`` attribute of a ``time`` element.
FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "ago": ago,
    "duration": duration,
    "instant": instant,
    "iso": lambda at_ms: instant(at_ms).replace(" ", "T"),
    "number": "{:,}".format,
    "plain": plain,
    "role": role,
    "timeout": timeout,
    "whole": whole,
}
