"""Typed custom headers of a NameServer's requests and responses.

Every field may be absent on the wire, whatever Java's annotations say. A str, int or bool that is None was absent or
could not be parsed; ``from_ext_fields`` never fails. Request codes without a response header here have none.

Source: rocketmq 5.3.3, package ``org.apache.rocketmq.remoting.protocol.header``.
"""

from dataclasses import dataclass
from typing import Final

from namesrv_stream.remoting.ext_fields import CommandCustomHeader, boolean, integer, long, text

#: KV namespace of ordered topics; the values have the form ``broker:count;…``.
#: Source: rocketmq 5.3.3, NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG.
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequestHeader(CommandCustomHeader):
    """103 REGISTER_BROKER.

    Attributes:
        broker_id: 0 for the master; nodes of a DLedger group send -1 before the election.
        heartbeat_timeout_millis: The timeout that the broker requests, in milliseconds; sent only if the broker has
            acting master enabled.
        enable_acting_master: None marks a broker older than 5.0.
        compressed: Whether the body is a zlib stream. 5.x brokers send False even if it is.
        body_crc32: CRC-32 of the body as sent, with its sign bit cleared; 0 means unchecked.
        zone_name: Set by the broker's RPC hook, so it is not part of Java's class.
    """

    broker_name: str | None = text("brokerName")
    broker_addr: str | None = text("brokerAddr")
    cluster_name: str | None = text("clusterName")
    ha_server_addr: str | None = text("haServerAddr")
    broker_id: int | None = long("brokerId")
    heartbeat_timeout_millis: int | None = long("heartbeatTimeoutMillis")
    enable_acting_master: bool | None = boolean("enableActingMaster")
    compressed: bool = boolean("compressed", default=False, primitive=True)
    body_crc32: int = integer("bodyCrc32", default=0, primitive=True)
    zone_name: str | None = text("__ZONE_NAME")


@dataclass(frozen=True, slots=True)
class UnRegisterBrokerRequestHeader(CommandCustomHeader):
    """104 UNREGISTER_BROKER."""

    broker_name: str | None = text("brokerName")
    broker_addr: str | None = text("brokerAddr")
    cluster_name: str | None = text("clusterName")
    broker_id: int | None = long("brokerId")


@dataclass(frozen=True, slots=True)
class GetRouteInfoRequestHeader(CommandCustomHeader):
    """105 GET_ROUTEINFO_BY_TOPIC.

    Attributes:
        accept_standard_json_only: The client requests strict JSON, whatever its version.
        zone_mode: The client requests only brokers of ``zone_name``.
    """

    topic: str | None = text("topic")
    accept_standard_json_only: bool = boolean("acceptStandardJsonOnly", default=False)
    zone_mode: bool = boolean("__ZONE_MODE", default=False)
    zone_name: str | None = text("__ZONE_NAME")


@dataclass(frozen=True, slots=True)
class QueryDataVersionRequestHeader(CommandCustomHeader):
    """322 QUERY_DATA_VERSION; as a oneway request, it is a heartbeat."""

    broker_name: str | None = text("brokerName")
    broker_addr: str | None = text("brokerAddr")
    cluster_name: str | None = text("clusterName")
    broker_id: int | None = long("brokerId")


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequestHeader(CommandCustomHeader):
    """904 BROKER_HEARTBEAT; a NameServer uses only the first three fields."""

    broker_name: str | None = text("brokerName")
    broker_addr: str | None = text("brokerAddr")
    cluster_name: str | None = text("clusterName")
    broker_id: int | None = long("brokerId")
    epoch: int | None = integer("epoch")
    max_offset: int | None = long("maxOffset")
    confirm_offset: int | None = long("confirmOffset")
    heartbeat_timeout_mills: int | None = long("heartbeatTimeoutMills")
    election_priority: int | None = integer("electionPriority")


@dataclass(frozen=True, slots=True)
class GetBrokerMemberGroupRequestHeader(CommandCustomHeader):
    """901 GET_BROKER_MEMBER_GROUP."""

    broker_name: str | None = text("brokerName")
    cluster_name: str | None = text("clusterName")


@dataclass(frozen=True, slots=True)
class PutKVConfigRequestHeader(CommandCustomHeader):
    """100 PUT_KV_CONFIG."""

    namespace: str | None = text("namespace")
    key: str | None = text("key")
    value: str | None = text("value")


@dataclass(frozen=True, slots=True)
class GetKVConfigRequestHeader(CommandCustomHeader):
    """101 GET_KV_CONFIG."""

    namespace: str | None = text("namespace")
    key: str | None = text("key")


@dataclass(frozen=True, slots=True)
class DeleteKVConfigRequestHeader(CommandCustomHeader):
    """102 DELETE_KV_CONFIG."""

    namespace: str | None = text("namespace")
    key: str | None = text("key")


@dataclass(frozen=True, slots=True)
class GetKVListByNamespaceRequestHeader(CommandCustomHeader):
    """219 GET_KVLIST_BY_NAMESPACE."""

    namespace: str | None = text("namespace")


@dataclass(frozen=True, slots=True)
class WipeWritePermOfBrokerRequestHeader(CommandCustomHeader):
    """205 WIPE_WRITE_PERM_OF_BROKER."""

    broker_name: str | None = text("brokerName")


@dataclass(frozen=True, slots=True)
class AddWritePermOfBrokerRequestHeader(CommandCustomHeader):
    """327 ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str | None = text("brokerName")


@dataclass(frozen=True, slots=True)
class DeleteTopicFromNamesrvRequestHeader(CommandCustomHeader):
    """216 DELETE_TOPIC_IN_NAMESRV; without a cluster name, it applies to all clusters."""

    topic: str | None = text("topic")
    cluster_name: str | None = text("clusterName")


@dataclass(frozen=True, slots=True)
class RegisterTopicRequestHeader(CommandCustomHeader):
    """217 REGISTER_TOPIC_IN_NAMESRV."""

    topic: str | None = text("topic")


@dataclass(frozen=True, slots=True)
class GetTopicsByClusterRequestHeader(CommandCustomHeader):
    """224 GET_TOPICS_BY_CLUSTER."""

    cluster: str | None = text("cluster")


@dataclass(frozen=True, slots=True)
class NotifyMinBrokerIdChangeRequestHeader(CommandCustomHeader):
    """905 NOTIFY_MIN_BROKER_ID_CHANGE, from the NameServer to brokers."""

    min_broker_id: int | None = long("minBrokerId")
    broker_name: str | None = text("brokerName")
    min_broker_addr: str | None = text("minBrokerAddr")
    offline_broker_addr: str | None = text("offlineBrokerAddr")
    ha_broker_addr: str | None = text("haBrokerAddr")


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponseHeader(CommandCustomHeader):
    """Response to 103: the addresses by which a slave follows its master; empty for masters."""

    ha_server_addr: str | None = text("haServerAddr")
    master_addr: str | None = text("masterAddr")


@dataclass(frozen=True, slots=True)
class QueryDataVersionResponseHeader(CommandCustomHeader):
    """Response to 322: whether the NameServer has a different DataVersion than the broker."""

    changed: bool | None = boolean("changed")


@dataclass(frozen=True, slots=True)
class GetKVConfigResponseHeader(CommandCustomHeader):
    """Response to 101."""

    value: str | None = text("value")


@dataclass(frozen=True, slots=True)
class WipeWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """Response to 205: the number of changed topics."""

    wipe_topic_count: int | None = integer("wipeTopicCount")


@dataclass(frozen=True, slots=True)
class AddWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """Response to 327: the number of changed topics."""

    add_topic_count: int | None = integer("addTopicCount")
