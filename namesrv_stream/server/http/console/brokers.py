"""A snapshot of all brokers, which all open pages share, and the selection that a page shows.

Live brokers appear with their heartbeat's age relative to their own timeout, removed ones with time and reason.
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration, instant
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.model import DRAINED_BROKERS
from namesrv_stream.route.registration import some_of
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.http.console.query import SHOWN, STATES, WHY_ENDED, Question, Tone, plain
from namesrv_stream.server.steps import Kept, Steps
from namesrv_stream.server.view.fleet import Broker, Drain, Fleet
from namesrv_stream.server.view.recent_events import RecentEvents
from namesrv_stream.text_table import counted, times

#: How long a snapshot is used. Every open console asks every few seconds, and after every change.
_FRESH_MS: Final = 900
#: Statuses of a broker; those that need attention come first.
ORDER: Final = ("held", "late", "gone", "unknown", "alive", "replaced", "left")
LIVE: Final = ("alive", "unknown", "late", "held")

#: The value of ``?state=`` for brokers in any status whose drain is recorded.
_DRAINED: Final = "drained"
#: Values of ``?state=`` that mean several statuses.
STATUSES_OF: Final[Mapping[str, Sequence[str]]] = {
    "": ORDER,
    "look": ("held", "late", "gone"),
    "ended": ("gone", "replaced", "left"),
}


def status_of(broker: Broker) -> str:
    """Return one of ``ORDER``: *late* if the heartbeat is older than half of the timeout, *left* if it unregistered,
    *replaced* if it was removed and another address has its broker name and brokerId. The last two are normal."""
    if broker.ended is not None:
        if broker.ended.cause == Cause.UNREGISTERED:
            return "left"
        return "replaced" if broker.replaced_by else "gone"
    if broker.held is not None:
        return "held"
    if broker.age_ms is None:
        return "unknown"
    return "late" if broker.is_late else "alive"


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All brokers with their statuses; ``clusters`` maps each cluster to the number of its brokers by status."""

    brokers: list[tuple[str, Broker]]
    counts: Counter[str]
    clusters: Mapping[str, Counter[str]]

    def count(self, *statuses: str) -> int:
        return sum(self.counts[status] for status in statuses)

    def count_in(self, cluster: str, *statuses: str) -> int:
        return sum(self.clusters[cluster][status] for status in statuses)


@dataclass(frozen=True, slots=True)
class Picked:
    """The first brokers that match a query. ``counts`` maps every status to the number of brokers that match text and
    cluster of the query, and "drained" to the number of those that are drained, whatever their status."""

    brokers: Sequence[tuple[str, Broker]]
    counts: Counter[str]

    def count(self, state: str) -> int:
        """Return the number of brokers for a value of ``?state=``."""
        return sum(self.counts[status] for status in STATUSES_OF.get(state, (state,)))


class FleetSnapshots:
    """Keeps the newest snapshot of all brokers. Only one event loop may use it."""

    def __init__(self, view: RouteView, fleet: Fleet, steps: Steps, clock: Clock) -> None:
        self._view = view
        self._fleet = fleet
        self._steps = steps
        self._kept: Kept[None, FleetSnapshot] = Kept(_FRESH_MS, clock)

    async def newest(self) -> FleetSnapshot:
        """Return the last snapshot, or take a new one if the last one is too old."""
        return await self._kept.get(None, self._take)

    async def _take(self) -> FleetSnapshot:
        await self._fleet.read_drains()
        ended = await self._fleet.ended()
        live = self._fleet.live(list(self._view.table.groups.values()))
        found = FleetSnapshot([], Counter(), defaultdict(Counter))
        async for some in self._steps.lists((status_of(broker), broker) for broker in chain(live, ended)):
            found.brokers.extend(some)
            for status, broker in some:
                found.counts[status] += 1
                found.clusters[broker.key.live_key.cluster][status] += 1
        return found

    async def pick(self, snapshot: FleetSnapshot, question: Question, most: int) -> Picked:
        """Return the brokers that a query asks for, and the counts for all states."""
        counts: Counter[str] = Counter()
        wanted: list[tuple[str, Broker]] = []
        async for some in self._steps.lists((found, _fits(found[1], question)) for found in snapshot.brokers):
            fitting = [found for found, fits in some if fits]
            counts.update(status for status, _ in fitting)
            counts[_DRAINED] += sum(broker.drained is not None for _, broker in fitting)
            wanted += (found for found in fitting if _is_wanted(*found, question.state))
        return Picked((await self._steps.sorted(wanted, key=_urgency))[:most], counts)


def _is_wanted(status: str, broker: Broker, state: str) -> bool:
    return broker.drained is not None if state == _DRAINED else status in STATUSES_OF.get(state, (state,))


def _urgency(found: tuple[str, Broker]) -> tuple[Any, ...]:
    status, broker = found
    return ORDER.index(status), -(broker.ended.at_ms if broker.ended else 0), *_names(broker)


def _names(broker: Broker) -> tuple[str, str, str]:
    return broker.key.live_key.cluster, broker.key.broker_name, broker.key.live_key.broker_addr


def _fits(broker: Broker, question: Question) -> bool:
    """Return whether a broker matches search text and cluster, whatever its state is."""
    if question.cluster and broker.key.live_key.cluster != question.cluster:
        return False
    find = question.find.casefold()
    return not find or any(find in name.casefold() for name in _names(broker))


#: Status → label on the card, and tone.
_LABELS: Final[dict[str, tuple[str, Tone]]] = {
    "alive": ("alive", "good"),
    "late": ("late", "warn"),
    "held": ("protected", "warn"),
    "gone": ("down", "bad"),
    "left": ("unregistered", "calm"),
    "replaced": ("replaced", "calm"),
    "unknown": ("age unknown", "calm"),
}


async def brokers(
    picked: Picked, question: Question, *, recent_events: RecentEvents, clock: Clock, steps: Steps
) -> dict[str, Any]:
    now_ms = clock.now_ms()
    larger = next((name for name, most in SHOWN.items() if most > SHOWN[question.shown]), None)
    total = picked.count(question.state)
    left_out = total - len(picked.brokers)
    return {
        "cards": await steps.all(_card(status, broker, recent_events, now_ms) for status, broker in picked.brokers),
        "total": total,
        "left_out": left_out,
        "more": larger if left_out else None,
        "states": [(state, label, picked.count(state)) for state, label in STATES.items()],
        "failure": recent_events.failure,
    }


def _card(status: str, broker: Broker, recent_events: RecentEvents, now_ms: int) -> dict[str, Any]:
    label, tone = _LABELS[status]
    lines = list(_ended_lines(broker)) if broker.ended else _live_lines(broker, now_ms)
    downs = recent_events.downs(broker.key)
    if downs > (broker.ended is not None):
        lines.append(f"went down {times(downs)} in the last day")
    differs = some_of(broker.contradictions)
    card = {"status": status, "label": label, "tone": tone, "broker": broker, "lines": lines, "differs": differs}
    return card | {"drain": _drain(broker.key.broker_name, broker.drained) if broker.drained else None}


def _drain(name: str, drained: Drain) -> dict[str, Any]:
    """Return what the record of a drain says, whether it needs attention, and the command that deletes the record."""
    if drained.at is None:
        command = ("kv", "delete", DRAINED_BROKERS, name)
        return {"tone": "warn", "text": "the record of its drain cannot be read", "command": shlex.join(command)}
    text = f"drained since {drained.at} by {drained.by}"
    if drained.writable_topics:
        topics = f"{drained.writable_topics:,} of {counted(drained.topics, 'topic')}"
        text += f", but the write permission is back for {topics}"
    tone = "warn" if drained.writable_topics else "calm"
    return {"tone": tone, "text": text, "command": shlex.join(("drain", name, "--undo"))}


def _ended_lines(broker: Broker) -> list[str]:
    ended = broker.ended
    assert ended is not None
    back = f"back at {broker.replaced_by}" if broker.replaced_by else None
    place = f"partition {ended.partition} offset {ended.offset}"
    return [line for line in (WHY_ENDED.get(ended.cause, ended.cause), back, ended.detail, place) if line]


def _live_lines(broker: Broker, now_ms: int) -> list[str]:
    lines = []
    if broker.held is not None:
        hold = broker.held
        lines.append(f"{hold.reason}; {hold.ending:,} of {hold.brokers:,} brokers seemed to fail at once")
        removed = f"will be removed ({plain(hold.goes_with)}) at {instant(hold.until_ms)} or later"
        lines.append(f"{removed}, unless a heartbeat arrives")
    if broker.age_ms is None:
        others, after = ", ".join(broker.servers), duration(broker.expires_after_ms)
        lines.append(f"no heartbeat at this server since its start, but at {others}; expires after {after} without one")
        return lines
    up = "up for more than a day" if broker.is_older else "start not known yet"
    if broker.since_ms is not None:
        up = f"up for {duration(max(0, now_ms - broker.since_ms))}"
    servers = f"heartbeats at {counted(len(broker.servers), 'server')}"
    lines.append("; ".join([up, servers] + ["own timeout"] * (broker.timeout_ms is not None)))
    return lines
