"""Processors of the requests of clients and tools: the route of a topic, the brokers of all clusters, topic lists.

RocketMQ's clusterTest mode is not supported. It treats every request as a route query and forwards unknown topics to
another name server. No broker can register in this mode, and a registry does not need a proxy for routes.

Two options switch off the lists that become long with many topics; they
never switch off GET_SYSTEM_TOPIC_LIST_FROM_NS (304).

Source: rocketmq 5.3.3, ClientRequestProcessor, DefaultRequestProcessor, RouteInfoManager and ZoneRouteRPCHook.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from functools import partial
from typing import Final

from namesrv_stream.errors import RequestRefused, TopicNotExist
from namesrv_stream.processor.long_bodies import cluster_info, system_topics, topic_list, topics_of, topics_with_flag
from namesrv_stream.processor.name_server import Answer, Call, Dependency, LongBody, NameServer
from namesrv_stream.processor.route_body import RouteRequest, encode_topic_list
from namesrv_stream.remoting.command import V4_9_4, response_to
from namesrv_stream.remoting.headers import GetRouteInfoRequestHeader, GetTopicsByClusterRequestHeader

#: The body of the route of a topic on more brokers is computed in pieces.
_MANY_BROKERS: Final = 256


def get_route_info_by_topic(server: NameServer, call: Call) -> Answer:
    """Answer 105 in the JSON form that the client's release can read.

    Raises:
        RequestRefused: The server has just started, and the options make it wait for brokers to register.
        TopicNotExist: No registered broker offers the topic.
    """
    options = server.options
    if options.need_wait_for_service and call.now_ms - server.started_ms < options.wait_seconds_for_service * 1_000:
        raise RequestRefused("name server not ready")
    header = GetRouteInfoRequestHeader.from_ext_fields(call.request.ext_fields)
    topic = header.topic
    if topic is None:
        raise TopicNotExist("null")  # as in Java's remark
    zone_name = header.zone_name if header.zone_mode and (header.zone_name or "").strip() else None
    # RocketMQ's zone filter writes the legacy form, even if the client requested the strict one.
    strict = zone_name is None and (call.request.version >= V4_9_4 or header.accept_standard_json_only)
    query = RouteRequest(topic, strict, options.order_message_enable, zone_name, call.view)
    if call.view is None and len(server.table.names_offering(topic)) > _MANY_BROKERS:
        server.asked[topic] = call.now_ms
        table = server.table
        version = (table, table.topics_version, table.brokers_version, table.kv_version if query.with_order else 0)
        return _long(call, LongBody((105, query), version, lambda: server.answers.pieces(query)))
    body = server.answers.route_body(query)
    if body is None:
        raise TopicNotExist(topic)
    server.asked[topic] = call.now_ms
    # The order of queues is a KV value, which can change while the route does not.
    depends_on = None if query.with_order else Dependency("topic", topic)
    return Answer(response_to(call.request, body=body), depends_on=depends_on)


def get_broker_cluster_info(server: NameServer, call: Call) -> Answer:
    """Answer 106: brokerAddrTable and clusterAddrTable, as the client's address view shows them.

    Every 5.x broker asks for them every 5 s.
    """
    table, view = server.table, call.view
    return _long(call, LongBody((106, view), (table, table.brokers_version), lambda: cluster_info(table, view)))


#: Bits of topicSysFlag. Source: rocketmq 5.3.3, TopicSysFlag.
FLAG_UNIT = 0x1 << 0
FLAG_UNIT_SUB = 0x1 << 1


def get_all_topic_list(server: NameServer, call: Call) -> Answer:
    """Answer 206: every topic that a broker offers.

    Raises:
        RequestRefused: enableAllTopicList is off.
    """
    _require(server.options.enable_all_topic_list)
    groups = server.table.groups
    return _topics(server, call, (206,), lambda: topics_of(lambda: list(groups.values())))


def get_topics_by_cluster(server: NameServer, call: Call) -> Answer:
    """Answer 224: topics that a broker of the cluster offers; none for an unknown cluster.

    Raises:
        RequestRefused: enableTopicList is off, as for 311 to 313.
    """
    _require(server.options.enable_topic_list)
    cluster = GetTopicsByClusterRequestHeader.from_ext_fields(call.request.ext_fields).cluster or ""
    table = server.table
    if cluster not in table.clusters():
        return Answer(response_to(call.request, body=encode_topic_list([])))
    groups = lambda: [table.group(name) for name in table.clusters().get(cluster, ())]  # noqa: E731
    return _topics(server, call, (224, cluster), lambda: topics_of(groups))


def get_system_topic_list(server: NameServer, call: Call) -> Answer:
    """Answer 304: the names of clusters and brokers, and the address of one broker.

    Every broker has a topic named after itself and one named after its cluster. Clients ask the one broker for further
    system topics.
    """
    table, view = server.table, call.view
    return _long(call, LongBody((304, view), (table, table.brokers_version), lambda: system_topics(table, view)))


def _require(enabled: bool) -> None:
    if not enabled:
        raise RequestRefused("disable")


def _topics_where(server: NameServer, call: Call, is_wanted: Callable[[int], bool]) -> Answer:
    _require(server.options.enable_topic_list)
    table = server.table
    return _topics(server, call, (call.request.code,), lambda: topics_with_flag(table, is_wanted))


#: Answer 311: topics of a unit.
get_unit_topic_list = partial(_topics_where, is_wanted=lambda flag: bool(flag & FLAG_UNIT))
#: Answer 312: topics with subscriptions of a unit.
get_has_unit_sub_topic_list = partial(_topics_where, is_wanted=lambda flag: bool(flag & FLAG_UNIT_SUB))
#: Answer 313: topics that have subscriptions of a unit but belong to none.
get_has_unit_sub_un_unit_topic_list = partial(
    _topics_where, is_wanted=lambda flag: flag & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB
)


def _topics(
    server: NameServer, call: Call, key: tuple[Hashable, ...], names: Callable[[], Iterable[Collection[str]]]
) -> Answer:
    version = (server.table, server.table.topics_version)
    return _long(call, LongBody(key, version, lambda: topic_list(names())))


def _long(call: Call, body: LongBody) -> Answer:
    return Answer(response_to(call.request), long=body)
