"""How the route of a topic changed: each moment from which on clients got another route, and why."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from namesrv_stream.history.extent import Window
from namesrv_stream.history.past import Past, Reason, position, reason_of
from namesrv_stream.history.past_route import table_of
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import PERM_READ, PERM_WRITE, QueueData, TopicQueueMappingInfo

_OF_TOPIC = (ChangeKind.QUEUE_DATA, ChangeKind.TOPIC_MAPPING)
_NO_QUEUES = QueueData(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Offer:
    """What one broker name contributes to a topic's route.

    Attributes:
        queues: None where it only has a share of a static topic.
        broker_addrs: Broker id to address; empty where none of its brokers is registered: as in Java, what else it
            contributes is then shown beside others only.
        mapping: Its share of a static topic, if any.
    """

    queues: QueueData | None
    broker_addrs: Mapping[int, str]
    cluster: str = ""
    enable_acting_master: bool = False
    zone_name: str | None = None
    filter_servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mapping: TopicQueueMappingInfo | None = None

    @property
    def serves(self) -> bool:
        """Whether clients find the topic there."""
        return self.queues is not None and bool(self.broker_addrs)


@dataclass(frozen=True, slots=True)
class OfferChange:
    """One broker name's part of a change; None stands for no offer."""

    broker_name: str
    before: Offer | None
    after: Offer | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class Totals:
    """What there is in a route.

    Attributes:
        brokers: Broker names.
        write_queues: Their write queues, where they may be written.
        read_queues: Their read queues, where they may be read.
    """

    brokers: int
    write_queues: int
    read_queues: int

    def __add__(self, other: "Totals") -> "Totals":
        written, read = self.write_queues + other.write_queues, self.read_queues + other.read_queues
        return Totals(self.brokers + other.brokers, written, read)

    def __sub__(self, other: "Totals") -> "Totals":
        return self + Totals(-other.brokers, -other.write_queues, -other.read_queues)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """All that changed in a topic's route at one moment.

    Attributes:
        at_ms: Log time, epoch milliseconds.
        offers: By broker name.
        totals: What there is in the route from then on.
    """

    at_ms: int
    offers: tuple[OfferChange, ...]
    totals: Totals


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """A topic's route over a time.

    Attributes:
        first: The offers at the begin of the time, by broker name.
        changes: What changed after that, in order.
        last_reason: Why the route was as it was at the begin; None where nothing had ever been known of it.
    """

    topic: str
    window: Window
    first: Mapping[str, Offer]
    changes: tuple[TopicChange, ...]
    last_reason: Reason | None


def topic_history(past: Past, topic: str, window: Window) -> TopicHistory | None:
    """How a topic's route changed; None where the history knows no such topic until then; blocks.

    Args:
        past: Opened.
        topic: Any.
        window: Changes after its begin, up to its end.
    """
    every = past.changes("topic_changes", topic=topic, until_ms=window.until_ms)
    before, rows = [r for r in every if r.at_ms <= window.since_ms], [r for r in every if r.at_ms > window.since_ms]
    names = {row.broker_name for row in every if row.kind in _OF_TOPIC and row.broker_name is not None}
    if not names:
        return None
    table = table_of(before)
    offers = {name: offer for name in sorted(names) if (offer := _offer(table.group(name), topic)) is not None}
    first = dict(offers)
    changes = []
    totals = totals_of(offers.values())
    for at_ms, at_once in groupby(rows, key=lambda row: row.at_ms):
        touched: dict[str, list[RouteChange]] = {}
        for row in at_once:
            touched.setdefault(row.broker_name or "", []).append(row)
        reducer.apply(table, (row for of_name in touched.values() for row in of_name))
        changed = [_changed(table.group(n), topic, offers, of_name) for n, of_name in sorted(touched.items())]
        found = tuple(change for change in changed if change is not None)
        had_route = totals.brokers > 0
        # A thousand brokers may offer it: what did not change is not counted again.
        totals -= totals_of(change.before for change in found)
        totals += totals_of(change.after for change in found)
        # Without a broker in it there is no route, whatever else is known.
        if found and (had_route or totals.brokers):
            changes.append(TopicChange(at_ms, found, totals))
    of_queues = [row for row in before if row.kind == ChangeKind.QUEUE_DATA]
    last = max(of_queues, key=position, default=None)
    return TopicHistory(topic, window, first, tuple(changes), last and reason_of(last))


def _changed(group: BrokerGroup, topic: str, offers: dict[str, Offer], rows: list[RouteChange]) -> OfferChange | None:
    """What a broker name's rows changed; ``offers`` is brought up to date."""
    name = group.broker_name
    before, after = offers.pop(name, None), _offer(group, topic)
    if after is not None:
        offers[name] = after
    if before == after:
        return None
    # The topic's own row says most: a broker that goes takes its queues with it, for the same reason.
    row = max(rows, key=lambda r: (r.kind in _OF_TOPIC, r.offset, r.seq))
    return OfferChange(name, before, after, reason_of(row))


def _offer(group: BrokerGroup, topic: str) -> Offer | None:
    """None where the broker name contributes nothing."""
    queues, mapping = group.topics.get(topic), group.topic_mappings.get(topic)
    if queues is None and mapping is None:
        return None
    if queues is None or not group.is_registered:
        return Offer(queues, {}, mapping=mapping)
    addrs = set(group.broker_addrs.values())
    lives = ((key.broker_addr, live) for key, live in group.lives.items() if key.broker_addr in addrs)
    filters = {addr: live.filter_servers for addr, live in lives if live.filter_servers}
    return Offer(
        queues, group.broker_addrs, group.cluster, group.enable_acting_master, group.zone_name, filters, mapping
    )


def totals_of(offers: Iterable[Offer | None]) -> Totals:
    """What there is in a route."""
    queues = [o.queues for o in offers if o is not None and o.serves and o.queues is not None]
    written = sum(q.write_queue_nums for q in queues if q.perm & PERM_WRITE)
    return Totals(len(queues), written, sum(q.read_queue_nums for q in queues if q.perm & PERM_READ))


def describe(change: OfferChange) -> str:
    """What changed, for people: ``-broker-a``, ``+broker-a 8/8 RW-``, ``broker-a perm RW- → R--``."""
    name, before, after = change.broker_name, change.before, change.after
    served, serves = before is not None and before.serves, after is not None and after.serves
    if served and not serves:
        return f"-{name}"
    if serves and not served and after is not None:
        return f"+{name} {queues_text(after.queues)}"
    if before is None or after is None:
        return f"{name} without brokers: {'known' if after else 'forgotten'}"
    return f"{name} " + ", ".join(_differences(before, after))


def _differences(before: Offer, after: Offer) -> Iterator[str]:
    old, new = before.queues or _NO_QUEUES, after.queues or _NO_QUEUES
    if (old.read_queue_nums, old.write_queue_nums) != (new.read_queue_nums, new.write_queue_nums):
        counts = f"{old.read_queue_nums}/{old.write_queue_nums} → {new.read_queue_nums}/{new.write_queue_nums}"
        yield f"queues {counts}"
    if old.perm != new.perm:
        yield f"perm {perm_text(old.perm)} → {perm_text(new.perm)}"
    if old.topic_sys_flag != new.topic_sys_flag:
        yield f"sysFlag {old.topic_sys_flag} → {new.topic_sys_flag}"
    for broker_id in sorted(before.broker_addrs.keys() | after.broker_addrs.keys()):
        was, now = before.broker_addrs.get(broker_id), after.broker_addrs.get(broker_id)
        if was != now:
            yield f"id {broker_id} {was or 'none'} → {now or 'none'}"
    for text, was_so, is_so in (
        ("cluster", before.cluster, after.cluster),
        ("zone", before.zone_name, after.zone_name),
        ("acting master", before.enable_acting_master, after.enable_acting_master),
    ):
        if was_so != is_so:
            yield f"{text} {was_so} → {is_so}"
    if before.filter_servers != after.filter_servers:
        yield "filter servers"
    if before.mapping != after.mapping:
        yield "logical queues"


def queues_text(queues: QueueData | None) -> str:
    """Read and write queues, and what may be done: ``8/8 RW-``."""
    return "" if queues is None else f"{queues.read_queue_nums}/{queues.write_queue_nums} {perm_text(queues.perm)}"


def perm_text(perm: int) -> str:
    """As RocketMQ's PermName.perm2String: ``RW-``."""
    return ("R" if perm & PERM_READ else "-") + ("W" if perm & PERM_WRITE else "-") + ("X" if perm & 1 else "-")
