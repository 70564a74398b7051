"""The route of a topic, which topics are RocketMQ's own, and notifications of a changed smallest brokerId.

Source: rocketmq 5.3.3, RouteInfoManager.pickupTopicRouteData and ZoneRouteRPCHook.

A name server notifies the members of a group when its smallest brokerId changes (NOTIFY_MIN_BROKER_ID_CHANGE). With
acting master, the member with the smallest id does the master's background work. Members poll their group every second.
A notification saves them the wait, and tells slaves the address from which they replicate the returned master.

Java decides whether to notify while it handles one request. Here the rule compares a group before and after a change,
so that it covers requests to this server as well as committed rows, which come from other servers and the fold.
Source: rocketmq 5.3.3, RouteInfoManager.registerBroker, unRegisterBroker, notifyMinBrokerIdChanged and
chooseBrokerAddrsToNotify.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from namesrv_stream.route.address_views import AddressView, addrs_for_clients
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
    """A broker name's entry in brokerDatas of a route or in brokerAddrTable."""

    broker_name: str
    cluster: str
    broker_addrs: Mapping[int, str]
    enable_acting_master: bool
    zone_name: str | None


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """RocketMQ's TopicRouteData.

    Attributes:
        queue_datas: Broker name → its queues.
        filter_server_table: Broker address → filter servers; empty unless a broker has any.
        topic_queue_mapping: Broker name → its share of a static topic; None for other topics.
    """

    broker_datas: tuple[BrokerData, ...]
    queue_datas: Mapping[str, QueueData]
    filter_server_table: Mapping[str, tuple[str, ...]]
    order_topic_conf: str | None = None
    topic_queue_mapping: Mapping[str, TopicQueueMappingInfo] | None = None


def pickup_topic_route(table: RouteTable, topic: str, *, support_acting_master: bool = False) -> TopicRoute | None:
    """Return the route of ``topic``; None if no registered broker has queues of it."""
    queue_datas: dict[str, QueueData] = {}
    broker_datas: list[BrokerData] = []
    filter_servers: dict[str, tuple[str, ...]] = {}
    for group, queue_data in table.queue_data_of(topic):
        queue_datas[group.broker_name] = queue_data
        if not group.is_registered:
            continue
        broker_datas.append(
            broker_data_for_clients(group, queue_data, topic, support_acting_master=support_acting_master)
        )
        filter_servers |= {
            k.broker_addr: live.filter_servers
            for k, live in group.live_brokers.items()
            if live.filter_servers and k.broker_addr in group.broker_addrs.values()
        }
    if not broker_datas:
        return None
    mappings = {g.topic_mappings[topic].bname: g.topic_mappings[topic] for g in table.groups_mapping(topic)}
    return TopicRoute(tuple(broker_datas), queue_datas, filter_servers, topic_queue_mapping=mappings or None)


def is_in_zone(broker: BrokerData, zone_name: str) -> bool:
    """Whether the routes for clients of a zone contain a broker."""
    return MASTER_ID not in broker.broker_addrs or _folded(broker.zone_name or "") == _folded(zone_name)


def in_zone(route: TopicRoute, zone_name: str) -> TopicRoute:
    """Return the route without brokers of other zones. Groups without a master are kept in any case."""
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


def in_view(route: TopicRoute, table: RouteTable, view: AddressView) -> TopicRoute | None:
    """Return the route as clients of an address view receive it, without brokers of which they receive no address.

    Return None if no broker remains. ``route`` must have the brokers' own addresses. An acting master has brokerId 0
    in the route; its brokerId in the group determines its address.
    """
    addrs: dict[str, str] = {}
    broker_datas = []
    for data in route.broker_datas:
        of_name = view.addrs_for_clients(data.broker_name, table.group(data.broker_name).broker_addrs)
        broker_datas.append(with_addrs_for_clients(data, of_name))
        addrs |= of_name
    removed = {data.broker_name for data in broker_datas if not data.broker_addrs}
    if removed and len(removed) == len(broker_datas):
        return None
    return replace(
        route,
        broker_datas=tuple(data for data in broker_datas if data.broker_addrs),
        queue_datas={name: queues for name, queues in route.queue_datas.items() if name not in removed},
        filter_server_table={addrs[a]: f for a, f in route.filter_server_table.items() if a in addrs},
    )


def with_addrs_for_clients(broker: BrokerData, addrs: Mapping[str, str]) -> BrokerData:
    """Return a broker with the addresses that clients receive, given own address → address for clients."""
    return replace(broker, broker_addrs={i: addrs[addr] for i, addr in broker.broker_addrs.items() if addr in addrs})


def broker_data_of(group: BrokerGroup, view: AddressView | None = None) -> BrokerData:
    """Return a group's entry in brokerAddrTable, as clients of an address view receive it."""
    addrs = addrs_for_clients(view, group.broker_name, group.broker_addrs)
    return BrokerData(group.broker_name, group.cluster, addrs, group.enable_acting_master, group.zone_name)


def broker_data_for_clients(
    group: BrokerGroup, queue_data: QueueData, topic: str, *, support_acting_master: bool
) -> BrokerData:
    """Return a group's entry in brokerDatas of the route of ``topic``; ``queue_data`` are the group's queues of it."""
    data = broker_data_of(group)
    if not support_acting_master or queue_data.perm & PERM_WRITE or not is_for_clients(topic):
        return data
    return with_acting_master(data)


def is_for_clients(topic: str) -> bool:
    """Whether clients query a topic, so that its route may have an acting master, or addresses of an address view.

    The other topics are those by which brokers read the members of their own group.
    """
    return not topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX)


def with_acting_master(broker: BrokerData) -> BrokerData:
    """Return a broker for the route of a topic without write permission.

    If acting master is enabled and the master is missing, the slave with the smallest brokerId gets brokerId 0.
    """
    if not broker.broker_addrs or MASTER_ID in broker.broker_addrs or not broker.enable_acting_master:
        return broker
    lowest = min(broker.broker_addrs)
    rest = {i: a for i, a in broker.broker_addrs.items() if i != lowest}
    return replace(broker, broker_addrs={MASTER_ID: broker.broker_addrs[lowest], **rest})


def _folded(text: str) -> str:
    """Return a form that is equal for texts that Java's String.equalsIgnoreCase treats as equal.

    Java maps single characters only, so "ß" does not equal "SS".
    """
    return "".join(map(_folded_char, text))


def _folded_char(char: str) -> str:
    upper = char.upper() if len(char.upper()) == 1 else char
    return upper.lower() if len(upper.lower()) == 1 else upper


_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "CHECKPOINT_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
#: The last two prefixes are those of consumer groups' topics for retries and for dead letters.
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "%RETRY%", "%DLQ%")
#: A broker registers a topic for replies, whose name is the cluster's name and this suffix.
_REPLY_SUFFIX: Final = "_REPLY_TOPIC"


def is_system_topic(topic: str, clusters: Collection[str], broker_names: Collection[str]) -> bool:
    """Whether a topic is RocketMQ's own, not an application's.

    Such topics are system topics, consumer groups' topics for retries and dead letters, clusters' topics for replies,
    and the topics named after a cluster or a broker.

    Source: rocketmq 5.5.0, TopicValidator and MixAll (system topics, prefixes), TopicConfigManager.init (every broker
    registers its own name and its cluster's name as topics).
    """
    return (
        topic in _SYSTEM_TOPICS
        or topic.startswith(_SYSTEM_PREFIXES)
        or topic in clusters
        or topic in broker_names
        or (topic.endswith(_REPLY_SUFFIX) and topic.removesuffix(_REPLY_SUFFIX) in clusters)
    )


#: The smallest brokerId that Java assumes for an empty group. Only a negative id is smaller (DLedger before its
#: election).
_MIN_ID_OF_EMPTY_GROUP: Final = 0


@dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """A notification to the members of a group that its smallest brokerId has changed.

    Attributes:
        broker_name: Name of the group, for logs; Java does not send it.
        min_broker_id: The smallest id from now on.
        min_broker_addr: Address of the broker with that id.
        offline_broker_addr: Address of the broker that had the smallest id and left; None if a broker with a smaller
            id arrived.
        ha_broker_addr: Address from which slaves replicate the arrived broker (haServerAddr); None if a broker left, or
            if the arrived one gave no such address.
        recipients: Advertised addresses of the brokers to notify, by ascending id.
    """

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None
    recipients: tuple[str, ...]


def min_broker_id_change(before: BrokerGroup, after: BrokerGroup) -> MinBrokerIdChange | None:
    """Return the notification for the step from ``before`` to ``after``; None if there is none.

    If a broker arrives, the other members are notified, or the arrived broker itself if it is alone. If a broker
    leaves, all remaining members are notified, but only in a group with acting master. As in Java, there is no
    notification if an address is replaced under the same id, if a broker takes a greater id, or if the group is new.

    Differs from RocketMQ: if several brokers leave in one step, ``offline_broker_addr`` is the address of the broker
    that had the smallest id before, which slaves follow. In Java it depends on the order of a hash set.
    """
    addrs = after.broker_addrs
    if not addrs:
        return None
    min_id = min(addrs)
    old_min_id = min(before.broker_addrs, default=_MIN_ID_OF_EMPTY_GROUP)
    if min_id < old_min_id:
        recipients = [i for i in sorted(addrs) if i != min_id] or [min_id]
        offline_addr, ha_addr = None, _ha_server_addr(after, addrs[min_id])
    elif _is_gone(old_min_id, before, after) and after.enable_acting_master:
        recipients = sorted(addrs)
        offline_addr, ha_addr = before.broker_addrs[old_min_id], None
    else:
        return None
    return MinBrokerIdChange(
        after.broker_name, min_id, addrs[min_id], offline_addr, ha_addr, tuple(addrs[i] for i in recipients)
    )


def _is_gone(broker_id: int, before: BrokerGroup, after: BrokerGroup) -> bool:
    """Whether neither the id nor the address of a former member is in the group any more."""
    addr = before.broker_addrs.get(broker_id)
    return addr is not None and broker_id not in after.broker_addrs and addr not in after.broker_addrs.values()


def _ha_server_addr(group: BrokerGroup, broker_addr: str) -> str | None:
    addrs = (live.ha_server_addr for key, live in group.live_brokers.items() if key.broker_addr == broker_addr)
    return next(addrs, None) or None
