"""The route table: every broker group, KV entry and setting, with the indexes that queries need.

A table has one owner, which changes it in place. ``replace_group`` updates the indexes in time proportional to the
change. No method awaits anything, so a reader on the same event loop never sees a partial change. Only the index of
topics may follow in steps (``later``); queries compensate for that.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from itertools import chain, compress, islice
from operator import is_, is_not
from typing import Any, Final, NamedTuple

from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.model import Hold, LeaseKey, QueueData, encode_hold
from namesrv_stream.route.steps import finish

#: Status of a server → severity. Of its statuses in several partitions, the most severe one is shown.
_SEVERITY: Final = {"talking": 0, "silent": 1, "lost": 2, "stopped": 3}
#: Topics that are indexed in one step.
_INDEXED_AT_ONCE: Final = 2_000
_FREED_AT_ONCE: Final = 200
#: If the routes of more topics change at once, it is not determined which ones.
_MOST_CHANGED: Final = 2_000


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
        kv_version: Number of changes of KV entries.
        address_count: Number of addresses in brokerAddrTable.
        on_changed: Called with a broker name whose group was replaced, and with the topics whose routes have changed or
            may have changed. None as name or topics means any.
        later: Runs the steps of an index that follows a large change. Until then, ``topics`` and ``topic_count`` show
            the state before; all other methods show the new one.
    """

    def __init__(self) -> None:
        self.groups: dict[str, BrokerGroup] = {}
        self.kv: dict[str, dict[str, str]] = {}
        self.settings: dict[tuple[str, str], str] = {}
        self.servers: dict[tuple[int, str], tuple[int, str]] = {}
        self.held: dict[LeaseKey, Hold] = {}
        self.brokers_version = self.topics_version = self.kv_version = self.address_count = 0
        self.on_changed: OnChanged | None = None
        self._settings_of: dict[int, dict[tuple[str, str], str]] = {}
        self.later: Callable[[Iterator[None]], None] = finish
        self._names_of_topic: dict[str, tuple[str, ...]] = {}
        self._unindexed: Counter[str] = Counter()  # broker name → its changes of topics that are not indexed yet
        self._names_of_cluster: dict[str, set[str]] = {}
        self._names_with_mapping: dict[str, set[str]] = {}
        self._filtering_names: set[str] = set()

    def group(self, broker_name: str) -> BrokerGroup:
        """Return the group of a name; an empty group if nothing is known."""
        return self.groups.get(broker_name) or BrokerGroup(broker_name)

    def names_offering(self, topic: str) -> tuple[str, ...]:
        """Return the broker names with queues of ``topic``, sorted, so that all servers answer with the same bytes."""
        names = self._names_of_topic.get(topic, ())
        for name in self._unindexed:
            names = _with(names, name) if topic in self.group(name).topics else _without(names, name)
        return names

    def names_knowing(self, topic: str) -> Collection[str]:
        """Return the broker names with queues or with a static mapping of ``topic``, sorted."""
        names = self.names_offering(topic)
        mapping_names = self._names_with_mapping.get(topic)
        return sorted({*names, *mapping_names}) if mapping_names else names

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

    def freed(self) -> Iterator[None]:
        """Free the content of a table that is no longer used, in steps: all at once would take long."""
        contents: tuple[dict[str, Any], ...] = (self.groups, self._names_of_topic)
        for content in contents:
            while content:
                for _ in range(min(_FREED_AT_ONCE, len(content))):
                    content.popitem()
                yield

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
            steps = self._index_topics(name, old.topics, new.topics)
            if len(old.topics) + len(new.topics) <= _INDEXED_AT_ONCE:
                finish(steps)
            else:
                self._unindexed[name] += 1
                self.later(chain(steps, self._indexed(name)))

    def _index_topics(self, name: str, old: Mapping[str, QueueData], new: Mapping[str, QueueData]) -> Iterator[None]:
        """Update the index for the topics of a broker name that are only in one of two mappings, in steps.

        Each topic is indexed as it is then, so the order of several changes does not matter.
        """
        rest = iter(new)
        while some := list(islice(rest, _INDEXED_AT_ONCE)):
            self._index(name, [topic for topic in some if topic not in old])
            yield
        gone = list(old)
        del old  # so that the names of its topics are freed in steps, too
        while gone:
            self._index(name, [topic for topic in gone[-_INDEXED_AT_ONCE:] if topic not in new])
            del gone[-_INDEXED_AT_ONCE:]
            yield

    def _indexed(self, name: str) -> Iterator[None]:
        self._unindexed -= Counter((name,))
        yield

    def _index(self, name: str, topics: Iterable[str]) -> None:
        index, offered = self._names_of_topic, self.group(name).topics
        # Most of these topics have the same brokers, and share one tuple of names.
        known: dict[tuple[int, bool], tuple[tuple[str, ...], tuple[str, ...]]] = {}
        for topic in topics:
            before, is_offered = index.get(topic, ()), topic in offered
            found = known.get((id(before), is_offered))
            if found is None:
                after = _with(before, name) if is_offered else _without(before, name)
                found = known[id(before), is_offered] = before, after
            if found[1]:
                index[topic] = found[1]
            else:
                index.pop(topic, None)

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


def _changed_topics(old: BrokerGroup, new: BrokerGroup, *, is_other_broker: bool) -> Collection[str] | None:
    """Return the topics whose routes may have changed with a group; None if they are too many."""
    changed: Collection[str]
    if is_other_broker:
        if max(len(old.topics), len(new.topics)) > _MOST_CHANGED:
            return None
        changed = _union(old.topics, new.topics)
    elif old.topics is new.topics:
        changed = ()
    elif len(old.topics) == len(new.topics) and all(map(is_, old.topics, new.topics)):
        # A new registration usually has the same topics in the same order, and few of them differ.
        differ = map(is_not, old.topics.values(), new.topics.values())
        changed = set(islice(compress(new.topics, differ), _MOST_CHANGED + 1))
    else:
        differ = map(is_not, new.topics.values(), map(old.topics.get, new.topics))
        changed = set(islice(compress(new.topics, differ), _MOST_CHANGED + 1))
        added = sum(topic not in old.topics for topic in changed)
        if len(changed) <= _MOST_CHANGED and len(old.topics) > len(new.topics) - added:
            changed |= old.topics.keys() - new.topics.keys()
    if old.topic_mappings is not new.topic_mappings:
        changed = {*changed, *old.topic_mappings, *new.topic_mappings}
    return None if len(changed) > _MOST_CHANGED else changed


def _union(topics: Mapping[str, QueueData], others: Mapping[str, QueueData]) -> Collection[str]:
    """Return the topics of both, without a copy if there are topics in one only."""
    return topics.keys() | others.keys() if topics and others else (topics or others).keys()


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    at = bisect_left(names, name)  # the names are sorted, and may be thousands
    return names if names[at : at + 1] == (name,) else (*names[:at], name, *names[at:])


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    at = bisect_left(names, name)
    return (*names[:at], *names[at + 1 :]) if names[at : at + 1] == (name,) else names


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
    # Topics with the same brokers share one tuple, as in ``_index``.
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


def held_entries(table: RouteTable) -> Iterator[tuple[str, str]]:
    """Yield the held brokers as KV entries: ``held_key`` and the JSON of the hold."""
    for key, hold in sorted(table.held.items()):
        yield held_key(key.live_key.cluster, key.broker_name, key.live_key.broker_addr), encode_hold(hold)
