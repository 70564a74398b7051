"""What clients and tools ask: the route of a topic, the brokers of all clusters.

RocketMQ's clusterTest mode, in which every request is taken for a route query and unknown topics are asked from another
name server, is not served: no broker can register in it, and a proxy of routes is no part of a registry.

Source: rocketmq 5.3.3, ClientRequestProcessor and DefaultRequestProcessor; nameserver.md §5.2, §5.4, §5.5.
"""

from namesrv_stream.errors import RequestRefused, TopicNotExist
from namesrv_stream.processor.name_server import Answer, Call, NameServer
from namesrv_stream.processor.route_body import encode_topic_route
from namesrv_stream.remoting.codes import V4_9_4, ResponseCode
from namesrv_stream.remoting.command import response_to
from namesrv_stream.remoting.headers import GetRouteInfoRequestHeader
from namesrv_stream.route.topic_route import in_zone


def get_route_info_by_topic(server: NameServer, call: Call) -> Answer:
    """105, in the JSON form that the client's release can read.

    Raises:
        RequestRefused: The server has just started and is told to give brokers time to register.
        TopicNotExist: No registered broker offers the topic.
    """
    options = server.options
    if options.need_wait_for_service and call.now_ms - server.started_ms < options.wait_seconds_for_service * 1_000:
        raise RequestRefused("name server not ready")
    header = GetRouteInfoRequestHeader.from_ext_fields(call.request.ext_fields)
    if header.topic is None:
        raise TopicNotExist("null")  # Java's word for it
    strict = call.request.version >= V4_9_4 or header.accept_standard_json_only
    with_order = options.order_message_enable
    zone_name = header.zone_name or ""
    if header.zone_mode and zone_name.strip():
        # The zone filter writes the legacy form whatever the client asked for.
        route = server.answers.route(header.topic, with_order=with_order)
        body = None if route is None else encode_topic_route(in_zone(route, zone_name), strict=False)
    else:
        body = server.answers.route_body(header.topic, strict=strict, with_order=with_order)
    if body is None:
        raise TopicNotExist(header.topic)
    return Answer(response_to(call.request, ResponseCode.SUCCESS, body=body))


def get_broker_cluster_info(server: NameServer, call: Call) -> Answer:
    """106."""
    return Answer(response_to(call.request, ResponseCode.SUCCESS, body=server.answers.cluster_info_body()))
