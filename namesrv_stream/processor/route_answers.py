"""Encoded routes, kept per topic until something in them changes."""

from collections.abc import Iterable
from dataclasses import replace

from namesrv_stream.processor import route_body
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from namesrv_stream.route.topic_route import TopicRoute, pickup_topic_route
from namesrv_stream.route.view import RouteView


class RouteAnswers:
    """The bodies of GET_ROUTEINFO_BY_TOPIC in both JSON forms, and of GET_BROKER_CLUSTER_INFO.

    A put or delete of a KV entry touches the topic of the entry's name, as a registration touches its topics.

    Attributes:
        support_acting_master: Whether a slave stands in for its group's missing master; ``clear`` after a change.
    """

    def __init__(self, view: RouteView, *, support_acting_master: bool = False) -> None:
        self.support_acting_master = support_acting_master
        self._view = view
        self._bodies: dict[str, dict[tuple[bool, bool], bytes]] = {}
        self._cluster_info: tuple[int, bytes] | None = None

    def route(self, topic: str, *, with_order: bool = False) -> TopicRoute | None:
        """The route of ``topic``, on request with its order of queues as an operator put it into the KV table."""
        route = pickup_topic_route(self._view.table, topic, support_acting_master=self.support_acting_master)
        if route is None or not with_order:
            return route
        return replace(route, order_topic_conf=self._view.table.kv.get(ORDER_TOPIC_CONFIG, {}).get(topic))

    def route_body(self, topic: str, *, strict: bool, with_order: bool = False) -> bytes | None:
        """The encoded route; None where there is none. A topic without a route is not remembered."""
        bodies = self._bodies.get(topic, {})
        body = bodies.get((strict, with_order))
        if body is None:
            route = self.route(topic, with_order=with_order)
            if route is None:
                return None
            body = route_body.encode_topic_route(route, strict=strict)
            self._bodies.setdefault(topic, {})[strict, with_order] = body
        return body

    def cluster_info_body(self) -> bytes:
        """The encoded brokerAddrTable and clusterAddrTable: every 5.x broker asks each 5 s."""
        version = self._view.table.brokers_version
        if self._cluster_info is None or self._cluster_info[0] != version:
            self._cluster_info = (version, route_body.encode_cluster_info(self._view.table))
        return self._cluster_info[1]

    def invalidate(self, topics: Iterable[str]) -> None:
        """Forget what was encoded of ``topics``."""
        for topic in topics:
            self._bodies.pop(topic, None)

    def clear(self) -> None:
        self._bodies.clear()
        self._cluster_info = None
