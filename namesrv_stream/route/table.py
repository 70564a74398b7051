"""The route table: every broker group, KV entry and setting, with the indexes that queries need.

A table has one owner, which changes it in place. ``replace_group`` updates the indexes in time proportional to the
change. No method awaits anything, so a reader on the same event loop never sees a partial change.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from itertools import compress
from operator import is_, is_not
from typing import Final, NamedTuple

from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.model import Hold, LeaseKey, QueueData, encode_hold

#: Status of a server → severity. Of its statuses in several partitions, the most severe one is shown.
_SEVERITY: Final = {"talking": 0, "silent": 1, "lost": 2, "stopped": 3}


class KnownServer(NamedTuple):
    """A name server, as the rows of all partitions describe it.

    Attributes:
        server_epoch: When it started, epoch milliseconds.
        status: "talking" while it writes to the log, else "silent", "lost" or "stopped"; the worst of all partitions.
        address: The remoting address that it advertises; "" for none.
        is_listed: Whether it talks in every partition, and advertises the same address in all of them.
    """

    server_id: str
    server_epoch: int
    status: str
    address: str
    is_listed: bool


OnChanged = Callable[[str | None, Collection[str] | None], None]


class RouteTable:
    """All broker groups, KV entries, settings, name servers and held brokers.

    Attributes:
        groups: Broker name → its group, which may consist of retained registrations only.
        kv: Namespace → key → value.
        settings: (namespace "effective" or "config", name) → JSON text, from the lowest partition that has it.
        servers: (partition, server_id) → (server epoch, status). If the server advertises an address, the status is
            followed by a space and that address.
        held: Broker process → hold of the mass-expiry guard. The brokers are in ``groups`` as well.
        brokers_version: Number of changes of brokerAddrTable and clusterAddrTable.
        topics_version: Number of changes of topics, their queues, and the clusters of their brokers.
        address_count: Number of addresses in brokerAddrTable.
        on_changed: Called with a broker name whose group was replaced, and with the topics whose routes have changed or
            may have changed. None as name or topics means any.
    """

    def __init__(self) -> None:
        self.groups: dict[str, BrokerGroup] = {}
        self.kv: dict[str, dict[str, str]] = {}
        self.settings: dict[tuple[str, str], str] = {}
        self.servers: dict[tuple[int, str], tuple[int, str]] = {}
        self.held: dict[LeaseKey, Hold] = {}
        self.brokers_version = self.topics_version = self.address_count = 0
        self.on_changed: OnChanged | None = None
        self._settings_of: dict[int, dict[tuple[str, str], str]] = {}
        self._names_of_topic: dict[str, tuple[str, ...]] = {}
        self._names_of_cluster: dict[str, set[str]] = {}
        self._names_with_mapping: dict[str, set[str]] = {}
        self._filtering_names: set[str] = set()

    def group(self, broker_name: str) -> BrokerGroup:
        """Return the group of a name; an empty group if nothing is known."""
        return self.groups.get(broker_name) or BrokerGroup(broker_name)

    def names_offering(self, topic: str) -> tuple[str, ...]:
        """Return the broker names with queues of ``topic``, sorted, so that all servers answer with the same bytes."""
        return self._names_of_topic.get(topic, ())

    def queue_data_of(self, topic: str) -> Iterator[tuple[BrokerGroup, QueueData]]:
        """Yield each broker group with queues of ``topic``, and these queues, in the order of broker names."""
        for name in self.names_offering(topic):
            group = self.groups[name]
            yield group, group.topics[topic]

    def is_plain(self, topic: str) -> bool:
        """Whether no broker of the table has filter servers and ``topic`` has no static mapping: the normal case."""
        return not (self._filtering_names or topic in self._names_with_mapping)

    def groups_mapping(self, topic: str) -> Iterator[BrokerGroup]:
        """Yield the groups with a share of the static topic, registered or not."""
        for name in sorted(self._names_with_mapping.get(topic, ())):
            yield self.groups[name]

    def part_of(self, topics: Collection[str], namespaces: Iterable[str] = ()) -> "RouteTable":
        """Return a copy for another thread, which only reads it: all groups, these topics and these KV namespaces."""
        part = RouteTable()
        part.groups, part.held = self.groups.copy(), self.held.copy()
        part.kv = {namespace: self.kv[namespace].copy() for namespace in namespaces if namespace in self.kv}
        part._names_of_topic = {topic: self.names_offering(topic) for topic in topics}
        part._names_with_mapping = {topic: set(self._names_with_mapping.get(topic, ())) for topic in topics}
        part._filtering_names = self._filtering_names.copy()
        return part

    def topics(self) -> Iterator[str]:
        return iter(self._names_of_topic)

    @property
    def topic_count(self) -> int:
        return len(self._names_of_topic)

    def clusters(self) -> Mapping[str, set[str]]:
        """Return clusterAddrTable: cluster → broker names."""
        return self._names_of_cluster

    def registered_groups(self) -> Iterator[BrokerGroup]:
        return (g for g in self.groups.values() if g.is_registered)

    def settings_of(self, partition: int) -> Mapping[tuple[str, str], str]:
        """Return the settings of one partition: (namespace, name) → JSON text."""
        return self._settings_of.get(partition, {})

    def known_servers(self, partitions: int) -> list[KnownServer]:
        """Return all name servers that have ever written to the log, sorted by id, as of each server's last start."""
        values: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for (_, server_id), (epoch, value) in self.servers.items():
            values[server_id][epoch].append(value)
        found = []
        for server_id, of_epoch in sorted(values.items()):
            epoch = max(of_epoch)
            statuses, addresses = zip(*(value.partition(" ")[::2] for value in of_epoch[epoch]), strict=True)
            address = addresses[0] if len(set(addresses)) == 1 else ""
            is_listed = bool(address) and len(addresses) >= partitions
            status = max(statuses, key=lambda each: _SEVERITY.get(each, 0))
            found.append(KnownServer(server_id, epoch, status, address, is_listed))
        return found

    def replace_settings(self, partition: int, values: Mapping[tuple[str, str], str]) -> None:
        """Replace all settings of a partition. In ``settings``, a lower partition overrides a higher one."""
        self._settings_of[partition] = dict(values)
        self.settings = {}
        for _, of_partition in sorted(self._settings_of.items(), reverse=True):
            self.settings |= of_partition

    def replace_group(self, new: BrokerGroup) -> None:
        """Replace the group of a broker name."""
        name = new.broker_name
        old = self.group(name)
        if new == old:
            return  # the old object stays, because caches compare groups by identity
        self._replace(old, new)
        if old.topics is not new.topics:
            gone, added = _without(old.topics, new.topics), _without(new.topics, old.topics)
            self._index_topics(gone, lambda names: tuple(other for other in names if other != name))
            self._index_topics(added, lambda names: _with_name(names, name))

    def _index_topics(self, topics: Collection[str], names_after: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
        """Update the broker names of topics: ``names_after`` returns those after the change."""
        # Most of these topics have the same brokers. So they share one tuple of names, and are updated at once: a
        # broker can have 100,000 topics.
        index = self._names_of_topic
        before = list(map(index.get, topics))
        shared = {id(names): names or () for names in before}
        after = {key: names_after(names) for key, names in shared.items()}
        if len(after) == 1:
            (names,) = after.values()
            if names:
                index.update(dict.fromkeys(topics, names))
            else:
                deque(map(index.pop, topics), maxlen=0)
            return
        for topic, key in zip(topics, map(id, before), strict=True):
            if after[key]:
                index[topic] = after[key]
            else:
                del index[topic]

    def replace_groups(self, groups: Iterable[BrokerGroup]) -> None:
        """Call ``replace_group`` for groups of different names. If the table is empty, all are indexed at once."""
        if self.groups:
            for new in groups:
                self.replace_group(new)
            return
        for new in groups:
            old = BrokerGroup(new.broker_name)
            if new != old:
                self._replace(old, new)
        self._names_of_topic = _names_by_topic(self.groups)

    def _replace(self, old: BrokerGroup, new: BrokerGroup) -> None:
        """Replace a group, and update all indexes except the one of topics."""
        name = new.broker_name
        self.address_count += len(new.broker_addrs) - len(old.broker_addrs)
        if is_nothing(new):
            self.groups.pop(name, None)
        else:
            self.groups[name] = new
        if old.clusters != new.clusters:
            _move(self._names_of_cluster, name, old.clusters, new.clusters)
            self.brokers_version += 1
        if old.topics is not new.topics or old.clusters != new.clusters:
            self.topics_version += 1
        if old.topic_mappings is not new.topic_mappings:
            _move(self._names_with_mapping, name, old.topic_mappings.keys(), new.topic_mappings.keys())
        is_other_broker = _broker_data(old) != _broker_data(new)
        if is_other_broker:
            self.brokers_version += 1
        had_filters = bool(self._filtering_names)
        if any(live.filter_servers for live in new.live_brokers.values()):
            self._filtering_names.add(name)
        else:
            self._filtering_names.discard(name)
        if self.on_changed is not None:
            is_any = had_filters or bool(self._filtering_names)
            self.on_changed(name, None if is_any else _changed_topics(old, new, is_other_broker=is_other_broker))


def _changed_topics(old: BrokerGroup, new: BrokerGroup, *, is_other_broker: bool) -> Collection[str]:
    """Return the topics whose routes may have changed with a group."""
    changed: Collection[str]
    if is_other_broker:
        changed = _union(old.topics, new.topics)
    elif old.topics is new.topics:
        changed = ()
    elif len(old.topics) == len(new.topics) and all(map(is_, old.topics, new.topics)):
        # A new registration usually has the same topics in the same order, and few of them differ.
        changed = set(compress(new.topics, map(is_not, old.topics.values(), new.topics.values())))
    else:
        before = old.topics.get
        differing = {topic for topic, queue_data in new.topics.items() if before(topic) is not queue_data}
        changed = differing | (old.topics.keys() - new.topics.keys())
    if old.topic_mappings is not new.topic_mappings:
        changed = {*changed, *old.topic_mappings, *new.topic_mappings}
    return changed


def _union(topics: Mapping[str, QueueData], others: Mapping[str, QueueData]) -> Collection[str]:
    """Return the topics of both, without a copy if there are topics in one only."""
    return topics.keys() | others.keys() if topics and others else (topics or others).keys()


def _without(topics: Mapping[str, QueueData], others: Mapping[str, QueueData]) -> Collection[str]:
    """Return the topics that are not among the others."""
    return topics.keys() - others.keys() if others else topics.keys()


def _with_name(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    at = bisect_left(names, name)  # the names are sorted, and may be thousands
    return (*names[:at], name, *names[at:])


def _broker_data(group: BrokerGroup) -> tuple[object, ...]:
    """Return a group's part of brokerAddrTable."""
    return (group.broker_addrs, group.cluster, group.zone_name, group.enable_acting_master)


def _names_by_topic(groups: Mapping[str, BrokerGroup]) -> dict[str, tuple[str, ...]]:
    """Return topic → sorted broker names. This takes a fraction of the time of adding the names one by one."""
    # Many groups may share one mapping of topics, which is iterated once.
    sharing: dict[int, tuple[Mapping[str, QueueData], list[str]]] = {}
    for name, group in groups.items():
        sharing.setdefault(id(group.topics), (group.topics, []))[1].append(name)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for topics, names in sharing.values():
        for topic in topics:
            found[topic] += names
    # Topics with the same brokers share one tuple, as in ``_index_topics``.
    in_order: dict[tuple[str, ...], tuple[str, ...]] = {}
    return {
        topic: in_order.get(names) or in_order.setdefault(names, tuple(sorted(names)))
        for topic, names in zip(found, map(tuple, found.values()), strict=True)
    }


def _move(index: dict[str, set[str]], name: str, old: Set[str], new: Set[str]) -> None:
    """Move a name of an index from its old keys to its new ones. Keys without names are deleted."""
    for key in old - new:
        index[key].discard(name)
        if not index[key]:
            del index[key]
    for key in new - old:
        index.setdefault(key, set()).add(name)


#: The KV namespace in which servers list held brokers, because RocketMQ has no request for them. While brokers are
#: held, request 219 returns them instead of entries that somebody stored. Otherwise it returns the stored entries, if
#: any.
HELD_NAMESPACE = "namesrv-stream.held-brokers"


def held_key(cluster: str, broker_name: str, broker_addr: str) -> str:
    """Return the KV key of a held broker; a slash in the cluster or the name is written as ``%2F``."""
    names = (text.replace("%", "%25").replace("/", "%2F") for text in (cluster, broker_name))
    return "/".join((*names, broker_addr))


def held_entries(table: RouteTable) -> dict[str, str]:
    """Return the held brokers as KV entries: ``held_key`` → JSON of the hold."""
    return {
        held_key(key.live_key.cluster, key.broker_name, key.live_key.broker_addr): encode_hold(hold)
        for key, hold in sorted(table.held.items())
    }
