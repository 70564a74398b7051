"""The bodies that tell routes and clusters, as fast as they can be made."""

from dataclasses import replace

from namesrv_stream.processor import route_body
from namesrv_stream.processor.route_fragments import RouteFragments
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from namesrv_stream.route.topic_route import TopicRoute, in_zone, may_act, pickup_topic_route
from namesrv_stream.route.view import RouteView


class RouteAnswers:
    """The bodies of GET_ROUTEINFO_BY_TOPIC in both JSON forms, and of GET_BROKER_CLUSTER_INFO.

    Attributes:
        support_acting_master: Whether a slave stands in for its group's missing master.
    """

    def __init__(self, view: RouteView, *, support_acting_master: bool = False) -> None:
        self.support_acting_master = support_acting_master
        self._view = view
        self._fragments = {strict: RouteFragments(strict=strict) for strict in (True, False)}
        self._cluster_info: tuple[int, bytes] | None = None

    def route(self, topic: str, *, with_order: bool = False) -> TopicRoute | None:
        """The route of ``topic``, on request with its order of queues as an operator put it into the KV table."""
        route = pickup_topic_route(self._view.table, topic, support_acting_master=self.support_acting_master)
        return route if route is None else replace(route, order_topic_conf=self._order_conf(topic, with_order))

    def route_body(
        self, topic: str, *, strict: bool, with_order: bool = False, zone_name: str | None = None
    ) -> bytes | None:
        """The encoded route, on request without brokers of other zones than one; None where there is none."""
        table = self._view.table
        if not table.is_plain(topic):
            route = self.route(topic, with_order=with_order)
            if route is None:
                return None
            route = route if zone_name is None else in_zone(route, zone_name)
            return route_body.encode_topic_route(route, strict=strict)
        return self._fragments[strict].body(
            table,
            topic,
            with_acting=self.support_acting_master and may_act(topic),
            order_conf=self._order_conf(topic, with_order),
            zone_name=zone_name,
        )

    def cluster_info_body(self) -> bytes:
        """The encoded brokerAddrTable and clusterAddrTable: every 5.x broker asks each 5 s."""
        version = self._view.table.brokers_version
        if self._cluster_info is None or self._cluster_info[0] != version:
            self._cluster_info = (version, route_body.encode_cluster_info(self._view.table))
        return self._cluster_info[1]

    def clear(self) -> None:
        """Forget what was encoded: the view has another table, or answers by other options."""
        self._cluster_info = None

    def _order_conf(self, topic: str, with_order: bool) -> str | None:
        return self._view.table.kv.get(ORDER_TOPIC_CONFIG, {}).get(topic) if with_order else None
