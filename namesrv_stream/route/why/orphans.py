"""Orphans: routes that lead to no live broker of the topic; and topics and brokers that no client requests."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
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


def find_orphans(table: RouteTable, asked: Set[str]) -> Iterator[Orphan | None]:
    """Yield all orphans, and None between them, so that the caller can pause.

    Args:
        table: The routes, which may change while the caller pauses.
        asked: Topics that clients have asked for recently.
    """
    clusters, groups, held = set(table.clusters()), dict(table.groups), frozenset(table.held)
    wanted: set[str] = set()  # broker names
    for topic in list(table.topics()):
        offering = [group for group, _ in table.queue_data_of(topic)]
        if offering and all(_is_held(group, held) for group in offering):
            yield Orphan(OrphanKind.HELD, topic, "")
        if is_system_topic(topic, clusters, groups):
            yield None
        elif topic in asked:
            wanted.update(group.broker_name for group in offering)
            yield None
        else:
            yield Orphan(OrphanKind.TOPIC_NOT_ASKED, topic, "")
    for name, group in groups.items():
        yield from _of_group(group)
        if group.is_registered and name not in wanted:
            yield Orphan(OrphanKind.BROKER_NOT_ASKED, "", name)
    for topic, order in list(table.kv.get(ORDER_NAMESPACE, {}).items()):
        offering_names = table.names_offering(topic)
        for name in ordered_brokers(order):
            yield None if name in offering_names else Orphan(OrphanKind.ORDER, topic, name)


def _is_held(group: BrokerGroup, held: Set[LeaseKey]) -> bool:
    return bool(group.live_brokers) and all(LeaseKey(group.broker_name, key) in held for key in group.live_brokers)


def _of_group(group: BrokerGroup) -> Iterator[Orphan | None]:
    """Yield topics that no live process of a broker name has registered, and static mappings that have no broker."""
    listed: set[str] = set()
    for key, live in group.live_brokers.items():
        yield None
        full = group.registrations.get(key)
        found = full.topics_under(live.data_version) if full else None
        # A registration of single topics has come since. Until the next full one, the process may have all topics.
        listed |= group.topics.keys() if found is None else found
    for topic in group.topics.keys() - listed:
        yield Orphan(OrphanKind.NOT_REGISTERED, topic, group.broker_name)
    if not group.is_registered:
        for topic in group.topic_mappings:
            yield Orphan(OrphanKind.STATIC_MAPPING, topic, group.broker_name)
