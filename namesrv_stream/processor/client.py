"""What clients and tools ask: the route of a topic, the brokers of all clusters.

Source: rocketmq 5.3.3, ClientRequestProcessor and DefaultRequestProcessor; nameserver.md §5.2, §5.4, §5.5.
"""

from dataclasses import replace

from namesrv_stream.errors import TopicNotExist
from namesrv_stream.processor.broker import ORDER_TOPIC_CONFIG
from namesrv_stream.processor.name_server import Answer, Call, NameServer
from namesrv_stream.processor.route_body import encode_topic_route
from namesrv_stream.remoting.codes import V4_9_4, ResponseCode
from namesrv_stream.remoting.command import response_to
from namesrv_stream.remoting.headers import GetRouteInfoRequestHeader
from namesrv_stream.route.topic_route import TopicRoute, in_zone


def get_route_info_by_topic(server: NameServer, call: Call) -> Answer:
    """105, in the JSON form that the client's release can read.

    Raises:
        TopicNotExist: No registered broker offers the topic.
    """
    header = GetRouteInfoRequestHeader.from_ext_fields(call.request.ext_fields)
    topic = header.topic or ""
    strict = call.request.version >= V4_9_4 or header.accept_standard_json_only
    zone_name = header.zone_name or ""
    body = None
    if header.zone_mode and zone_name.strip():
        # The zone filter writes the legacy form whatever the client asked for.
        route = _with_order(server, topic, server.answers.route(topic))
        body = None if route is None else encode_topic_route(in_zone(route, zone_name), strict=False)
    elif server.options.order_message_enable:
        route = _with_order(server, topic, server.answers.route(topic))
        body = None if route is None else encode_topic_route(route, strict=strict)
    else:
        body = server.answers.route_body(topic, strict=strict)
    if body is None:
        raise TopicNotExist(topic)
    return Answer(response_to(call.request, ResponseCode.SUCCESS, body=body))


def get_broker_cluster_info(server: NameServer, call: Call) -> Answer:
    """106."""
    return Answer(response_to(call.request, ResponseCode.SUCCESS, body=server.answers.cluster_info_body()))


def _with_order(server: NameServer, topic: str, route: TopicRoute | None) -> TopicRoute | None:
    if route is None or not server.options.order_message_enable:
        return route
    return replace(route, order_topic_conf=server.table.kv.get(ORDER_TOPIC_CONFIG, {}).get(topic))
