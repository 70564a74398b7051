"""The route table: every broker group, KV entry and setting, with the indexes that questions need.

One object that its owner changes in place: ``replace_group`` keeps the indexes right in time proportional to what
changed. Nothing waits and nothing else writes, so a reader on the same event loop never sees half a change.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from itertools import compress
from operator import is_, is_not

from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.hold import Hold
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import QueueData

OnChanged = Callable[[str | None, Collection[str] | None], None]


class RouteTable:
    """All broker groups by name.

    Attributes:
        groups: broker name to its group; a name may have nothing left but retained registrations.
        kv: namespace to key to value.
        settings: (namespace "effective" or "config", name) to JSON text, of the lowest partition that has it.
        servers: (partition, server_id) to (server epoch, state).
        held: Brokers that would be gone, did the mass-expiry guard not keep them; they are in ``groups`` as well.
        brokers_version: Counts the changes of brokerAddrTable and clusterAddrTable.
        on_changed: Told of a broker name whose group is another one, and of the topics whose routes are others than
            before, or may be; None for the one or the other: of any.
    """

    def __init__(self) -> None:
        self.groups: dict[str, BrokerGroup] = {}
        self.kv: dict[str, dict[str, str]] = {}
        self.settings: dict[tuple[str, str], str] = {}
        self.servers: dict[tuple[int, str], tuple[int, str]] = {}
        self.held: dict[LeaseKey, Hold] = {}
        self.brokers_version = 0
        self.on_changed: OnChanged | None = None
        self._settings_of: dict[int, dict[tuple[str, str], str]] = {}
        self._names_of_topic: dict[str, tuple[str, ...]] = {}
        self._names_of_cluster: dict[str, set[str]] = {}
        self._names_with_mapping: dict[str, set[str]] = {}
        self._filtering_names: set[str] = set()

    def group(self, broker_name: str) -> BrokerGroup:
        """The group of a name; an empty one where nothing is known."""
        return self.groups.get(broker_name) or BrokerGroup(broker_name)

    def names_offering(self, topic: str) -> tuple[str, ...]:
        """The broker names that offer ``topic``, in order, so that all servers answer the same bytes."""
        return self._names_of_topic.get(topic, ())

    def queue_data_of(self, topic: str) -> Iterator[tuple[BrokerGroup, QueueData]]:
        """Each broker group that offers ``topic``, with what it offers, by name."""
        for name in self.names_offering(topic):
            group = self.groups[name]
            yield group, group.topics[topic]

    def is_plain(self, topic: str) -> bool:
        """Whether the route of ``topic`` has neither filter servers nor static mappings: hardly any has."""
        return not (self._filtering_names or topic in self._names_with_mapping)

    def groups_mapping(self, topic: str) -> Iterator[BrokerGroup]:
        """Groups that have a share of the static topic, whether registered or not."""
        for name in sorted(self._names_with_mapping.get(topic, ())):
            yield self.groups[name]

    def has_filter_servers(self) -> bool:
        """Whether any broker has filter servers: Java then lists every address of a route."""
        return bool(self._filtering_names)

    def topics(self) -> Iterator[str]:
        return iter(self._names_of_topic)

    @property
    def topic_count(self) -> int:
        return len(self._names_of_topic)

    def clusters(self) -> Mapping[str, set[str]]:
        """clusterAddrTable: cluster to broker names."""
        return self._names_of_cluster

    def registered_groups(self) -> Iterator[BrokerGroup]:
        return (g for g in self.groups.values() if g.is_registered)

    def settings_of(self, partition: int) -> Mapping[tuple[str, str], str]:
        """The settings as one partition has them."""
        return self._settings_of.get(partition, {})

    def replace_settings(self, partition: int, values: Mapping[tuple[str, str], str]) -> None:
        """Take over all of a partition's settings; a lower partition's values go before those of a higher one."""
        self._settings_of[partition] = dict(values)
        self.settings = {}
        for _, of_partition in sorted(self._settings_of.items(), reverse=True):
            self.settings |= of_partition

    def replace_group(self, new: BrokerGroup) -> None:
        """Put a group in the place of its older self."""
        name = new.broker_name
        old = self.group(name)
        if new == old:
            return  # the old object stays: who remembers it by identity is still right
        self._replace(old, new)
        if old.topics is not new.topics and old.topics.keys() != new.topics.keys():
            self._index_topics(
                name, gone=old.topics.keys() - new.topics.keys(), new=new.topics.keys() - old.topics.keys()
            )

    def _index_topics(self, name: str, *, gone: Set[str], new: Set[str]) -> None:
        """A broker name offers some topics no longer, and others from now on."""
        # Most of these topics have the same brokers: their names are put together once, and kept as one object.
        after: dict[tuple[str, ...], tuple[str, ...]] = {}
        for topic in gone:
            names = self._names_of_topic.pop(topic)
            if names not in after:
                after[names] = tuple(other for other in names if other != name)
            if after[names]:
                self._names_of_topic[topic] = after[names]
        after.clear()
        for topic in new:
            names = self._names_of_topic.get(topic, ())
            if names not in after:
                at = bisect_left(names, name)  # they are in order, and may be thousands
                after[names] = (*names[:at], name, *names[at:])
            self._names_of_topic[topic] = after[names]

    def replace_groups(self, groups: Iterable[BrokerGroup]) -> None:
        """As ``replace_group`` for each, one of a name; the first ones are indexed all at once."""
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
        """Put a group in the place of another one, with all indexes but that of topics."""
        name = new.broker_name
        if is_nothing(new):
            self.groups.pop(name, None)
        else:
            self.groups[name] = new
        if old.clusters != new.clusters:
            _move(self._names_of_cluster, name, old.clusters, new.clusters)
            self.brokers_version += 1
        if old.topic_mappings is not new.topic_mappings:
            _move(self._names_with_mapping, name, old.topic_mappings.keys(), new.topic_mappings.keys())
        is_other_broker = _broker_data(old) != _broker_data(new)
        if is_other_broker:
            self.brokers_version += 1
        had_filters = bool(self._filtering_names)
        if any(live.filter_servers for live in new.lives.values()):
            self._filtering_names.add(name)
        else:
            self._filtering_names.discard(name)
        if self.on_changed is not None:
            is_any = had_filters or bool(self._filtering_names)
            self.on_changed(name, None if is_any else _changed_topics(old, new, is_other_broker=is_other_broker))


def _changed_topics(old: BrokerGroup, new: BrokerGroup, *, is_other_broker: bool) -> Collection[str]:
    """The topics whose routes say something else of a group than before; some may say the same."""
    if is_other_broker:
        changed = old.topics.keys() | new.topics.keys()
    elif old.topics is new.topics:
        changed = set()
    elif len(old.topics) == len(new.topics) and all(map(is_, old.topics, new.topics)):
        # What is registered again has the same topics in the same order, but for a few.
        changed = set(compress(new.topics, map(is_not, old.topics.values(), new.topics.values())))
    else:
        before = old.topics.get
        changed = {topic for topic, queue_data in new.topics.items() if before(topic) is not queue_data}
        changed |= old.topics.keys() - new.topics.keys()
    if old.topic_mappings is not new.topic_mappings:
        changed |= old.topic_mappings.keys() | new.topic_mappings.keys()
    return changed


def _broker_data(group: BrokerGroup) -> tuple[object, ...]:
    """What brokerAddrTable has of a group."""
    return (group.broker_addrs, group.cluster, group.zone_name, group.enable_acting_master)


def _names_by_topic(groups: Mapping[str, BrokerGroup]) -> dict[str, tuple[str, ...]]:
    """The index of topics, in a fraction of the time that adding the names one by one takes."""
    # Many groups may share their topics: these are gone through once.
    sharing: dict[int, tuple[Mapping[str, QueueData], list[str]]] = {}
    for name, group in groups.items():
        sharing.setdefault(id(group.topics), (group.topics, []))[1].append(name)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for topics, names in sharing.values():
        for topic in topics:
            found[topic] += names
    # One object for all topics of the same brokers, as ``_index_topics`` has it.
    in_order: dict[tuple[str, ...], tuple[str, ...]] = {}
    return {
        topic: in_order.get(names) or in_order.setdefault(names, tuple(sorted(names)))
        for topic, names in zip(found, map(tuple, found.values()), strict=True)
    }


def _move(index: dict[str, set[str]], name: str, old: Set[str], new: Set[str]) -> None:
    """Index a name under other keys than before; a key without a name is none."""
    for key in old - new:
        index[key].discard(name)
        if not index[key]:
            del index[key]
    for key in new - old:
        index.setdefault(key, set()).add(name)
