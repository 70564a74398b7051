"""Builds the bodies of GET_ROUTEINFO_BY_TOPIC, in both JSON forms, and of GET_BROKER_CLUSTER_INFO."""

from dataclasses import replace

from namesrv_stream.processor import route_body
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from namesrv_stream.route.route_view import RouteView
from namesrv_stream.route.topic_route import TopicRoute, in_zone, pickup_topic_route


class RouteAnswers:
    """Encodes every body on request, without a cache.

    Attributes:
        support_acting_master: Whether a slave replaces the missing master of its group.
    """

    def __init__(self, view: RouteView, *, support_acting_master: bool = False) -> None:
        self.support_acting_master = support_acting_master
        self._view = view

    def route(self, topic: str, *, with_order: bool = False) -> TopicRoute | None:
        """Return the route of ``topic``; ``with_order`` adds the order of queues from the KV table."""
        route = pickup_topic_route(self._view.table, topic, support_acting_master=self.support_acting_master)
        return route if route is None else replace(route, order_topic_conf=self._order_conf(topic, with_order))

    def route_body(
        self, topic: str, *, strict: bool, with_order: bool = False, zone_name: str | None = None
    ) -> bytes | None:
        """Return the encoded route; None if there is none. ``zone_name`` removes the brokers of other zones."""
        route = self.route(topic, with_order=with_order)
        if route is None:
            return None
        route = route if zone_name is None else in_zone(route, zone_name)
        return route_body.encode_topic_route(route, strict=strict)

    def cluster_info_body(self) -> bytes:
        """Return the encoded brokerAddrTable and clusterAddrTable."""
        return route_body.encode_cluster_info(self._view.table)

    def _order_conf(self, topic: str, with_order: bool) -> str | None:
        return self._view.table.kv.get(ORDER_TOPIC_CONFIG, {}).get(topic) if with_order else None
