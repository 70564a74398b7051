"""Processors of the requests of clients and tools: the route of a topic, and the brokers of all clusters.

RocketMQ's clusterTest mode is not supported. It treats every request as a route query and forwards unknown topics to
another name server. No broker can register in this mode, and a registry does not need a proxy for routes.

Source: rocketmq 5.3.3, ClientRequestProcessor and DefaultRequestProcessor; nameserver.md §5.2, §5.4, §5.5.
"""

from typing import NamedTuple

from namesrv_stream.errors import RequestRefused, TopicNotExist
from namesrv_stream.processor.name_server import Answer, Call, Dependency, NameServer
from namesrv_stream.remoting.command import V4_9_4, RemotingCommand, response_to
from namesrv_stream.remoting.headers import GetRouteInfoRequestHeader


class _RouteQuery(NamedTuple):
    """The parameters of a route query.

    Attributes:
        topic: Name of the topic; None if it is missing.
        strict: Whether the answer has the strict JSON form; otherwise it has the legacy form.
        zone_name: The only zone whose brokers are in the answer; None for all zones.
    """

    topic: str | None
    strict: bool
    zone_name: str | None


def _route_query(request: RemotingCommand) -> _RouteQuery:
    """Return the parameters of request 105."""
    header = GetRouteInfoRequestHeader.from_ext_fields(request.ext_fields)
    if header.zone_mode and (header.zone_name or "").strip():
        # RocketMQ's zone filter writes the legacy form, even if the client requested the strict one.
        return _RouteQuery(header.topic, strict=False, zone_name=header.zone_name)
    return _RouteQuery(header.topic, request.version >= V4_9_4 or header.accept_standard_json_only, zone_name=None)


def get_route_info_by_topic(server: NameServer, call: Call) -> Answer:
    """Answer 105 in the JSON form that the client's release can read.

    Raises:
        RequestRefused: The server has just started, and the options make it wait for brokers to register.
        TopicNotExist: No registered broker offers the topic.
    """
    options = server.options
    if options.need_wait_for_service and call.now_ms - server.started_ms < options.wait_seconds_for_service * 1_000:
        raise RequestRefused("name server not ready")
    query = _route_query(call.request)
    if query.topic is None:
        raise TopicNotExist("null")  # as in Java's remark
    body = server.answers.route_body(
        query.topic, strict=query.strict, with_order=options.order_message_enable, zone_name=query.zone_name
    )
    if body is None:
        raise TopicNotExist(query.topic)
    # The order of queues is a KV value, which can change while the route does not.
    depends_on = None if options.order_message_enable else Dependency("topic", query.topic)
    return Answer(response_to(call.request, body=body), depends_on=depends_on)


def get_broker_cluster_info(server: NameServer, call: Call) -> Answer:
    """Answer 106."""
    return Answer(response_to(call.request, body=server.answers.cluster_info_body()))
