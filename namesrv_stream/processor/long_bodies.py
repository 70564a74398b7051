"""Bodies that grow with the number of topics or brokers, computed in pieces that take at most some milliseconds each.

A body shows the moment at which its first piece is computed: the pieces walk groups, which are immutable.

Unlike Java's, the topic lists are sorted.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from namesrv_stream.processor.route_body import encode_broker_map, encode_topic_list
from namesrv_stream.remoting.fastjson import JavaMap, dumps_legacy
from namesrv_stream.route.address_views import AddressView, addrs_for_clients
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import QueueData
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import broker_data_of

Item = TypeVar("Item")

#: Names that are sorted, filtered or encoded at a time, and groups that are encoded at a time.
_NAMES_AT_ONCE: Final = 4_096
_GROUPS_AT_ONCE: Final = 64
_ENTRIES_AT_ONCE: Final = 512


def topic_list(
    names: Iterable[Collection[str]], broker_addr: Callable[[], str | None] = lambda: None
) -> Iterator[bytes]:
    """Yield the pieces of a TopicList with the union of ``names``; ``broker_addr`` is called after the last of them."""
    known: set[str] = set()
    for some in names:
        known.update(some)
        yield b""
    head, tail = encode_topic_list([], broker_addr()).rsplit(b"]", 1)
    between = head
    for block in _sorted_blocks(known):
        if block:
            yield between + dumps_legacy(block)[1:-1]
            between = b","
        else:
            yield b""
    yield (head if between == head else b"") + b"]" + tail


def _sorted_blocks(names: set[str]) -> Iterator[list[str]]:
    """Yield sorted lists, one after the other in order, with empty ones in between; the set must not change."""
    if len(names) <= _NAMES_AT_ONCE:
        yield sorted(names)
        return
    step = max(1, len(names) // _NAMES_AT_ONCE)
    bounds = sorted(islice(names, 0, None, step))[:: _NAMES_AT_ONCE // 16]
    blocks: list[list[str]] = [[] for _ in range(len(bounds) + 1)]
    for some in _slices(names, _NAMES_AT_ONCE):
        for name in some:
            blocks[bisect_right(bounds, name)].append(name)
        yield []
    for block in blocks:
        for some in _slices(sorted(block), _NAMES_AT_ONCE):
            yield some


def _slices(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def topics_of(groups: Callable[[], list[BrokerGroup]]) -> Iterator[Collection[str]]:
    for group in groups():
        yield from _slices(group.topics, _NAMES_AT_ONCE)


def topics_with_flag(table: RouteTable, is_wanted: Callable[[int], bool]) -> Iterator[Collection[str]]:
    """Yield topics by their topicSysFlag at the first broker by name. Java takes the first broker in hash order."""
    of_first: dict[str, QueueData] = {}
    for _, group in sorted(table.groups.items(), reverse=True):
        of_first.update(group.topics)
        yield ()
    for some in _slices(of_first.items(), _NAMES_AT_ONCE):
        yield [topic for topic, queue_data in some if is_wanted(queue_data.topic_sys_flag)]


def system_topics(table: RouteTable, view: AddressView | None) -> Iterator[bytes]:
    """Yield the pieces of a TopicList of the names of clusters and brokers, with the address of one broker."""
    addrs: list[str] = []

    def names() -> Iterator[Collection[str]]:
        clusters = {cluster: list(of_cluster) for cluster, of_cluster in table.clusters().items()}
        groups = list(table.registered_groups())
        yield clusters
        yield from clusters.values()
        for some in _slices(groups, _GROUPS_AT_ONCE):
            found = (addrs_for_clients(view, group.broker_name, group.broker_addrs).values() for group in some)
            addrs[:] = [min([*addrs, *(addr for of_group in found for addr in of_group)])] if some else addrs
            yield ()

    return topic_list(names(), lambda: addrs[0] if addrs else None)


def kv_table(entries: Iterable[tuple[str, str]]) -> Iterator[bytes]:
    """Yield the pieces of a KVTable in the legacy form."""
    between = b'{"table":{'
    for some in _slices(entries, _ENTRIES_AT_ONCE):
        yield between + dumps_legacy(JavaMap(some))[1:-1]
        between = b","
    yield (between if between != b"," else b"") + b"}}"


def cluster_info(table: RouteTable, view: AddressView | None = None) -> Iterator[bytes]:
    """Yield the pieces of ClusterInfo in the legacy form; an address view may leave out brokers."""
    clusters = [(cluster, list(names)) for cluster, names in table.clusters().items()]
    groups, shown = list(table.registered_groups()), set[str]()
    between = b'{"brokerAddrTable":{'
    for some in _slices(groups, _GROUPS_AT_ONCE):
        datas = [data for group in some if (data := broker_data_of(group, view)).broker_addrs]
        shown.update(data.broker_name for data in datas)
        if datas:
            yield between + encode_broker_map(datas)[1:-1]
            between = b","
    yield (between if between != b"," else b"") + b"},"
    between = b'"clusterAddrTable":{'
    for of_clusters in _slices(clusters, _ENTRIES_AT_ONCE):
        known = {cluster: sorted(n for n in names if view is None or n in shown) for cluster, names in of_clusters}
        if some_known := {cluster: names for cluster, names in known.items() if names}:
            yield between + dumps_legacy(JavaMap(some_known))[1:-1]
            between = b","
    yield (between if between != b"," else b"") + b"}}"
