"""One look at all brokers: counted by cluster, and those picked that a page shows. Shared by all who look at a time."""

import asyncio
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.view import RouteView
from namesrv_stream.server.fleet import Broker, Fleet
from namesrv_stream.server.http.console.question import Question
from namesrv_stream.server.steps import Steps

#: A look is good for so long: a console asks each few seconds, and after each change.
_FRESH_MS: Final = 900
#: States of a card, those first that a person should look at first.
ORDER: Final = ("held", "late", "gone", "unknown", "alive", "replaced", "left")

#: ``?state=`` that stands for several standings.
STANDINGS_OF: Final[Mapping[str, Sequence[str]]] = {
    "": ORDER,
    "look": ("held", "late", "gone"),
    "ended": ("gone", "replaced", "left"),
}


def standing(broker: Broker) -> str:
    """How a broker is, by ``ORDER``: *late* is older than half of its timeout, *left* said goodbye, and of one that
    is *replaced* another address has the brokerId: nobody misses these two."""
    if broker.ended is not None:
        if broker.ended.cause == Cause.UNREGISTERED:
            return "left"
        return "replaced" if broker.replaced_by else "gone"
    if broker.held is not None:
        return "held"
    if broker.age_ms is None:
        return "unknown"
    return "late" if broker.age_ms * 2 > broker.expires_after_ms else "alive"


@dataclass(frozen=True, slots=True)
class Look:
    """All brokers at one moment.

    Attributes:
        brokers: With how each is.
        counts: (cluster, standing) → how many.
        at_ms: Monotonic.
    """

    brokers: Sequence[tuple[str, Broker]]
    counts: Counter[tuple[str, str]]
    at_ms: int

    def count(self, *standings: str) -> int:
        return sum(self.counts[key] for key in self.counts if key[1] in standings)


@dataclass(frozen=True, slots=True)
class Picked:
    """Brokers that fit search, cluster and state.

    Attributes:
        brokers: The first of them, by ``ORDER`` and name.
        counts: How many fit search and cluster, by standing.
    """

    brokers: Sequence[tuple[str, Broker]]
    counts: Counter[str]

    def count(self, state: str) -> int:
        """How many there are of ``?state=``."""
        return sum(self.counts[how] for how in STANDINGS_OF.get(state, (state,)))


class Looker:
    """Belongs to one event loop."""

    def __init__(self, view: RouteView, fleet: Fleet, steps: Steps, clock: Clock) -> None:
        self._view = view
        self._fleet = fleet
        self._steps = steps
        self._clock = clock
        self._looking = asyncio.Lock()
        self._last: Look | None = None

    async def look(self) -> Look:
        """The newest look, or a new one."""
        async with self._looking:
            now_ms = self._clock.monotonic_ms()
            if self._last is None or now_ms - self._last.at_ms > _FRESH_MS:
                self._last = await self._look(now_ms)
            return self._last

    async def _look(self, now_ms: int) -> Look:
        ended, read = await self._fleet.ended(), self._fleet.reader()
        groups = list(self._view.table.groups.values())
        brokers: list[tuple[str, Broker]] = []
        counts: Counter[tuple[str, str]] = Counter()
        live = (broker for group in groups for broker in read(group))
        found = ((standing(broker), broker) for broker in chain(live, ended))
        async for some in self._steps.lists(found):
            brokers += some
            counts.update((broker.key.live_key.cluster, how) for how, broker in some)
        return Look(brokers, counts, now_ms)

    async def pick(self, look: Look, question: Question, most: int) -> Picked:
        """Those that a question asks for, and how many there would be for other states."""
        rank = {how: number for number, how in enumerate(ORDER)}
        fitting = (
            (rank[how], -(broker.ended.at_ms if broker.ended else 0), *_names(broker), how, broker)
            for how, broker in look.brokers
            if _fits(broker, question)
        )
        standings = STANDINGS_OF.get(question.state, (question.state,))
        counts: Counter[str] = Counter()
        kept: list[tuple[int, int, str, str, str, str, Broker]] = []
        async for some in self._steps.lists(fitting):
            counts.update(found[-2] for found in some)
            wanted = [found for found in some if found[-2] in standings]
            kept = heapq.nsmallest(most, [*kept, *wanted], key=_by_order)
        return Picked([(found[-2], found[-1]) for found in kept], counts)


def _by_order(found: tuple[int, int, str, str, str, str, Broker]) -> tuple[int, int, str, str, str]:
    return found[:5]


def _names(broker: Broker) -> tuple[str, str, str]:
    return broker.key.live_key.cluster, broker.key.broker_name, broker.key.live_key.broker_addr


def _fits(broker: Broker, question: Question) -> bool:
    """Whether a broker fits search and cluster, in whatever state it is."""
    if question.cluster and broker.key.live_key.cluster != question.cluster:
        return False
    return not question.find or any(question.find.casefold() in name.casefold() for name in _names(broker))
