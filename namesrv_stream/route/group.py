"""Everything known about one broker name, and RocketMQ's rules for changing it.

A ``BrokerGroup`` contains the part of Java's five tables that concerns one broker name: its BrokerData, its entries of
brokerLiveTable and filterServerTable, its QueueData of every topic, and its static mappings. Groups are immutable. A
rule returns the next group, which shares all unchanged parts with the old one. An identity test therefore tells
whether something changed, and ``changes.diff`` finds what changed. No rule depends on a clock.

Source of the rules: rocketmq 5.3.3, RouteInfoManager.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from namesrv_stream.route.model import (
    DEFAULT_REGISTRATION_SETTINGS,
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BrokerLive,
    Holder,
    LiveKey,
    QueueData,
    Registration,
    RegistrationSettings,
    TopicQueueMappingInfo,
    shared_queue_data,
)
from namesrv_stream.route.registered_topics import contradiction_text, differing_topics, merge_topics, without_write
from namesrv_stream.route.registration_json import RetainedRegistration, retained

_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})

#: RouteInfoManager.operateWritePermOfBroker grants this, whatever permission the topic had before.
PERM_READ_WRITE = PERM_READ | PERM_WRITE


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """Everything known about one broker name.

    Attributes:
        cluster: Cluster of the registration that created the BrokerData; later registrations do not change it.
        clusters: Clusters under which clusterAddrTable lists this broker name.
        broker_addrs: brokerId → address; empty if no broker of the name is registered.
        live_brokers: The entries of brokerLiveTable, also of brokers whose brokerId another broker has taken since.
        topics: Topic → this broker name's queues.
        topic_mappings: Topic → this broker name's share of a static topic. As in Java, it outlives the brokers.
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


@dataclass(frozen=True, slots=True)
class Registered:
    """The outcome of a registration.

    Attributes:
        group: The group afterwards; the same object if nothing changed.
        ignored: Why the registration was not applied; None if it was.
        refused: Whether Java answers it with SYSTEM_ERROR "register broker failed" instead of SUCCESS.
        contradiction: What it changes under the last DataVersion, for people; None if nothing, or if that was known.
    """

    group: BrokerGroup
    ignored: str | None = None
    refused: bool = False
    contradiction: str | None = None


def register(
    group: BrokerGroup,
    registration: Registration,
    server_id: str,
    holder: Holder,
    settings: RegistrationSettings = DEFAULT_REGISTRATION_SETTINGS,
) -> Registered:
    """Apply one registration that ``server_id`` received over ``holder``.

    As in Java, a registration with the DataVersion of the last one adds topics, but changes none of those that exist.
    The topics that it would change are noted in the live entry, unless the settings say that they change.

    Differs from RocketMQ: a refused registration changes nothing (Java adds a cluster entry and removes an id). A stale
    registration removes its process completely, where Java may leave an address in the route without a live entry.

    Source: rocketmq 5.3.3, RouteInfoManager.registerBroker.
    """
    key, broker_id = registration.live_key, registration.broker_id
    addrs = {i: a for i, a in group.broker_addrs.items() if a != key.broker_addr or i == broker_id}
    old_addr = addrs.get(broker_id)
    if old_addr is not None and old_addr != key.broker_addr:
        old_live = group.live_brokers.get(LiveKey(key.cluster, old_addr))
        if old_live is not None and old_live.data_version.state_version > registration.data_version.state_version:
            return Registered(
                unregister(group, key),
                ignored=f"brokerId {broker_id} is held by {old_addr} with a higher stateVersion"
                f" {old_live.data_version.state_version} > {registration.data_version.state_version}",
            )
    if broker_id not in addrs and len(registration.topics) == 1:
        return Registered(group, ignored="one topic before any full registration", refused=True)

    addrs[broker_id] = key.broker_addr
    live = group.live_brokers.get(key)
    is_first = not group.is_registered or old_addr is None
    rewrite = is_first or live is None or live.data_version != registration.data_version
    acting_master = bool(registration.enable_acting_master)
    is_prime_slave = registration.enable_acting_master is not None and broker_id == min(addrs) != MASTER_ID
    topics, mappings = group.topics, group.topic_mappings
    differing: tuple[str, ...] = ()
    if broker_id == MASTER_ID or is_prime_slave:
        payload = registration.topics
        if is_prime_slave and acting_master:
            payload = {t: without_write(q) for t, q in payload.items()}
        if live is not None and not rewrite:
            last = group.registrations.get(key)
            differing = differing_topics(live.contradictions, last, registration, payload, topics, mappings)
            rewrite = bool(differing) and settings.takes_over_contradictions
        if rewrite and registration.topic_mappings:
            mappings = _updated(mappings, registration.topic_mappings)
        drop_absent = settings.drops_absent_topics and not registration.topic_mappings
        topics = merge_topics(topics, payload, rewrite=rewrite, drop_absent=drop_absent)
    contradictions = () if rewrite else differing
    if len(registration.topics) == 1 and live is not None and live.data_version == registration.data_version:
        # The registration of a single topic says nothing about the others.
        contradictions = tuple(sorted({*contradictions, *(set(live.contradictions) - registration.topics.keys())}))
    contradiction = None
    if differing and live is not None and (rewrite or contradictions != live.contradictions):
        contradiction = contradiction_text(registration.data_version, differing, is_taken_over=rewrite)
    registrations = group.registrations
    if len(registration.topics) != 1:
        registrations = _updated(registrations, {key: retained(registration)})
    next_live = _live_after(live, registration, server_id, holder)
    next_group = replace(
        group,
        cluster=group.cluster if group.is_registered else registration.cluster,
        clusters=group.clusters if registration.cluster in group.clusters else group.clusters | {registration.cluster},
        zone_name=registration.zone_name,
        enable_acting_master=acting_master,
        broker_addrs=group.broker_addrs if addrs == group.broker_addrs else addrs,
        live_brokers=_updated(group.live_brokers, {key: replace(next_live, contradictions=contradictions)}),
        topics=topics,
        topic_mappings=mappings,
        registrations=registrations,
    )
    return Registered(group if next_group == group else next_group, contradiction=contradiction)


def _live_after(live: BrokerLive | None, registration: Registration, server_id: str, holder: Holder) -> BrokerLive:
    """Return a broker's live entry after a registration; a registration without filter servers keeps the known ones."""
    filter_servers = registration.filter_servers
    if filter_servers is None:
        filter_servers = live.filter_servers if live else ()
    return BrokerLive(
        data_version=registration.data_version,
        timeout_ms=registration.timeout_ms,
        ha_server_addr=registration.ha_server_addr,
        filter_servers=filter_servers,
        registration_hash=registration.registration_hash,
        holders=_updated(live.holders if live else _EMPTY, {server_id: holder}),
    )


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

    Source: rocketmq 5.3.3, RouteInfoManager.unRegisterBroker: by address, and ``cleanTopicByUnRegisterRequests``.
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
            clusters=frozenset(),
            cluster="",
            zone_name=None,
            enable_acting_master=False,
        )
    topics = group.topics
    if group.enable_acting_master and min(addrs) > MASTER_ID:
        topics = _with_perms(topics, without_write)
    return replace(group, live_brokers=live_brokers, broker_addrs=addrs, topics=topics)


def set_holder(group: BrokerGroup, key: LiveKey, server_id: str, holder: Holder) -> BrokerGroup:
    """Return the group in which ``server_id`` receives the heartbeats of the live ``key`` over ``holder``."""
    live = group.live_brokers[key]
    if live.holders.get(server_id) == holder:
        return group
    holders = {**live.holders, server_id: holder}
    return replace(group, live_brokers={**group.live_brokers, key: replace(live, holders=holders)})


def remove_holder(group: BrokerGroup, key: LiveKey, server_id: str) -> BrokerGroup:
    """Return the group in which ``server_id`` is no holder of ``key``. The broker itself stays."""
    live = group.live_brokers.get(key)
    if live is None or server_id not in live.holders:
        return group
    holders = {s: h for s, h in live.holders.items() if s != server_id}
    return replace(group, live_brokers=_updated(group.live_brokers, {key: replace(live, holders=holders)}))


def delete_topic(group: BrokerGroup, topic: str) -> BrokerGroup:
    """Return the group without a topic; static mappings stay. Source: rocketmq 5.3.3, RouteInfoManager.deleteTopic."""
    if topic not in group.topics:
        return group
    return replace(group, topics={t: q for t, q in group.topics.items() if t != topic})


def register_topic(group: BrokerGroup, topic: str, queue_data: QueueData) -> BrokerGroup:
    """Return the group with these queues of ``topic``; the same group if no broker of the name is registered.

    Source: rocketmq 5.3.3, RouteInfoManager.registerTopic.
    """
    if not group.is_registered or group.topics.get(topic) == queue_data:
        return group
    return replace(group, topics=_updated(group.topics, {topic: queue_data}))


def wipe_write_perm(group: BrokerGroup) -> BrokerGroup:
    """Return the group with no topic writable. Source: rocketmq 5.3.3, RouteInfoManager.operateWritePermOfBroker."""
    topics = _with_perms(group.topics, without_write)
    return group if topics is group.topics else replace(group, topics=topics)


def add_write_perm(group: BrokerGroup) -> BrokerGroup:
    """Return the group in which every topic is readable and writable. Source: as for ``wipe_write_perm``."""
    topics = _with_perms(group.topics, _read_write)
    return group if topics is group.topics else replace(group, topics=topics)


def is_nothing(group: BrokerGroup) -> bool:
    """Whether the group is equivalent to no group at all."""
    return not (group.broker_addrs or group.live_brokers or group.topic_mappings or group.registrations)


def _read_write(q: QueueData) -> QueueData:
    if q.perm == PERM_READ_WRITE:
        return q
    return shared_queue_data(q.read_queue_nums, q.write_queue_nums, PERM_READ_WRITE, q.topic_sys_flag)


def _with_perms(topics: Mapping[str, QueueData], change: Callable[[QueueData], QueueData]) -> Mapping[str, QueueData]:
    changed = {t: change(q) for t, q in topics.items()}
    return topics if changed == topics else changed


def _updated(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return ``old`` updated with ``new``; the same object if nothing changes."""
    if all(k in old and old[k] == v for k, v in new.items()):
        return old
    return {**old, **new}
