"""The events of the log, and their assignment to Kafka partitions.

Each event is one record of the Kafka topic, except that heartbeats share records. Every event has an ``Origin``: the
server that received it, and the connection. The events of direct publishers, which are producers other than name
servers, have the server_id ``DIRECT``; their brokers age by the job's ticks. The murmur2 hash of an event's broker name
or KV namespace determines its partition, as in Kafka's default partitioner. Other events go to every partition.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from namesrv_stream.route.liveness_settings import SettingValue
from namesrv_stream.route.model import Holder, LeaseKey, LiveKey, QueueData, Registration

#: server_id of direct publishers.
DIRECT = "direct"
#: server_id of the job's ticks, by which the brokers of direct publishers age.
JOB = "job"


class Origin(NamedTuple):
    """The server that logged an event.

    ``server_epoch`` is the time of its start, epoch milliseconds. ``connection_id`` is 0 for events without connection.
    """

    server_id: str
    server_epoch: int
    connection_id: int = 0

    @property
    def holder(self) -> Holder:
        return Holder(self.server_epoch, self.connection_id)


class Proof(StrEnum):
    """The kinds of heartbeats. An unchanged registration can restore a removed broker, a plain heartbeat cannot."""

    REGISTRATION = "registration"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A full registration of a broker (REGISTER_BROKER, 103)."""

    origin: Origin
    registration: Registration

    @property
    def lease_key(self) -> LeaseKey:
        return LeaseKey(self.registration.broker_name, self.registration.live_key)


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat:
    """A heartbeat of a broker: one item of a ``broker_heartbeats`` record.

    Attributes:
        registration_hash: Hash of the unchanged registration; "" for a plain heartbeat.
    """

    origin: Origin
    broker_name: str
    live_key: LiveKey
    proof: Proof
    registration_hash: str = ""

    @property
    def lease_key(self) -> LeaseKey:
        return LeaseKey(self.broker_name, self.live_key)


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    """A broker unregistered (UNREGISTER_BROKER, 104)."""

    origin: Origin
    broker_name: str
    live_key: LiveKey
    broker_id: int

    @property
    def lease_key(self) -> LeaseKey:
        return LeaseKey(self.broker_name, self.live_key)


@dataclass(frozen=True, slots=True)
class BrokerDisconnected:
    """The connection over which a broker registered was closed. ``reason`` is human-readable."""

    origin: Origin
    broker_name: str
    live_key: LiveKey
    reason: str

    @property
    def lease_key(self) -> LeaseKey:
        return LeaseKey(self.broker_name, self.live_key)


@dataclass(frozen=True, slots=True)
class TopicRegistered:
    """A topic was registered for one broker name (REGISTER_TOPIC_IN_NAMESRV, 217).

    Attributes:
        source: Who registered it, for people; "" if unknown.
    """

    origin: Origin
    broker_name: str
    topic: str
    queue_data: QueueData
    source: str = ""


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic was deleted (DELETE_TOPIC_IN_NAMESRV, 216); sent to every partition.

    Attributes:
        cluster: Only the brokers of this cluster lose the topic; None for all brokers, never empty.
        source: Who deleted it, for people; "" if unknown.
    """

    origin: Origin
    topic: str
    cluster: str | None
    source: str = ""


@dataclass(frozen=True, slots=True)
class WritePermChanged:
    """Write permission was wiped (WIPE_WRITE_PERM_OF_BROKER, 205) or added (ADD_WRITE_PERM_OF_BROKER, 327).

    Attributes:
        source: Who changed it, for people; "" if unknown.
    """

    origin: Origin
    broker_name: str
    writable: bool
    source: str = ""


@dataclass(frozen=True, slots=True)
class KvPut:
    """A KV entry was written (PUT_KV_CONFIG, 100)."""

    origin: Origin
    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class KvDeleted:
    """A KV entry was deleted (DELETE_KV_CONFIG, 102)."""

    origin: Origin
    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Settings of the fold changed; sent to every partition. The settings change in no other way.

    Attributes:
        source: "config" for an edited configuration file, otherwise who changed them.
        values: (name of a ``FoldSettings`` field, new value) pairs.
    """

    origin: Origin
    source: str
    values: tuple[tuple[str, SettingValue], ...]


@dataclass(frozen=True, slots=True)
class GuardReleased:
    """An operator confirmed that the held brokers of a cluster are dead; sent to every partition.

    Attributes:
        source: Who confirmed it.
    """

    origin: Origin
    cluster: str
    source: str


@dataclass(frozen=True, slots=True)
class ServerStarted:
    """A name server started; sent to every partition."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class ServerResumed:
    """A server lost records. The latest event of every broker among them follows, before any tick of the server."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class ServerStopped:
    """A name server stopped; sent to every partition."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class Tick:
    """States that the log contains everything that the server received before the tick.

    It is sent to every partition about twice a second.

    Attributes:
        address: The server's remoting address for the list of name servers, ``host:port``; "" keeps it off the list.
    """

    origin: Origin
    address: str = ""


BrokerEvent = (
    BrokerRegistered | BrokerHeartbeat | BrokerUnregistered | BrokerDisconnected | TopicRegistered | WritePermChanged
)
#: Events that a server accepts from its peers and applies to its own view at once.
AcceptedEvent = BrokerEvent | TopicDeleted | KvPut | KvDeleted | SettingsChanged | GuardReleased
ServerEvent = ServerStarted | ServerResumed | ServerStopped | Tick
Event = AcceptedEvent | ServerEvent


_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit murmur2 hash. Source: kafka, Utils.murmur2; test vectors: schemas/partitioner.json."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65_536)
def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a broker name or KV namespace, from 0 to ``partitions`` - 1."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def routing_key(event: Event) -> str | None:
    """Return the broker name or KV namespace that decides an event's partition; None if it goes to every partition."""
    match event:
        case BrokerRegistered():
            return event.registration.broker_name
        case BrokerHeartbeat() | BrokerUnregistered() | BrokerDisconnected() | TopicRegistered() | WritePermChanged():
            return event.broker_name
        case KvPut() | KvDeleted():
            return event.namespace
        case TopicDeleted() | SettingsChanged() | GuardReleased():
            return None
        case ServerStarted() | ServerResumed() | ServerStopped() | Tick():
            return None
