"""What a person asked the console to show: the query of its URL, which forms and links of the page write."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal
from urllib.parse import urlencode

from namesrv_stream.server.http.problems import Problem

#: ``?state=``: all, or those that want a look, or of one state.
STATES: Final = {
    "": "all",
    "look": "to look at",
    "late": "late",
    "held": "held",
    "ended": "ended",
    "unknown": "age unknown",
}
WINDOWS: Final = {"1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000}
#: Cards on one page, by the button that asks for more.
SHOWN: Final = {"60": 60, "300": 300, "1000": 1_000}
_LONGEST: Final = 512


@dataclass(frozen=True, slots=True)
class Question:
    """All texts, "" for what was not asked.

    Attributes:
        cluster: Brokers and events of this one only.
        state: Brokers of this state, by ``STATES``.
        find: Brokers with this text in cluster, name or address.
        shown: How many brokers, by ``SHOWN``.
        topic: Whose route to show.
        as_of: The instant that it is compared with.
        window: How far back the time line goes, by ``WINDOWS``.
        past: How far back the what-if looks, by ``WINDOWS``; "" for not at all.
    """

    cluster: str = ""
    state: str = ""
    find: str = ""
    shown: str = "60"
    topic: str = ""
    as_of: str = ""
    window: str = "1h"
    past: str = ""

    def url(self, **changes: Any) -> str:
        """The page that shows this, but for these changes; only what is not as usual."""
        usual, asked = asdict(Question()), asdict(replace(self, **changes))
        query = {name: text for name, text in asked.items() if text != usual[name]}
        return "/" + (f"?{urlencode(query)}" if query else "")

    def others(self, *names: str) -> list[tuple[str, str]]:
        """What a form that asks for ``names`` must keep."""
        usual = asdict(Question())
        return [(n, text) for n, text in asdict(self).items() if n not in names and text != usual[n]]


def parse_question(query: Mapping[str, str]) -> Question:
    """The question in a URL; what the console does not know is passed over.

    Raises:
        Problem: A value is none of those that it may have.
    """
    given = {field.name: query[field.name].strip() for field in fields(Question) if query.get(field.name, "").strip()}
    question = Question(**given)
    _check("state", question.state, STATES)
    _check("shown", question.shown, SHOWN)
    _check("window", question.window, WINDOWS)
    _check("past", question.past, {"": 0, **WINDOWS})
    for name, text in given.items():
        if len(text) > _LONGEST:
            raise Problem(400, f"{name}: expected at most {_LONGEST} characters")
    return question


def _check(name: str, text: str, known: Mapping[str, Any]) -> None:
    if text not in known:
        raise Problem(400, f"{name}: expected one of {', '.join(filter(None, known))}")


#: How bad something is; each has a word or a sign of its own beside its colour.
Tone = Literal["good", "warn", "bad", "calm"]
