"""The route of a topic: which brokers offer it, where they are, how many queues.

Source: rocketmq 5.3.3, RouteInfoManager.pickupTopicRouteData and ZoneRouteRPCHook; nameserver.md §7.6 and §5.5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import (
    MASTER_ID,
    PERM_WRITE,
    SYNC_BROKER_MEMBER_GROUP_PREFIX,
    QueueData,
    TopicQueueMappingInfo,
)
from namesrv_stream.route.table import RouteTable


@dataclass(frozen=True, slots=True)
class BrokerData:
    """A broker name's entry of a route, or of brokerAddrTable."""

    broker_name: str
    cluster: str
    broker_addrs: Mapping[int, str]
    enable_acting_master: bool
    zone_name: str | None


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """TopicRouteData.

    Attributes:
        queue_datas: broker name to its queues.
        filter_server_table: broker address to filter servers; empty unless some broker has any.
        topic_queue_mapping: broker name to its share of a static topic; None for other topics.
    """

    broker_datas: tuple[BrokerData, ...]
    queue_datas: Mapping[str, QueueData]
    filter_server_table: Mapping[str, tuple[str, ...]]
    order_topic_conf: str | None = None
    topic_queue_mapping: Mapping[str, TopicQueueMappingInfo] | None = None


def pickup_topic_route(table: RouteTable, topic: str, *, support_acting_master: bool = False) -> TopicRoute | None:
    """The route of ``topic``; None where no registered broker offers it."""
    queue_datas: dict[str, QueueData] = {}
    broker_datas: list[BrokerData] = []
    filter_servers: dict[str, tuple[str, ...]] = {}
    for group, queue_data in table.queue_data_of(topic):
        queue_datas[group.broker_name] = queue_data
        if not group.is_registered:
            continue
        broker_datas.append(told_broker_data(group, queue_data, topic, support_acting_master=support_acting_master))
        filter_servers |= {
            k.broker_addr: live.filter_servers
            for k, live in group.lives.items()
            if live.filter_servers and k.broker_addr in group.broker_addrs.values()
        }
    if not broker_datas:
        return None
    mappings = {g.topic_mappings[topic].bname: g.topic_mappings[topic] for g in table.groups_mapping(topic)}
    return TopicRoute(tuple(broker_datas), queue_datas, filter_servers, topic_queue_mapping=mappings or None)


def is_in_zone(broker: BrokerData, zone_name: str) -> bool:
    """Whether a broker is told to clients of a zone."""
    return MASTER_ID not in broker.broker_addrs or _folded(broker.zone_name or "") == _folded(zone_name)


def in_zone(route: TopicRoute, zone_name: str) -> TopicRoute:
    """The route without brokers of other zones; a group without a master is kept whatever its zone."""
    kept = tuple(b for b in route.broker_datas if is_in_zone(b, zone_name))
    names = {b.broker_name for b in kept}
    removed = {b.broker_name for b in route.broker_datas} - names
    removed_addrs = {a for b in route.broker_datas if b.broker_name in removed for a in b.broker_addrs.values()}
    return replace(
        route,
        broker_datas=kept,
        queue_datas={n: q for n, q in route.queue_datas.items() if n not in removed},
        filter_server_table={a: f for a, f in route.filter_server_table.items() if a not in removed_addrs},
    )


def broker_data_of(group: BrokerGroup) -> BrokerData:
    """A group's entry of brokerAddrTable."""
    return BrokerData(group.broker_name, group.cluster, group.broker_addrs, group.enable_acting_master, group.zone_name)


def told_broker_data(
    group: BrokerGroup, queue_data: QueueData, topic: str, *, support_acting_master: bool
) -> BrokerData:
    """A group's entry of brokerDatas in the route of a topic of which it offers ``queue_data``."""
    data = broker_data_of(group)
    if not support_acting_master or queue_data.perm & PERM_WRITE or not may_act(topic):
        return data
    return with_acting_master(data)


def may_act(topic: str) -> bool:
    """Whether a slave may stand in for the master in a topic's route: not where slaves ask who is there."""
    return not topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX)


def with_acting_master(broker: BrokerData) -> BrokerData:
    """As told in the route of a topic that cannot be written: its lowest slave stands in for a missing master."""
    if not broker.broker_addrs or MASTER_ID in broker.broker_addrs or not broker.enable_acting_master:
        return broker
    lowest = min(broker.broker_addrs)
    rest = {i: a for i, a in broker.broker_addrs.items() if i != lowest}
    return replace(broker, broker_addrs={MASTER_ID: broker.broker_addrs[lowest], **rest})


def _folded(text: str) -> str:
    """Equal for texts that are equal to Java's String.equalsIgnoreCase, which maps one char to one: "ß" is no "SS"."""
    return "".join(map(_folded_char, text))


def _folded_char(char: str) -> str:
    upper = char.upper() if len(char.upper()) == 1 else char
    return upper.lower() if len(upper.lower()) == 1 else upper
