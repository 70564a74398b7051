"""The brokers of a fleet, and when and how they start and end; the seed determines everything."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

#: The guard is off for ``chaos``. ``guarded`` has its own scenario, and its brokers never end.
CLUSTERS: Final = ("east", "west", "north", "south")
GUARDED: Final = "guarded"
DIRECT_CLUSTER: Final = "direct"

_DEATHS: Final = ("silent", "silent", "closed", "unregistered")
_RESTARTS: Final = ("same", "same", "address", "broker_id")


@dataclass(frozen=True, slots=True)
class FleetSize:
    """Size of a fleet, and how often its brokers end and start; durations in milliseconds.

    Attributes:
        brokers: Broker processes at a time, without those of the guarded cluster.
        timeouts_ms: Values of heartbeatTimeoutMillis, which the brokers use in turn; None: no timeout in registrations.
        default_timeout_ms: Timeout that a name server uses for None.
        up_ms: Mean time from start to end; the minimum is an eighth of it.
        down_ms: Mean time from end to restart.
        immortal_share: Share of the brokers that never end.
    """

    brokers: int = 200
    guarded: int = 12
    direct: int = 8
    timeouts_ms: tuple[int | None, ...] = (4_000, 5_000, 6_000, None)
    default_timeout_ms: int = 5_000
    up_ms: int = 40_000
    down_ms: int = 15_000
    immortal_share: float = 0.4

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "FleetSize":
        """Inverse of ``asdict`` and JSON."""
        return cls(**fields | {"timeouts_ms": tuple(fields["timeouts_ms"])})


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot of the fleet, in which one broker process follows another.

    Attributes:
        timeout_ms: Timeout in its registrations; None if there is none.
        effective_ms: Timeout that applies.
        servers: Ids of the servers with which its processes register.
    """

    number: int
    cluster: str
    broker_name: str
    broker_id: int
    timeout_ms: int | None
    effective_ms: int
    servers: tuple[str, ...]
    is_immortal: bool

    @property
    def beat_ms(self) -> int:
        """Interval between heartbeats: a quarter of the timeout, as by default (30 s of 120 s)."""
        return self.effective_ms // 4

    def addr(self, incarnation: int) -> str:
        """Return an address that no other broker process has."""
        return f"10.77.{self.number // 250}.{self.number % 250 + 1}:{10_911 + 10 * incarnation}"


def slots(size: FleetSize, servers: tuple[str, ...], seed: int) -> Iterator[Slot]:
    """Return the fleet: a third are slaves of a master; half use all servers, the others one server."""
    draw = random.Random(seed)
    for number in range(size.brokers + size.guarded):
        is_guarded = number >= size.brokers
        cluster = GUARDED if is_guarded else CLUSTERS[number % len(CLUSTERS)]
        is_slave = number % 12 >= 8 and not is_guarded
        name = f"{cluster}-{number - 4 if is_slave else number}"
        timeout_ms = size.timeouts_ms[(number // len(CLUSTERS)) % len(size.timeouts_ms)]
        spoken_to = servers if draw.random() < 0.5 or is_guarded else (draw.choice(servers),)
        yield Slot(
            number,
            cluster,
            name,
            1 if is_slave else 0,
            timeout_ms,
            timeout_ms or size.default_timeout_ms,
            spoken_to,
            is_guarded or draw.random() < size.immortal_share,
        )


def direct_slots(size: FleetSize) -> Iterator[Slot]:
    """Return the direct publishers; every other one ends and restarts at times."""
    for number in range(size.direct):
        timeout_ms = size.default_timeout_ms
        name = f"{DIRECT_CLUSTER}-{number}"
        yield Slot(1_000 + number, DIRECT_CLUSTER, name, 0, None, timeout_ms, ("direct",), number % 2 == 0)


class SlotDraws:
    """The random draws of one slot."""

    def __init__(self, slot: Slot, size: FleetSize, seed: int) -> None:
        self._draw = random.Random(f"{seed}/{slot.number}")
        self._slot = slot
        self._size = size

    def up_s(self) -> float:
        """Return how long the next process runs."""
        return (self._size.up_ms / 8 + self._draw.expovariate(1) * self._size.up_ms * 7 / 8) / 1000

    def down_s(self) -> float:
        """Return the pause until the next process."""
        return self._draw.uniform(0.1, 2) * self._size.down_ms / 1000

    def death(self) -> str:
        """Return how the process ends."""
        return self._draw.choice(_DEATHS)

    def restart(self) -> str:
        """Return what changes with the next process: nothing, its address, or its address and brokerId."""
        return self._draw.choice(_RESTARTS)

    def jitter(self) -> float:
        """Return the variation of one interval between two signs of life."""
        return self._draw.uniform(0.9, 1.1)

    def is_abrupt(self) -> bool:
        """Whether a close is a reset."""
        return self._draw.random() < 0.5
