"""The query of the console's URL, which says what the page shows, and the formatting of values on the page."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlencode

from markupsafe import Markup, escape
from pydantic import Field, model_validator

from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.instants import duration, instant
from namesrv_stream.route.changes import Cause
from namesrv_stream.server.http.operation import Query

#: Severity. The page shows each with its own label or symbol, not only with a colour.
Tone = Literal["good", "warn", "bad", "calm"]

#: ``?state=`` → label: all brokers, those that need attention, those in one state, or those of a drain.
STATES: Final = {
    "": "all",
    "look": "needs attention",
    "late": "late",
    "held": "protected",
    "ended": "ended",
    "unknown": "age unknown",
    "drained": "drained",
}
#: ``?topics=`` → label: without RocketMQ's system topics, or with them.
TOPIC_SETS: Final = {"": "application topics", "all": "all"}
WINDOWS: Final = {"10m": 600_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000}
#: ``?shown=`` → maximum number of broker cards on the page.
SHOWN: Final = {"60": 60, "300": 300, "1000": 1_000}


def _text(text: str, example: str) -> Any:
    return Field("", max_length=512, description=text, examples=[example])


class Question(Query):
    """The query, which the page's forms and links create; every value is a text, and "" if it was not given."""

    cluster: str = _text("Brokers, topics and events of this cluster only.", "c0")
    state: Literal["", "look", "late", "held", "ended", "unknown", "drained"] = Field(
        "", description="Only brokers in this state.", examples=["late"]
    )
    find: str = _text("Brokers with this text in their cluster, name or address.", "broker-a")
    shown: Literal["60", "300", "1000"] = Field(
        "60", description="Maximum number of brokers on the page.", examples=["60"]
    )
    topics: Literal["", "all"] = Field("", description="`all` lists RocketMQ's own topics as well.", examples=["all"])
    find_topic: str = _text("Topics with this text in their name.", "Order")
    topic: str = _text("The topic whose route is shown.", "TopicTest")
    as_of: str = _text("The instant with which the topic's route is compared.", "-1h")
    window: Literal["10m", "1h", "6h", "24h"] = Field(
        "1h", description="How far back the time line goes.", examples=["1h"]
    )
    past: Literal["", "10m", "1h", "6h", "24h"] = Field(
        "", description="How far back the timeout what-if goes.", examples=["1h"]
    )

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, given: dict[str, str]) -> dict[str, str]:
        return {name: text.strip() for name, text in given.items() if text.strip()}

    def url(self, **changes: Any) -> str:
        """Return the URL of this page with some values changed; default values are omitted."""
        query = self.model_copy(update=changes).model_dump(exclude_defaults=True)
        return "/" + (f"?{urlencode(query)}" if query else "")

    def others(self, *names: str) -> list[tuple[str, str]]:
        """Return the other values, which a form with the fields ``names`` must preserve."""
        return list(self.model_dump(exclude_defaults=True, exclude=set(names)).items())


#: Cause → why a broker was removed.
WHY_ENDED: Final[Mapping[str, str]] = {
    Cause.EXPIRED: "heartbeat timeout",
    Cause.DISCONNECTED: "its connection was closed",
    Cause.UNREGISTERED: "unregistered",
    Cause.SERVER_LOST: "known only to a server that was lost",
    Cause.SERVER_SILENT: "known only to a server that stopped writing to Kafka",
    Cause.STATE_REBUILT: "missing after a rebuild of the tables",
}
_LONGEST: Final = 160


def role(broker_id: int | None) -> str:
    if broker_id is None:
        return "replaced"
    return "master" if broker_id == 0 else f"slave {broker_id}"


def plain(cause: str) -> str:
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
