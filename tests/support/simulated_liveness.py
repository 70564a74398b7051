"""The events that the liveness oracle reads, and its state of each broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from namesrv_stream.route.liveness_settings import SettingValue

#: A server's lease of a broker: the index of the last event from the broker, and its connection.
ServerLease = tuple[int, tuple[int, int]]


class LogEvent(NamedTuple):
    """One record of the log.

    Attributes:
        at_ms: Its LogAppendTime.
        server_id: Id of the server that wrote it.
        kind: register, proof, beat, close, unregister, started, resumed, release, settings or tick.
        epoch: Epoch of the server.
        addr: Address of the broker.
        connection: Connection of the broker.
        timeout_ms: Timeout in a registration; a proof with another timeout than the last registration is unknown.
        cluster: Cluster of a release.
        values: Changed settings.
    """

    at_ms: int
    server_id: str
    kind: str
    epoch: int = 0
    addr: str = ""
    connection: int = 0
    timeout_ms: int | None = None
    cluster: str = ""
    values: Mapping[str, SettingValue] = MappingProxyType({})

    @property
    def over(self) -> tuple[int, int]:
        return (self.epoch, self.connection)


class BrokerProcess(NamedTuple):
    """A broker process."""

    cluster: str
    broker_name: str


@dataclass
class LiveBroker:
    """A live broker.

    Attributes:
        leases: Server id → its lease.
        ended: When the servers whose lease has ended last heard the broker; None if there are none.
        kept: Why and at which server the guard holds it; None if it does not.
        released: Whether an operator has released it.
    """

    leases: dict[str, ServerLease] = field(default_factory=dict)
    ended: int | None = None
    kept: tuple[str, str] | None = None
    released: bool = False


class ClosedBroker(NamedTuple):
    """A broker that event ``event`` removed because its last connection closed."""

    event: int
    server_id: str
    addr: str
    broker: LiveBroker
