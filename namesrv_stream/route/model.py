"""The values that routes, leases and drains consist of, under RocketMQ's own names where RocketMQ has one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

import orjson

MASTER_ID = 0
PERM_WRITE = 0x1 << 1
PERM_READ = 0x1 << 2

#: The KV namespace of drains: broker name → ``DrainRecord``. ADR 0058 says why they are KV entries.
DRAINED_BROKERS: Final = "namesrv-stream.drained-brokers"

#: Prefix of topics by which brokers read the members of their own group. The name server never rewrites the routes of
#: these topics. Source: rocketmq 5.3.3, TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX.
SYNC_BROKER_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


class DataVersion(NamedTuple):
    """Version of a broker's topic table. The name server only checks whether two versions are equal.

    The exception is ``state_version``: a broker keeps its brokerId if another one with a lower value registers with it.
    """

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0


class QueueData(NamedTuple):
    """The queues that one broker has of one topic: queue counts, perm bits, topicSysFlag bits."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@lru_cache(maxsize=65_536)
def shared_queue_data(read_queue_nums: int, write_queue_nums: int, perm: int, topic_sys_flag: int) -> QueueData:
    """Return one shared object for all topics with equal numbers.

    A fleet has several hundred thousand entries, but few distinct ones. Sharing saves two thirds of their memory, and
    changes can be found by identity.
    """
    return QueueData(read_queue_nums, write_queue_nums, perm, topic_sys_flag)


class LiveKey(NamedTuple):
    """Key of brokerLiveTable within one broker name. Source: rocketmq 5.3.3, BrokerAddrInfo."""

    cluster: str
    broker_addr: str


class LeaseKey(NamedTuple):
    """One broker process: a broker name with its key in brokerLiveTable."""

    broker_name: str
    live_key: LiveKey


class Holder(NamedTuple):
    """The connection over which one server receives a broker's heartbeats.

    ``server_epoch`` is the time of the server's start. Each server numbers its connections from 1 at its start, so of
    two ids of one epoch the higher one is the later connection. 0 means that there is no connection (a direct
    publisher).
    """

    server_epoch: int
    connection_id: int


@dataclass(frozen=True, slots=True)
class TopicQueueMappingInfo:
    """One broker's share of a static topic. ``curr_id_map`` maps logical queue ids to physical queue ids."""

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
        timeout_ms: The broker's own heartbeatTimeoutMillis; None if the request had none.
        enable_acting_master: None if the header lacks the field, as that of brokers older than 5.0 does.
        topics: The topics of the body, which need not be all topics of the broker.
        topic_mappings: The static topics of the body, by topic.
        filter_servers: None keeps the known ones, an empty tuple removes them.
        registration_hash: Equal for two requests with the same content; "" if it was not computed.
        topics_json: The topics as ``encode_topics`` writes them, if they were encoded already; otherwise b"".
        event_bytes: The most bytes that its entries have in an event; 0 if it was read from the log.
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
    topics_json: bytes = field(default=b"", compare=False, repr=False)
    event_bytes: int = field(default=0, compare=False, repr=False)

    @property
    def live_key(self) -> LiveKey:
        return LiveKey(self.cluster, self.broker_addr)


class RegistrationSettings(NamedTuple):
    """The settings on which the effect of a registration depends.

    Attributes:
        drops_absent_topics: Whether a registration removes the topics that it does not contain. The setting is
            ``delete_topic_with_broker_registration``.
        takes_over_contradictions: Whether a registration that contradicts the last one with the same DataVersion
            changes the topics. The setting is ``take_over_contradictions``.
    """

    drops_absent_topics: bool = False
    takes_over_contradictions: bool = False


#: RocketMQ's default behaviour.
DEFAULT_REGISTRATION_SETTINGS: Final = RegistrationSettings()


@dataclass(frozen=True, slots=True)
class BrokerLive:
    """One live broker process: its entries of brokerLiveTable and filterServerTable.

    Attributes:
        timeout_ms: As the broker requested; None for the configured default. The configured minimum and maximum are
            not applied yet.
        registration_hash: Hash of the last folded registration.
        holders: server_id → the connection over which that server receives the broker's heartbeats; never empty while
            the broker is live.
        contradictions: Topics of which the broker reports other queues, permissions or mappings than the route table
            has, under the DataVersion of an earlier registration; sorted.
    """

    data_version: DataVersion
    timeout_ms: int | None
    ha_server_addr: str
    filter_servers: tuple[str, ...]
    registration_hash: str
    holders: Mapping[str, Holder]
    contradictions: tuple[str, ...] = ()


class Hold(NamedTuple):
    """Why and until when the mass-expiry guard keeps a broker that would otherwise have been removed.

    It is the value of rows of kind ``guard``.

    Attributes:
        goes_with: The cause of the broker's removal if no heartbeat arrives: ``expired``, ``disconnected`` or
            ``server_silent``.
        reason: What happened to the broker itself, for people.
        server_id: The server that observed it.
        since_ms: Log time at which the hold began, epoch milliseconds.
        until_ms: Earliest log time at which the hold ends. It ends later if observed time does not advance meanwhile.
        ending: How many brokers of the cluster in this partition seemed to fail when the guard decided.
        brokers: How many brokers the cluster had in this partition at that time.
    """

    goes_with: str
    reason: str
    server_id: str
    since_ms: int
    until_ms: int
    ending: int
    brokers: int


def encode_hold(hold: Hold) -> str:
    """Return the hold as JSON, by field names."""
    return orjson.dumps(hold._asdict()).decode()


def decode_hold(text: str) -> Hold:
    """Inverse of ``encode_hold``."""
    return Hold(**orjson.loads(text))


@dataclass(frozen=True, slots=True)
class DrainRecord:
    """The permissions that a drain removed from a broker. The record stays until ``drain --undo``.

    Attributes:
        at: Time of the drain, in ISO 8601.
        by: The operator, as ``user@host``.
        perms: Topic → its permission before the drain, for the topics that had the write permission.
    """

    at: str
    by: str
    perms: Mapping[str, int]

    def encode(self) -> str:
        """Return the value of the KV entry, with the topics grouped by permission, since most have the same."""
        topics: dict[str, list[str]] = {}
        for topic, perm in sorted(self.perms.items()):
            topics.setdefault(str(perm), []).append(topic)
        return orjson.dumps({"at": self.at, "by": self.by, "topics": topics}).decode()

    def writable_again(self, queues: Mapping[str, QueueData]) -> int:
        """Return how many topics of the record are writable again, given topic → queues of the broker name."""
        return sum(queue is not None and queue.perm & PERM_WRITE != 0 for queue in map(queues.get, self.perms))


def decode_drain(value: str) -> DrainRecord | None:
    """Return the record in a KV entry; None if the entry is not a record."""
    try:
        fields = orjson.loads(value)
        perms: dict[str, int] = {}
        for perm, topics in fields["topics"].items():
            perms |= dict.fromkeys(map(str, topics), int(perm))
        return DrainRecord(str(fields["at"]), str(fields["by"]), perms)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
