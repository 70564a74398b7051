"""The decoded answers of name servers; free of I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from namesrv_stream.client.client_errors import UnexpectedAnswer
from namesrv_stream.remoting.command import RequestCode
from namesrv_stream.remoting.fastjson import loads

MASTER_ID: Final = 0

PERM_READ: Final = 4
PERM_WRITE: Final = 2


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues of a topic at one broker.

    Attributes:
        perm: Bit mask: 4 read, 2 write, 1 inherit.
        topic_sys_flag: Bit mask: 1 unit topic, 2 has a unit subscription.
    """

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    @property
    def is_readable(self) -> bool:
        return self.perm & PERM_READ != 0

    @property
    def is_writeable(self) -> bool:
        return self.perm & PERM_WRITE != 0


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The processes of one broker name: ``broker_addrs`` is broker id (0: master) → ``host:port``, sorted."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]
    zone_name: str | None = None
    enable_acting_master: bool = False

    @property
    def master_addr(self) -> str | None:
        """The master's address; None without a master."""
        return self.broker_addrs.get(MASTER_ID)


@dataclass(frozen=True, slots=True)
class TopicQueueMapping:
    """One broker's part of a static topic, whose logical queues stay the same when they move between brokers.

    Attributes:
        scope: Name of the numbering to which the logical queue ids belong; None if the answer has none.
        epoch: If two brokers claim a queue, it belongs to the one with the higher epoch.
        total_queues: Number of logical queues of the topic.
        logical_queue_ids: Logical queues at this broker.
    """

    broker_name: str
    scope: str | None
    epoch: int
    total_queues: int
    logical_queue_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class TopicRouteData:
    """The route of a topic: queues and brokers, both sorted by broker name.

    Attributes:
        order_topic_conf: ``broker:count;…`` of an ordered topic.
        queue_mappings: Mappings of a static topic by broker name; None for other topics.
        raw: The whole answer as decoded JSON, for fields that have no attribute here.
    """

    topic: str
    queue_datas: tuple[QueueData, ...]
    broker_datas: tuple[BrokerData, ...]
    order_topic_conf: str | None
    raw: Mapping[str, Any]
    queue_mappings: tuple[TopicQueueMapping, ...] | None = None

    @property
    def broker_names(self) -> frozenset[str]:
        """Names of the brokers that serve the topic."""
        return frozenset(broker.broker_name for broker in self.broker_datas)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """All brokers by broker name, and the broker names of every cluster.

    Attributes:
        raw: The whole answer as decoded JSON.
    """

    brokers: Mapping[str, BrokerData]
    clusters: Mapping[str, tuple[str, ...]]
    raw: Mapping[str, Any]

    def of_cluster(self, cluster: str) -> "ClusterInfo":
        """Return the part of one cluster; empty if there is no such cluster."""
        names = self.clusters.get(cluster, ())
        raw_brokers = self.raw.get("brokerAddrTable") or {}
        return ClusterInfo(
            brokers={name: self.brokers[name] for name in names if name in self.brokers},
            clusters={cluster: names} if names else {},
            raw={
                "brokerAddrTable": {name: raw_brokers[name] for name in names if name in raw_brokers},
                "clusterAddrTable": {cluster: list(names)} if names else {},
            },
        )


def decode_topic_route(topic: str, body: bytes | None) -> TopicRouteData:
    """Decode the body of an answer to 105 GET_ROUTEINFO_BY_TOPIC.

    Raises:
        UnexpectedAnswer: The body is not a TopicRouteData.
    """
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    answer = _object(code, body)
    try:
        return TopicRouteData(
            topic=topic,
            queue_datas=tuple(sorted(map(_queue_data, answer.get("queueDatas") or ()), key=lambda q: q.broker_name)),
            broker_datas=tuple(sorted(map(_broker_data, answer.get("brokerDatas") or ()), key=lambda b: b.broker_name)),
            order_topic_conf=_text(answer.get("orderTopicConf")),
            raw=answer,
            queue_mappings=_queue_mappings(answer.get("topicQueueMappingByBroker")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(code, 0, f"no TopicRouteData: {error!r}") from None


def decode_cluster_info(body: bytes | None) -> ClusterInfo:
    """Decode the body of an answer to 106 GET_BROKER_CLUSTER_INFO.

    Raises:
        UnexpectedAnswer: The body is not a ClusterInfo.
    """
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    answer = _object(code, body)
    try:
        brokers = {name: _broker_data(broker) for name, broker in (answer.get("brokerAddrTable") or {}).items()}
        members = (answer.get("clusterAddrTable") or {}).items()
        # Java lists null for a broker that registered without a name.
        clusters = {cluster: tuple(sorted(filter(None, names))) for cluster, names in sorted(members)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(code, 0, f"no ClusterInfo: {error!r}") from None
    return ClusterInfo(brokers, clusters, answer)


def decode_topic_list(request_code: int, body: bytes | None) -> tuple[str, ...]:
    """Decode the body of an answer to 206 or 224, a TopicList: its topics, sorted.

    Raises:
        UnexpectedAnswer: The body is not a TopicList.
    """
    topics = _object(request_code, body).get("topicList") or []
    if not isinstance(topics, list) or any(not isinstance(topic, str) for topic in topics):
        raise UnexpectedAnswer(request_code, 0, "no TopicList")
    return tuple(sorted(topics))


def decode_kv_entries(request_code: int, body: bytes | None) -> dict[str, str]:
    """Decode the body of an answer to 219, a KVTable: its entries, sorted by key.

    Raises:
        UnexpectedAnswer: The body is not a KVTable.
    """
    table = _object(request_code, body).get("table") or {}
    if not isinstance(table, dict) or any(not isinstance(value, str) for value in table.values()):
        raise UnexpectedAnswer(request_code, 0, "no KVTable")
    return dict(sorted(table.items()))


def _object(request_code: int, body: bytes | None) -> dict[str, Any]:
    try:
        answer = loads(body or b"")
    except ValueError as error:
        raise UnexpectedAnswer(request_code, 0, f"the body is not JSON: {error}") from None
    if not isinstance(answer, dict):
        raise UnexpectedAnswer(request_code, 0, "the body is not a JSON object")
    return answer


def _queue_data(fields: Mapping[str, Any]) -> QueueData:
    return QueueData(
        broker_name=str(fields["brokerName"]),
        read_queue_nums=int(fields["readQueueNums"]),
        write_queue_nums=int(fields["writeQueueNums"]),
        perm=int(fields["perm"]),
        # Spelled topicSynFlag before 4.9.0.
        topic_sys_flag=int(fields.get("topicSysFlag") or fields.get("topicSynFlag") or 0),
    )


def _broker_data(fields: Mapping[str, Any]) -> BrokerData:
    addrs = {int(broker_id): str(addr) for broker_id, addr in (fields.get("brokerAddrs") or {}).items()}
    return BrokerData(
        cluster=_text(fields.get("cluster")) or "",
        broker_name=str(fields["brokerName"]),
        broker_addrs=dict(sorted(addrs.items())),
        zone_name=_text(fields.get("zoneName")),
        enable_acting_master=bool(fields.get("enableActingMaster")),
    )


def _queue_mappings(by_broker: Mapping[str, Any] | None) -> tuple[TopicQueueMapping, ...] | None:
    if not by_broker:
        return None
    return tuple(
        TopicQueueMapping(
            broker_name=str(fields.get("bname") or name),
            scope=_text(fields.get("scope")),
            epoch=int(fields.get("epoch") or 0),
            total_queues=int(fields.get("totalQueues") or 0),
            logical_queue_ids=frozenset(map(int, fields.get("currIdMap") or ())),
        )
        for name, fields in sorted(by_broker.items())
    )


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} instead of a string")
    return value
