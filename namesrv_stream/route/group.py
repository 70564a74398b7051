"""Everything known about one broker name, and RocketMQ's rules for changing it.

A ``BrokerGroup`` contains the part of Java's five tables that concerns one broker name: its BrokerData, its entries of
brokerLiveTable and filterServerTable, its QueueData of every topic, and its static mappings. Groups are immutable. A
rule returns the next group, which shares all unchanged parts with the old one. An identity test therefore tells
whether something changed, and ``changes.diff`` finds what changed. No rule depends on a clock.

Whatever a registration adds ends with its topic or with its broker, as it does when a Java name server restarts: our
tables survive restarts. ADR 0067 lists everything that a registration adds.

Source of the rules: rocketmq 5.3.3, RouteInfoManager.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from namesrv_stream.route.model import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BrokerLive,
    DataVersion,
    Holder,
    LiveKey,
    QueueData,
    TopicQueueMappingInfo,
    shared_queue_data,
)
from namesrv_stream.route.registration_json import RetainedRegistration

_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})

#: RouteInfoManager.operateWritePermOfBroker grants this, whatever permission the topic had before.
PERM_READ_WRITE = PERM_READ | PERM_WRITE


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """Everything known about one broker name.

    Attributes:
        cluster: Cluster of the registration that created the BrokerData, while a process of that cluster is live;
            then the first one of ``clusters``.
        clusters: Clusters under which clusterAddrTable lists this broker name: those of its live processes.
        broker_addrs: brokerId → address; empty if no broker of the name is registered.
        live_brokers: The entries of brokerLiveTable, also of brokers whose brokerId another broker has taken since.
        topics: Topic → this broker name's queues.
        topic_mappings: Topic → this broker name's share of a static topic. It ends with the topic or the broker.
        registrations: The last accepted registration of each process, retained after the process has ended.
    """

    broker_name: str
    cluster: str = ""
    clusters: frozenset[str] = frozenset()
    zone_name: str | None = None
    enable_acting_master: bool = False
    broker_addrs: Mapping[int, str] = field(default_factory=lambda: _EMPTY)
    live_brokers: Mapping[LiveKey, BrokerLive] = field(default_factory=lambda: _EMPTY)
    topics: Mapping[str, QueueData] = field(default_factory=lambda: _EMPTY)
    topic_mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=lambda: _EMPTY)
    registrations: Mapping[LiveKey, RetainedRegistration] = field(default_factory=lambda: _EMPTY)

    @property
    def is_registered(self) -> bool:
        """Whether brokerAddrTable contains this name."""
        return bool(self.broker_addrs)


def master_of(group: BrokerGroup, cluster: str) -> tuple[str, str] | None:
    """Return address and HA address of the group's live master in ``cluster``; None if there is none.

    The answer to a slave's registration contains them.

    Source: rocketmq 5.3.3, RouteInfoManager.registerBroker, the last step.
    """
    addr = group.broker_addrs.get(MASTER_ID)
    live = group.live_brokers.get(LiveKey(cluster, addr)) if addr else None
    return (addr, live.ha_server_addr) if addr and live else None


def unregister(group: BrokerGroup, key: LiveKey) -> BrokerGroup:
    """Return the group without the broker process ``key``: its live entry, its address, and what depends on them.

    Differs from RocketMQ: static mappings end with the last address of the name, and a cluster with its last process.

    Source: rocketmq 5.3.3, RouteInfoManager.unRegisterBroker, which removes by address, and
    cleanTopicByUnRegisterRequests.
    """
    live_brokers = {k: v for k, v in group.live_brokers.items() if k != key}
    addrs = {i: a for i, a in group.broker_addrs.items() if a != key.broker_addr}
    if len(live_brokers) == len(group.live_brokers) and len(addrs) == len(group.broker_addrs):
        return group
    if not addrs:
        # A replaced broker may still send heartbeats. Its live entry stays, but is part of no route.
        return replace(
            group,
            live_brokers=live_brokers,
            broker_addrs=_EMPTY,
            topics=_EMPTY,
            topic_mappings=_EMPTY,
            clusters=frozenset(),
            cluster="",
            zone_name=None,
            enable_acting_master=False,
        )
    topics = group.topics
    if group.enable_acting_master and min(addrs) > MASTER_ID:
        topics = _with_perms(topics, without_write)
    clusters = group.clusters & {k.cluster for k in live_brokers}
    after = replace(
        group,
        live_brokers=live_brokers,
        broker_addrs=addrs,
        topics=topics,
        clusters=clusters,
        cluster=group.cluster if group.cluster in clusters else min(clusters, default=""),
    )
    return master_sets_topics_again(group, after)


def master_sets_topics_again(before: BrokerGroup, after: BrokerGroup) -> BrokerGroup:
    """Return ``after``; if a negative brokerId has left, the master's next registration counts as with a new version.

    A node has a negative id before its election. Next to a master it acts as the prime slave, so it may have taken the
    write permission of the topics (apache/rocketmq#7626). In Java they remain without it until a restart.
    """
    addr = after.broker_addrs.get(MASTER_ID)
    was_lowest = min(before.broker_addrs, default=MASTER_ID) >= MASTER_ID
    if addr is None or was_lowest or min(after.broker_addrs) < MASTER_ID:
        return after
    forgotten = {
        key: replace(live, data_version=DataVersion(state_version=live.data_version.state_version))
        for key, live in after.live_brokers.items()
        if key.broker_addr == addr
    }
    return replace(after, live_brokers=updated(after.live_brokers, forgotten))


def set_holder(group: BrokerGroup, key: LiveKey, server_id: str, holder: Holder) -> BrokerGroup:
    """Return the group in which ``server_id`` receives a live broker's heartbeats over the connection ``holder``."""
    live = group.live_brokers[key]
    if live.holders.get(server_id) == holder:
        return group
    holders = {**live.holders, server_id: holder}
    return replace(group, live_brokers={**group.live_brokers, key: replace(live, holders=holders)})


def remove_holder(group: BrokerGroup, key: LiveKey, server_id: str) -> BrokerGroup:
    """Return the group in which ``server_id`` is not a holder of ``key``. The broker itself stays."""
    live = group.live_brokers.get(key)
    if live is None or server_id not in live.holders:
        return group
    holders = {s: h for s, h in live.holders.items() if s != server_id}
    return replace(group, live_brokers=updated(group.live_brokers, {key: replace(live, holders=holders)}))


def delete_topic(group: BrokerGroup, topic: str) -> BrokerGroup:
    """Return the group without a topic, its static mapping, and what is noted about it.

    Differs from RocketMQ: Java keeps the mapping.

    Source: rocketmq 5.3.3, RouteInfoManager.deleteTopic.
    """
    if topic not in group.topics and topic not in group.topic_mappings:
        return group
    contradicting = {
        key: replace(live, contradictions=tuple(t for t in live.contradictions if t != topic))
        for key, live in group.live_brokers.items()
        if topic in live.contradictions
    }
    return replace(
        group,
        topics=without(group.topics, (topic,)),
        topic_mappings=without(group.topic_mappings, (topic,)),
        live_brokers=updated(group.live_brokers, contradicting),
    )


def register_topic(group: BrokerGroup, topic: str, queue_data: QueueData) -> BrokerGroup:
    """Return the group with these queues of ``topic``; the same group if no broker of the name is registered.

    Source: rocketmq 5.3.3, RouteInfoManager.registerTopic.
    """
    if not group.is_registered or group.topics.get(topic) == queue_data:
        return group
    return replace(group, topics=updated(group.topics, {topic: queue_data}))


def wipe_write_perm(group: BrokerGroup) -> BrokerGroup:
    """Return the group with no writable topic. Source: rocketmq 5.3.3, RouteInfoManager.operateWritePermOfBroker."""
    topics = _with_perms(group.topics, without_write)
    return group if topics is group.topics else replace(group, topics=topics)


def add_write_perm(group: BrokerGroup) -> BrokerGroup:
    """Return the group in which every topic is readable and writable. Source: as for ``wipe_write_perm``."""
    topics = _with_perms(group.topics, _read_write)
    return group if topics is group.topics else replace(group, topics=topics)


def is_nothing(group: BrokerGroup) -> bool:
    """Whether a table need not keep the group: it has no address, live broker, static mapping or registration."""
    return not (group.broker_addrs or group.live_brokers or group.topic_mappings or group.registrations)


def _read_write(q: QueueData) -> QueueData:
    if q.perm == PERM_READ_WRITE:
        return q
    return shared_queue_data(q.read_queue_nums, q.write_queue_nums, PERM_READ_WRITE, q.topic_sys_flag)


def without_write(q: QueueData) -> QueueData:
    if not q.perm & PERM_WRITE:
        return q
    return shared_queue_data(q.read_queue_nums, q.write_queue_nums, q.perm & ~PERM_WRITE, q.topic_sys_flag)


def _with_perms(topics: Mapping[str, QueueData], change: Callable[[QueueData], QueueData]) -> Mapping[str, QueueData]:
    # Few of these values differ, and operations on whole dicts take a fraction of the time of a loop.
    changed = {queues: change(queues) for queues in set(topics.values())}
    if all(before is after for before, after in changed.items()):
        return topics
    return dict(zip(topics, map(changed.__getitem__, topics.values()), strict=True))


def without(old: Mapping[str, Any], keys: Collection[str]) -> Mapping[str, Any]:
    """Return ``old`` without some keys; the same object if it has none of them."""
    if not any(k in old for k in keys):
        return old
    return {k: v for k, v in old.items() if k not in keys}


def updated(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return ``old`` updated with ``new``; the same object if nothing changes."""
    if all(k in old and old[k] == v for k, v in new.items()):
        return old
    return {**old, **new}
