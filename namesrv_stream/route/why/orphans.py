"""Orphans: routes that lead to no live broker of the topic; and topics and brokers that no client requests."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Final

from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import is_system_topic
from namesrv_stream.route.why.explain import ORDER_NAMESPACE, ordered_brokers


class OrphanKind(StrEnum):
    """Why a topic or broker is an orphan. docs/contradictions.md lists all kinds."""

    NOT_REGISTERED = "not_registered"
    HELD = "held"
    STATIC_MAPPING = "static_mapping"
    ORDER = "order"
    TOPIC_NOT_ASKED = "topic_not_asked"
    BROKER_NOT_ASKED = "broker_not_asked"


#: Kinds that depend on the topics that clients have asked a server for.
OF_QUERIES: Final = frozenset({OrphanKind.TOPIC_NOT_ASKED, OrphanKind.BROKER_NOT_ASKED})


@dataclass(frozen=True, slots=True)
class Orphan:
    """One orphan: a topic, a broker, or a topic at one broker.

    Attributes:
        kind: A value of ``OrphanKind``.
        topic: "" if the orphan is a broker.
        broker_name: "" if the orphan is a topic at all of its brokers.
    """

    kind: str
    topic: str
    broker_name: str


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """The orphans that one server knows.

    Attributes:
        at_ms: The server's time, epoch milliseconds.
        counted_since_ms: Since when the server has noted which topics it is asked for, epoch milliseconds.
        days: Topics and brokers that clients asked for within this many days are not orphans.
        orphans: Sorted by kind, topic and broker.
    """

    server_id: str
    at_ms: int
    counted_since_ms: int
    days: int
    orphans: Sequence[Orphan]


class OrphanSearch:
    """Finds the orphans of a table, which may change while the caller pauses.

    Every method yields the orphans of some kinds, and None between them, so that the caller can pause.
    """

    def __init__(self, table: RouteTable, topics: Sequence[str], is_asked: Callable[[str], bool]) -> None:
        """Search these topics of a table. ``is_asked`` tells whether clients have asked for a topic recently."""
        self._table = table
        self._topics = topics
        self._is_asked = is_asked
        self._clusters, self._groups = set(table.clusters()), dict(table.groups)
        self._held = frozenset(table.held)

    def brokers_not_asked(self) -> Iterator[Orphan | None]:
        """Yield the brokers of which clients asked for no topic, in the order of names."""
        wanted: set[str] = set()
        for topic in self._topics:
            yield None
            if self._is_asked(topic) and not self._is_system(topic):
                wanted.update(self._table.names_offering(topic))
        for name, group in sorted(self._groups.items(), key=itemgetter(0)):
            is_orphan = group.is_registered and name not in wanted
            yield Orphan(OrphanKind.BROKER_NOT_ASKED, "", name) if is_orphan else None

    def held(self) -> Iterator[Orphan | None]:
        """Yield the topics that only brokers have that the guard holds, in the order of topics."""
        for topic in self._topics if self._held else ():
            names = self._table.names_offering(topic)
            is_held = bool(names) and all(map(self._is_held, names))
            yield Orphan(OrphanKind.HELD, topic, "") if is_held else None

    def topics_not_asked(self) -> Iterator[Orphan | None]:
        """Yield the topics for which clients did not ask, in the order of topics."""
        for topic in self._topics:
            is_orphan = not (self._is_asked(topic) or self._is_system(topic))
            yield Orphan(OrphanKind.TOPIC_NOT_ASKED, topic, "") if is_orphan else None

    def others(self) -> Iterator[Orphan | None]:
        """Yield the orphans of all other kinds, in no particular order."""
        for group in self._groups.values():
            yield None
            yield from _of_group(group)
        for topic, order in self._table.kv.get(ORDER_NAMESPACE, {}).copy().items():
            offering_names = self._table.names_offering(topic)
            for name in ordered_brokers(order):
                yield None if name in offering_names else Orphan(OrphanKind.ORDER, topic, name)

    def _is_system(self, topic: str) -> bool:
        return is_system_topic(topic, self._clusters, self._groups)

    def _is_held(self, name: str) -> bool:
        live = self._table.group(name).live_brokers
        return bool(live) and all(LeaseKey(name, key) in self._held for key in live)


def _of_group(group: BrokerGroup) -> Iterator[Orphan | None]:
    """Yield topics that the process which sets the topics has not registered, and static mappings without a topic.

    That is the process with the lowest brokerId. Source: rocketmq 5.3.3, RouteInfoManager.registerBroker.
    """
    for topic in group.topic_mappings:
        yield None if topic in group.topics else Orphan(OrphanKind.STATIC_MAPPING, topic, group.broker_name)
    listed: set[str] = set()
    addr = group.broker_addrs[min(group.broker_addrs)] if group.broker_addrs else None
    for key, live in group.live_brokers.items():
        if key.broker_addr != addr:
            continue
        full = group.registrations.get(key)
        if full is None or full.data_version != live.data_version:
            # A registration of single topics has come since. Until the next full one, the process may have all topics.
            return
        for topic in full.topics():
            listed.add(topic)
            yield None
    for topic in group.topics:
        yield None if topic in listed else Orphan(OrphanKind.NOT_REGISTERED, topic, group.broker_name)
