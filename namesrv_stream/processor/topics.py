"""Processors of topic lists for tools and dashboards: all topics, a cluster's, the system's, those of units.

Source: rocketmq 5.3.3, DefaultRequestProcessor and RouteInfoManager; nameserver.md §5.4. Unlike Java's, these lists are
sorted. Two options switch off the lists that become long with many topics; they never switch off 304.
"""

from collections.abc import Callable, Iterable

from namesrv_stream.errors import RequestRefused
from namesrv_stream.processor.name_server import Answer, Call, NameServer
from namesrv_stream.processor.route_body import encode_topic_list
from namesrv_stream.remoting.command import response_to
from namesrv_stream.remoting.headers import GetTopicsByClusterRequestHeader

#: Bits of topicSysFlag. Source: rocketmq 5.3.3, TopicSysFlag.
FLAG_UNIT = 0x1 << 0
FLAG_UNIT_SUB = 0x1 << 1


def get_all_topic_list(server: NameServer, call: Call) -> Answer:
    """Answer 206: every topic that a broker offers.

    Raises:
        RequestRefused: enableAllTopicList is off.
    """
    _require(server.options.enable_all_topic_list)
    return _topic_list(call, server.table.topics())


def get_topics_by_cluster(server: NameServer, call: Call) -> Answer:
    """Answer 224: topics that a broker of the cluster offers; none for an unknown cluster.

    Raises:
        RequestRefused: enableTopicList is off, as for 311 to 313.
    """
    _require(server.options.enable_topic_list)
    cluster = GetTopicsByClusterRequestHeader.from_ext_fields(call.request.ext_fields).cluster or ""
    names = server.table.clusters().get(cluster, ())
    return _topic_list(call, {topic for name in names for topic in server.table.group(name).topics})


def get_system_topic_list(server: NameServer, call: Call) -> Answer:
    """Answer 304: cluster and broker names, which are topics on brokers, and a broker that knows further topics."""
    table = server.table
    names = {*table.clusters(), *(name for names in table.clusters().values() for name in names)}
    addrs = [addr for group in table.registered_groups() for addr in group.broker_addrs.values()]
    return _topic_list(call, names, broker_addr=min(addrs, default=None))


def get_unit_topic_list(server: NameServer, call: Call) -> Answer:
    """Answer 311: topics of a unit."""
    _require(server.options.enable_topic_list)
    return _topic_list(call, _topics_where(server, lambda flag: bool(flag & FLAG_UNIT)))


def get_has_unit_sub_topic_list(server: NameServer, call: Call) -> Answer:
    """Answer 312: topics with subscriptions of a unit."""
    _require(server.options.enable_topic_list)
    return _topic_list(call, _topics_where(server, lambda flag: bool(flag & FLAG_UNIT_SUB)))


def get_has_unit_sub_un_unit_topic_list(server: NameServer, call: Call) -> Answer:
    """Answer 313: topics that have subscriptions of a unit but belong to none."""
    _require(server.options.enable_topic_list)
    return _topic_list(call, _topics_where(server, lambda flag: flag & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB))


def _require(enabled: bool) -> None:
    if not enabled:
        raise RequestRefused("disable")


def _topics_where(server: NameServer, is_wanted: Callable[[int], bool]) -> set[str]:
    """Return topics by the flag of one broker: the first in order of names, while Java takes it in hash order."""
    table = server.table
    return {topic for topic in table.topics() if is_wanted(next(table.queue_data_of(topic))[1].topic_sys_flag)}


def _topic_list(call: Call, topics: Iterable[str], broker_addr: str | None = None) -> Answer:
    body = encode_topic_list(sorted(topics), broker_addr)
    return Answer(response_to(call.request, body=body))
