"""What happened, in words: rows of ``route_changes`` as sentences, and figures as people read them."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from namesrv_stream.client.mqadmin_tables import printable
from namesrv_stream.instants import duration, instant
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.server.http.console.question import Tone
from namesrv_stream.server.story import Happening

#: Why a broker went.
WHY_ENDED: Final[Mapping[str, str]] = {
    Cause.EXPIRED: "fell silent",
    Cause.DISCONNECTED: "its connection was closed",
    Cause.UNREGISTERED: "said goodbye",
    Cause.SERVER_LOST: "heard only by a server that was lost",
    Cause.SERVER_SILENT: "heard only by a server that fell silent",
    Cause.STATE_REBUILT: "not there after a rebuild of the tables",
}
_SERVER: Final[Mapping[str, tuple[str, Tone]]] = {
    Cause.SERVER_STARTED: ("started", "calm"),
    Cause.SERVER_RESUMED: ("reaches Kafka again; its brokers age from zero", "warn"),
    Cause.SERVER_STOPPED: ("stopped", "calm"),
    Cause.SERVER_SILENT: ("fell silent: it vouches for nobody", "warn"),
    Cause.SERVER_LOST: ("is lost: brokers that only it heard are gone", "bad"),
    Cause.SERVER_HEARD: ("is heard again", "good"),
}
_LONGEST: Final = 160


class Event(NamedTuple):
    """One happening for the time line.

    Attributes:
        word: What it is, short; the sign that goes with the tone's colour.
        subject: Of whom or what.
        text: The rest of the sentence.
        detail: Figures behind it; "" for none.
        place: Where in the log its record is.
    """

    at_ms: int
    tone: Tone
    word: str
    subject: str
    text: str
    detail: str
    place: str


def event(happening: Happening) -> Event:
    """A happening in words."""
    change = happening.change
    tone, word, subject, text = _TELL.get(change.kind, _other)(happening)
    place = f"partition {change.partition} offset {change.offset}"
    return Event(change.at_ms, tone, word, cut(subject), cut(text), cut(change.detail or ""), place)


def _broker(happening: Happening) -> tuple[Tone, str, str, str]:
    change = happening.change
    where = f"at {change.broker_addr} in {change.cluster}"
    if not change.gone:
        word = "back" if change.cause == Cause.RETURNED else "up"
        return "good", word, _name(change), f"{where} came{' back' if word == 'back' else ''}"
    why = WHY_ENDED.get(change.cause, change.cause)
    if change.cause == Cause.UNREGISTERED:
        return "calm", "left", _name(change), f"{where} {why}"
    return "bad", "gone", _name(change), f"{where}: {why}"


def _guard(happening: Happening) -> tuple[Tone, str, str, str]:
    change = happening.change
    where = f"at {change.broker_addr} in {change.cluster}"
    if not change.gone:
        return "warn", "held", _name(change), f"{where} is kept: too many seemed to end at once"
    return "calm", "let go", _name(change), f"{where} is no longer held: {plain(change.cause)}"


def _topics(happening: Happening) -> tuple[Tone, str, str, str]:
    change, more = happening.change, happening.rows - 1
    subject = f"{change.topic}" + (f" and {more:,} more topics" if more else "")
    if change.cause == Cause.WRITE_PERM_WIPED:
        return "warn", "perm", subject, f"at {change.broker_name}: writing is switched off"
    if change.cause == Cause.WRITE_PERM_ADDED:
        return "calm", "perm", subject, f"at {change.broker_name}: reading and writing are switched on"
    if change.gone:
        return "calm", "topic", subject, f"no longer at {change.broker_name}: {plain(change.cause)}"
    return "calm", "topic", subject, f"at {change.broker_name}: {plain(change.cause)}"


def _setting(happening: Happening) -> tuple[Tone, str, str, str]:
    change = happening.change
    return "calm", "setting", change.key or "", "is gone" if change.gone else f"is {change.value} from here on"


def _server(happening: Happening) -> tuple[Tone, str, str, str]:
    change = happening.change
    text, tone = _SERVER.get(change.cause, (plain(change.cause), "calm"))
    return tone, "server", f"name server {change.server_id}", text


def _kv(happening: Happening) -> tuple[Tone, str, str, str]:
    change = happening.change
    name = f"{change.namespace} / {change.key}" if change.key is not None else f"{change.namespace}"
    return "calm", "kv", name, "was deleted" if change.gone else "was set"


def _other(happening: Happening) -> tuple[Tone, str, str, str]:
    return "calm", happening.change.kind, _name(happening.change), plain(happening.change.cause)


_TELL: Final[Mapping[str, Callable[[Happening], tuple[Tone, str, str, str]]]] = {
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
    """What a brokerId means."""
    if broker_id is None:
        return "replaced"
    return "master" if broker_id == 0 else f"slave {broker_id}"


def plain(cause: str) -> str:
    """A cause as people write it."""
    return cause.replace("_", " ")


def cut(text: str) -> str:
    """Names of brokers are short, unless somebody is up to no good."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def told(value: Any) -> Any:
    """What a template puts out: control characters, such as those that turn the order of letters, do nothing."""
    if type(value) is not str or isinstance(value, Markup) or value.isprintable():
        return value
    return printable(value)


def ago(ms: float) -> str:
    """How long ago, to the second."""
    if ms < 1_000:
        return "now"
    return f"{duration(ms) if ms >= 60_000 else f'{ms / 1000:.0f} s'} ago"


def timeout(ms: int) -> str:
    """A timeout, which mostly is a round one: ``10 s``, ``1 min 30 s``, ``2 min``."""
    return f"{ms / 1000:g} s" if ms < 60_000 else duration(ms).removesuffix(" 00 s")


def clock_time(at_ms: int) -> str:
    """An instant of about now, to the second."""
    return instant(at_ms)


def iso(at_ms: int) -> str:
    """For programs: the ``datetime`` of a ``time`` element."""
    return clock_time(at_ms).replace(" ", "T")
