"""Encoded routes, kept per topic until something in them changes."""

from collections.abc import Iterable

from namesrv_stream.processor import route_body
from namesrv_stream.route.topic_route import TopicRoute, pickup_topic_route
from namesrv_stream.route.view import RouteView


class RouteAnswers:
    """The bodies of GET_ROUTEINFO_BY_TOPIC in both JSON forms, and of GET_BROKER_CLUSTER_INFO."""

    def __init__(self, view: RouteView, *, support_acting_master: bool = False) -> None:
        self._view = view
        self._support_acting_master = support_acting_master
        self._bodies: dict[tuple[str, bool], bytes] = {}
        self._cluster_info: tuple[int, bytes] | None = None

    def route(self, topic: str) -> TopicRoute | None:
        return pickup_topic_route(self._view.table, topic, support_acting_master=self._support_acting_master)

    def route_body(self, topic: str, *, strict: bool) -> bytes | None:
        """The encoded route; None where there is none. A topic without a route is not remembered."""
        body = self._bodies.get((topic, strict))
        if body is None:
            route = self.route(topic)
            if route is None:
                return None
            body = self._bodies[topic, strict] = route_body.encode_topic_route(route, strict=strict)
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
            self._bodies.pop((topic, False), None)
            self._bodies.pop((topic, True), None)

    def clear(self) -> None:
        self._bodies.clear()
        self._cluster_info = None
