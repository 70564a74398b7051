"""What a person asked the console to show: the query of its URL, which forms and links of the page write."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import urlencode

#: ``?state=``: all, or those that want a look, or of one state.
STATES: Final = {
    "": "all",
    "look": "to look at",
    "late": "late",
    "held": "held",
    "ended": "ended",
    "unknown": "age unknown",
}
#: ``?topics=``: without those that brokers have of themselves, or with them.
TOPIC_SETS: Final = {"": "of applications", "all": "all"}
WINDOWS: Final = {"10m": 600_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000}
#: Cards on one page, by the button that asks for more.
SHOWN: Final = {"60": 60, "300": 300, "1000": 1_000}
#: Characters of a text.
LONGEST: Final = 512


@dataclass(frozen=True, slots=True)
class Question:
    """All texts, "" for what was not asked.

    Attributes:
        cluster: Brokers and events of this one only.
        state: Brokers of this state, by ``STATES``.
        find: Brokers with this text in cluster, name or address.
        shown: How many brokers, by ``SHOWN``.
        topics: Which topics, by ``TOPIC_SETS``.
        find_topic: Topics with this text in their name.
        topic: Whose route to show.
        as_of: The instant that it is compared with.
        window: How far back the time line goes, by ``WINDOWS``.
        past: How far back the what-if looks, by ``WINDOWS``; "" for not at all.
    """

    cluster: str = ""
    state: str = ""
    find: str = ""
    shown: str = "60"
    topics: str = ""
    find_topic: str = ""
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
    """The question in a URL, whose values are known to be among those that the parameters take."""
    return Question(**{name: text.strip() for name, text in query.items() if text.strip()})


#: How bad something is; each has a word or a sign of its own beside its colour.
Tone = Literal["good", "warn", "bad", "calm"]
