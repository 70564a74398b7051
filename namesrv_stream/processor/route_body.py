"""Encodes the bodies of answers as fastjson writes RocketMQ's classes: with properties in alphabetical order.

The legacy and the strict form are those of ``remoting.fastjson.writer``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from namesrv_stream.remoting.fastjson import JavaMap, dumps_legacy, dumps_strict
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from namesrv_stream.route.address_views import AddressView
from namesrv_stream.route.model import DataVersion, QueueData, TopicQueueMappingInfo
from namesrv_stream.route.topic_route import (
    BrokerData,
    TopicRoute,
    in_view,
    in_zone,
    is_for_clients,
    pickup_topic_route,
)
from namesrv_stream.route.view.route_view import RouteView


def encode_topic_route(route: TopicRoute, *, strict: bool) -> bytes:
    """Encode TopicRouteData in the strict or the legacy form."""
    fields = {
        "brokerDatas": [_broker_data(b) for b in route.broker_datas],
        "filterServerTable": JavaMap({a: list(f) for a, f in route.filter_server_table.items()}),
        "orderTopicConf": route.order_topic_conf,
        "queueDatas": [_queue_data(name, q) for name, q in route.queue_datas.items()],
        "topicQueueMappingByBroker": None
        if route.topic_queue_mapping is None
        else JavaMap({name: _mapping(info) for name, info in route.topic_queue_mapping.items()}),
    }
    return _dumps(fields, strict)


def encode_broker_data(broker: BrokerData, *, strict: bool) -> bytes:
    """Encode an entry of a route's brokerDatas."""
    return _dumps(_broker_data(broker), strict)


def encode_queue_data(broker_name: str, queue_data: QueueData, *, strict: bool) -> bytes:
    """Encode an entry of a route's queueDatas."""
    return _dumps(_queue_data(broker_name, queue_data), strict)


def encode_order_conf(order_topic_conf: str, *, strict: bool) -> bytes:
    """Encode the value of a route's orderTopicConf, as strict JSON or in the legacy form."""
    return _dumps(order_topic_conf, strict)


def encode_broker_map(brokers: Iterable[BrokerData]) -> bytes:
    """Encode entries of ClusterInfo's brokerAddrTable in the legacy form."""
    return dumps_legacy(JavaMap({broker.broker_name: _broker_data(broker) for broker in brokers}))


def encode_member_group(cluster: str | None, broker_name: str | None, broker_addrs: Mapping[int, str]) -> bytes:
    """Encode BrokerMemberGroup in the legacy form."""
    group = {"brokerAddrs": _addrs(broker_addrs), "brokerName": broker_name, "cluster": cluster}
    return dumps_legacy({"brokerMemberGroup": group})


def encode_data_version(data_version: DataVersion) -> bytes:
    return dumps_legacy(
        {
            "counter": data_version.counter,
            "stateVersion": data_version.state_version,
            "timestamp": data_version.timestamp,
        }
    )


def encode_topic_list(topics: Sequence[str], broker_addr: str | None = None) -> bytes:
    """Encode TopicList in the legacy form."""
    return dumps_legacy({"brokerAddr": broker_addr, "topicList": list(topics)})


def encode_kv_table(entries: Mapping[str, str]) -> bytes:
    """Encode KVTable in the legacy form."""
    return dumps_legacy({"table": JavaMap(entries)})


def _dumps(value: object, strict: bool) -> bytes:
    return dumps_strict(value) if strict else dumps_legacy(value)


def _queue_data(broker_name: str, queue_data: QueueData) -> dict[str, Any]:
    return {
        "brokerName": broker_name,
        "perm": queue_data.perm,
        "readQueueNums": queue_data.read_queue_nums,
        "topicSysFlag": queue_data.topic_sys_flag,
        "writeQueueNums": queue_data.write_queue_nums,
    }


def _broker_data(broker: BrokerData) -> dict[str, Any]:
    return {
        "brokerAddrs": _addrs(broker.broker_addrs),
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
        "enableActingMaster": broker.enable_acting_master,
        "zoneName": broker.zone_name,
    }


def _addrs(broker_addrs: Mapping[int, str]) -> JavaMap[int, str]:
    return JavaMap(sorted(broker_addrs.items()))


def _mapping(info: TopicQueueMappingInfo) -> dict[str, Any]:
    return {
        "bname": info.bname,
        "currIdMap": JavaMap(sorted(info.curr_id_map.items())),
        "dirty": info.dirty,
        "epoch": info.epoch,
        "scope": info.scope,
        "topic": info.topic,
        "totalQueues": info.total_queues,
    }


class RouteRequest(NamedTuple):
    """A query for the route of ``topic``.

    Attributes:
        strict: Whether the body is strict JSON; otherwise the legacy form.
        with_order: Whether to add the order of queues from the KV table.
        zone_name: The client's zone; the route then has no brokers of other zones. None for brokers of all zones.
        address_view: The client's address view, which determines the brokers' addresses; None for their own.
    """

    topic: str
    strict: bool = True
    with_order: bool = False
    zone_name: str | None = None
    address_view: AddressView | None = None


class RouteAnswers:
    """Returns routes and the bodies of answers about them. Every body is encoded on request, without a cache.

    With ``support_acting_master``, a slave replaces a missing master.
    """

    def __init__(self, view: RouteView, *, support_acting_master: bool = False) -> None:
        self.support_acting_master = support_acting_master
        self._view = view

    def route(self, query: RouteRequest) -> TopicRoute | None:
        """Return the route; None if there is none."""
        table = self._view.table
        route = pickup_topic_route(table, query.topic, support_acting_master=self.support_acting_master)
        if route is not None and query.zone_name is not None:
            route = in_zone(route, query.zone_name)
        if route is not None and query.address_view is not None and is_for_clients(query.topic):
            route = in_view(route, table, query.address_view)
        return route if route is None else replace(route, order_topic_conf=self.order_conf(query))

    def route_body(self, query: RouteRequest) -> bytes | None:
        """Return the encoded ``route``; None if there is none."""
        route = self.route(query)
        return None if route is None else encode_topic_route(route, strict=query.strict)

    def pieces(self, query: RouteRequest) -> Iterator[bytes]:
        """Yield the pieces of the body of a route that exists."""
        yield self.route_body(query) or b""

    def forget_views(self) -> None:
        """Discard cached answers after a change of the address views. This class caches none."""

    def order_conf(self, query: RouteRequest) -> str | None:
        """Return the order of the topic's queues; None if there is none, or if the query does not ask for it."""
        return self._view.table.kv.get(ORDER_TOPIC_CONFIG, {}).get(query.topic) if query.with_order else None
