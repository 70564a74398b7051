"""What can happen, as the event log tells it. Each kind is one record of the Kafka topic, but for heartbeats.

Every event has an ``Origin``: the server that heard it, and over which connection. Producers that are no server
publish with ``DIRECT``; their brokers age by the job's ticks.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import Holder, LiveKey, QueueData, Registration
from namesrv_stream.route.settings import SettingValue

#: server_id of producers that publish by themselves.
DIRECT = "direct"
#: server_id of the job's ticks, by which the brokers of direct producers age.
JOB = "job"


class Origin(NamedTuple):
    """Who logged an event. ``connection_id`` is 0 where no connection is meant."""

    server_id: str
    server_epoch: int
    connection_id: int = 0

    @property
    def holder(self) -> Holder:
        return Holder(self.server_epoch, self.connection_id)


class Proof(StrEnum):
    """What a heartbeat was: an unchanged registration can bring a broker back, a mere heartbeat cannot."""

    REGISTRATION = "registration"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A registration in full."""

    origin: Origin
    registration: Registration

    @property
    def lease_key(self) -> LeaseKey:
        return LeaseKey(self.registration.broker_name, self.registration.live_key)


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat:
    """One item of a ``broker_heartbeats`` record.

    Attributes:
        registration_hash: Of the unchanged registration; "" for a mere heartbeat.
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
    """The broker said goodbye (104)."""

    origin: Origin
    broker_name: str
    live_key: LiveKey
    broker_id: int

    @property
    def lease_key(self) -> LeaseKey:
        return LeaseKey(self.broker_name, self.live_key)


@dataclass(frozen=True, slots=True)
class BrokerDisconnected:
    """The connection of a registration was closed; ``reason`` is for people."""

    origin: Origin
    broker_name: str
    live_key: LiveKey
    reason: str

    @property
    def lease_key(self) -> LeaseKey:
        return LeaseKey(self.broker_name, self.live_key)


@dataclass(frozen=True, slots=True)
class TopicRegistered:
    """217, for one broker name."""

    origin: Origin
    broker_name: str
    topic: str
    queue_data: QueueData


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """216, sent to every partition; only in brokers of ``cluster`` where one is given (never an empty one)."""

    origin: Origin
    topic: str
    cluster: str | None


@dataclass(frozen=True, slots=True)
class WritePermChanged:
    """205 (``writable`` false) and 327 (true)."""

    origin: Origin
    broker_name: str
    writable: bool


@dataclass(frozen=True, slots=True)
class KvPut:
    origin: Origin
    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class KvDeleted:
    origin: Origin
    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The only way in which a setting of the fold changes; sent to every partition.

    Attributes:
        source: "config" for an edited configuration file, else who changed it.
        values: Names of ``FoldSettings`` fields to their new values.
    """

    origin: Origin
    source: str
    values: tuple[tuple[str, SettingValue], ...]


@dataclass(frozen=True, slots=True)
class GuardReleased:
    """An operator says that the brokers held in a cluster are dead indeed; sent to every partition.

    Attributes:
        source: Who says it.
    """

    origin: Origin
    cluster: str
    source: str


@dataclass(frozen=True, slots=True)
class ServerStarted:
    origin: Origin


@dataclass(frozen=True, slots=True)
class ServerResumed:
    """The server lost records: what it hears starts again from age zero."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class ServerStopped:
    origin: Origin


@dataclass(frozen=True, slots=True)
class Tick:
    """All that the server heard before this is in the log."""

    origin: Origin


BrokerEvent = (
    BrokerRegistered | BrokerHeartbeat | BrokerUnregistered | BrokerDisconnected | TopicRegistered | WritePermChanged
)
#: What a server takes in from others: it changes the view at once.
AcceptedEvent = BrokerEvent | TopicDeleted | KvPut | KvDeleted | SettingsChanged | GuardReleased
ServerEvent = ServerStarted | ServerResumed | ServerStopped | Tick
Event = AcceptedEvent | ServerEvent
