"""Custom headers of the requests that a NameServer serves, and of the one that it sends, typed.

Every field may be absent on the wire, whatever Java's annotations say; a str, int or bool that is None was absent or
could not be parsed. ``from_ext_fields`` never fails. Source: rocketmq 5.3.3,
package ``org.apache.rocketmq.remoting.protocol.header``.
"""

from dataclasses import dataclass
from typing import Final

from namesrv_stream.remoting.ext_fields import CommandCustomHeader, boolean, integer, long, text

#: Namespace of KV requests in which ordered topics have their ``broker:count;…``. Source: rocketmq 5.3.3,
#: NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG.
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequestHeader(CommandCustomHeader):
    """103 REGISTER_BROKER.

    Attributes:
        broker_id: 0 for the master; DLedger nodes send -1 before their election.
        heartbeat_timeout_millis: How long the broker may be silent; sent with acting master only.
        enable_acting_master: None marks a broker older than 5.0.
        compressed: The body is a zlib stream. 5.x brokers send False even when it is.
        body_crc32: CRC-32 of the body as sent, its sign bit cleared; 0 means unchecked.
        zone_name: Set by the broker's RPC hook, so not part of Java's class.
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
        accept_standard_json_only: The client wants strict JSON, whatever its version.
        zone_mode: The client wants only brokers of ``zone_name``.
    """

    topic: str | None = text("topic")
    accept_standard_json_only: bool = boolean("acceptStandardJsonOnly", default=False)
    zone_mode: bool = boolean("__ZONE_MODE", default=False)
    zone_name: str | None = text("__ZONE_NAME")


@dataclass(frozen=True, slots=True)
class QueryDataVersionRequestHeader(CommandCustomHeader):
    """322 QUERY_DATA_VERSION, which as oneway is a heartbeat."""

    broker_name: str | None = text("brokerName")
    broker_addr: str | None = text("brokerAddr")
    cluster_name: str | None = text("clusterName")
    broker_id: int | None = long("brokerId")


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequestHeader(CommandCustomHeader):
    """904 BROKER_HEARTBEAT; only the first three fields matter to a NameServer."""

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
    """216 DELETE_TOPIC_IN_NAMESRV; without a cluster, in all of them."""

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
