"""The values a route is made of, under RocketMQ's own names."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

MASTER_ID = 0
PERM_WRITE = 0x1 << 1
PERM_READ = 0x1 << 2

#: Topics by which acting-master brokers read their own group back; their route is never rewritten.
#: Source: rocketmq 5.3.3, TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX.
SYNC_BROKER_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


class DataVersion(NamedTuple):
    """Version of a broker's topic table; the name server only ever asks whether two are equal."""

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0


class QueueData(NamedTuple):
    """What one broker offers of one topic: queue counts, perm bits, topicSysFlag bits."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@lru_cache(maxsize=65_536)
def shared_queue_data(read_queue_nums: int, write_queue_nums: int, perm: int, topic_sys_flag: int) -> QueueData:
    """One object for all topics of equal shape: a fleet has some hundred thousand entries and few shapes.

    Not for speed: the objects of a fleet would take three times the memory, and changes are found by identity.
    """
    return QueueData(read_queue_nums, write_queue_nums, perm, topic_sys_flag)


class LiveKey(NamedTuple):
    """Key of brokerLiveTable within one broker name. Source: rocketmq 5.3.3, BrokerAddrInfo."""

    cluster: str
    broker_addr: str


class Holder(NamedTuple):
    """The connection over which one server hears a broker.

    Connection ids are counted upwards by each server from 1 at its start, so of two ids of one epoch the
    higher one is the later connection; 0 stands for no connection (a direct publisher).
    """

    server_epoch: int
    connection_id: int


@dataclass(frozen=True, slots=True)
class TopicQueueMappingInfo:
    """One broker's share of a static topic; ``curr_id_map`` is logical queue id to physical queue id."""

    topic: str
    bname: str
    total_queues: int
    epoch: int
    scope: str
    dirty: bool
    curr_id_map: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Registration:
    """One REGISTER_BROKER request, decoded.

    Attributes:
        broker_id: 0 is the master.
        timeout_ms: The broker's own heartbeatTimeoutMillis; None where it sent none.
        enable_acting_master: None where the header lacks it, which marks a broker older than 5.0.
        topics: The payload's topics; not always all of the broker's.
        topic_mappings: The payload's static topics, by topic.
        filter_servers: None leaves those known unchanged, empty removes them.
        registration_hash: Equal for two requests that say the same; "" where nobody computed it.
    """

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    data_version: DataVersion
    topics: Mapping[str, QueueData]
    timeout_ms: int | None = None
    enable_acting_master: bool | None = None
    zone_name: str | None = None
    topic_mappings: Mapping[str, TopicQueueMappingInfo] | None = None
    filter_servers: tuple[str, ...] | None = None
    registration_hash: str = ""

    @property
    def live_key(self) -> LiveKey:
        return LiveKey(self.cluster, self.broker_addr)


@dataclass(frozen=True, slots=True)
class BrokerLive:
    """One broker process as known: an entry of brokerLiveTable, and of filterServerTable.

    Attributes:
        timeout_ms: As the broker asked; None for the configured default. Floor and ceiling are applied where
            time is compared.
        registration_hash: Of the registration folded last.
        holders: server_id to the connection over which that server hears the broker; never empty while live.
    """

    data_version: DataVersion
    timeout_ms: int | None
    ha_server_addr: str
    filter_servers: tuple[str, ...]
    registration_hash: str
    holders: Mapping[str, Holder]
