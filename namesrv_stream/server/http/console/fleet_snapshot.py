"""All brokers at one moment: counted by cluster, and those picked that a page shows. Shared by all who ask."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from namesrv_stream.clock import Clock
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.view import RouteView
from namesrv_stream.server.fleet import Broker, Fleet
from namesrv_stream.server.http.console.kept import Kept
from namesrv_stream.server.http.console.question import Question
from namesrv_stream.server.steps import Steps

#: A console asks every few seconds, and after each change.
_FRESH_MS: Final = 900
#: Statuses of a broker, those first that need attention.
ORDER: Final = ("held", "late", "gone", "unknown", "alive", "replaced", "left")
_RANK: Final = {status: rank for rank, status in enumerate(ORDER)}
LIVE: Final = ("alive", "unknown", "late", "held")

#: ``?state=`` that stands for several statuses.
STATUSES_OF: Final[Mapping[str, Sequence[str]]] = {
    "": ORDER,
    "look": ("held", "late", "gone"),
    "ended": ("gone", "replaced", "left"),
}


def status_of(broker: Broker) -> str:
    """One of ``ORDER``: *late* is older than half of its timeout, *left* unregistered, and of one that is *replaced*
    another address has the brokerId: nobody misses these two."""
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
class FleetSnapshot:
    """All brokers with their statuses; ``counts`` is (cluster, status) → how many."""

    brokers: Sequence[tuple[str, Broker]]
    counts: Counter[tuple[str, str]]

    def count(self, *statuses: str) -> int:
        """How many brokers have one of these statuses."""
        return sum(count for (_, status), count in self.counts.items() if status in statuses)

    def count_in(self, cluster: str, *statuses: str) -> int:
        """The same of one cluster."""
        return sum(self.counts[cluster, status] for status in statuses)


@dataclass(frozen=True, slots=True)
class Picked:
    """The first brokers that fit a question, and how many fit search and cluster by status."""

    brokers: Sequence[tuple[str, Broker]]
    counts: Counter[str]

    def count(self, state: str) -> int:
        """How many there are of ``?state=``."""
        return sum(self.counts[status] for status in STATUSES_OF.get(state, (state,)))


class FleetSnapshots:
    """Belongs to one event loop."""

    def __init__(self, view: RouteView, fleet: Fleet, steps: Steps, clock: Clock) -> None:
        self._view = view
        self._fleet = fleet
        self._steps = steps
        self._kept: Kept[None, FleetSnapshot] = Kept(_FRESH_MS, clock)

    async def newest(self) -> FleetSnapshot:
        """The last one, or a new one."""
        return await self._kept.get(None, self._take)

    async def _take(self) -> FleetSnapshot:
        ended = await self._fleet.ended()
        live = self._fleet.live(list(self._view.table.groups.values()))
        brokers: list[tuple[str, Broker]] = []
        counts: Counter[tuple[str, str]] = Counter()
        async for some in self._steps.lists((status_of(broker), broker) for broker in chain(live, ended)):
            brokers += some
            counts.update((broker.key.live_key.cluster, status) for status, broker in some)
        return FleetSnapshot(brokers, counts)

    async def pick(self, snapshot: FleetSnapshot, question: Question, most: int) -> Picked:
        """Those that a question asks for, and how many there would be for other states."""
        statuses = STATUSES_OF.get(question.state, (question.state,))
        counts: Counter[str] = Counter()
        kept: list[tuple[str, Broker]] = []
        async for some in self._steps.lists(found for found in snapshot.brokers if _fits(found[1], question)):
            counts.update(status for status, _ in some)
            wanted = [found for found in some if found[0] in statuses]
            kept = heapq.nsmallest(most, [*kept, *wanted], key=_by_urgency)
        return Picked(kept, counts)


def _by_urgency(found: tuple[str, Broker]) -> tuple[Any, ...]:
    status, broker = found
    return _RANK[status], -(broker.ended.at_ms if broker.ended else 0), *_names(broker)


def _names(broker: Broker) -> tuple[str, str, str]:
    return broker.key.live_key.cluster, broker.key.broker_name, broker.key.live_key.broker_addr


def _fits(broker: Broker, question: Question) -> bool:
    """Whether a broker fits search and cluster, in whatever state it is."""
    if question.cluster and broker.key.live_key.cluster != question.cluster:
        return False
    return not question.find or any(question.find.casefold() in name.casefold() for name in _names(broker))
