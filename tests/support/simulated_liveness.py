"""The input of the liveness oracle, and its state of each broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from namesrv_stream.route.liveness_settings import SettingValue

#: What one server has of a broker: the event that it heard last, and the connection.
Hold = tuple[int, tuple[int, int]]


class Heard(NamedTuple):
    """One record.

    Attributes:
        at_ms: Its LogAppendTime.
        server_id: Whose.
        kind: register, proof, beat, close, goodbye, started, resumed, release, settings or tick.
        epoch: Of the server's start.
        addr: Of the broker.
        connection: Over which the broker was heard.
        timeout_ms: What it asks with a registration; a proof of another than the last registration's is unknown.
        cluster: Of a release.
        values: Of changed settings.
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


class Process(NamedTuple):
    """A broker process of the world."""

    cluster: str
    broker_name: str


@dataclass
class Alive:
    """A live broker: its holds by server; when those that ended theirs last heard it; how the guard keeps it."""

    holds: dict[str, Hold] = field(default_factory=dict)
    ended: int | None = None
    kept: tuple[str, str] | None = None
    released: bool = False


class Closed(NamedTuple):
    """A broker that went with its last connection by event ``event``."""

    event: int
    server_id: str
    addr: str
    broker: Alive
