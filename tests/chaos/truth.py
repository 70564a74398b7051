"""The ground truth, recorded by the fleet and the test: lifetimes of brokers, acknowledged requests, and faults.

All instants are epoch milliseconds of this machine's clock, which stamps Kafka's records too.
"""

import bisect
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from namesrv_stream.clock import SystemClock

#: A process of the rig that is stalled for longer records it.
STALL_MS: Final = 500

_CLOCK: Final = SystemClock()


def now_ms() -> int:
    """Return the time of this machine's clock."""
    return _CLOCK.now_ms()


class BrokerKey(NamedTuple):
    """The key of a broker process in brokerLiveTable, with its broker name."""

    broker_name: str
    cluster: str
    broker_addr: str


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One broker process from its start to its death.

    Attributes:
        servers: Servers with which it registers; ``direct`` for a direct publisher.
        down_ms: When it began to end; None while it runs.
        how: ``silent``, ``closed`` or ``unregistered``; "" while it runs.
    """

    number: int
    key: BrokerKey
    broker_id: int
    timeout_ms: int
    servers: tuple[str, ...]
    up_ms: int
    down_ms: int | None = None
    how: str = ""

    def is_up(self, from_ms: int, to_ms: int) -> bool:
        """Whether it ran for the whole time."""
        return self.up_ms <= from_ms and (self.down_ms is None or self.down_ms > to_ms)


class Span(NamedTuple):
    """A period in which something was broken.

    Attributes:
        what: ``kill``, ``freeze``, ``cut``, ``stall``, …
        part: The broken part: ``kafka``, ``job``, a server's id, ``fleet``.
        cluster: The cluster that was cut off; "" for all clusters.
    """

    what: str
    part: str
    from_ms: int
    to_ms: int
    cluster: str = ""

    def overlaps(self, from_ms: int, to_ms: int) -> bool:
        """Whether it overlaps ``[from_ms, to_ms]``."""
        return self.from_ms <= to_ms and self.to_ms >= from_ms


@dataclass(frozen=True, slots=True)
class Truth:
    """The ground truth.

    Attributes:
        acks: (broker process, server) → when requests that were answered with SUCCESS had been sent, in order.
        losses: (broker process, server) → when the broker abandoned its connections there, in order.
        spans: Periods in which something was broken.
    """

    lives: tuple[Lifetime, ...]
    acks: Mapping[tuple[BrokerKey, str], list[int]] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    losses: Mapping[tuple[BrokerKey, str], list[int]] = field(default_factory=dict)

    def of(self, key: BrokerKey) -> Iterator[Lifetime]:
        """Return the lifetimes of one key, in order."""
        return (life for life in self.lives if life.key == key)

    def broken(self, from_ms: int, to_ms: int, *parts: str) -> list[Span]:
        """Return the faults of these parts, by default of all, in a period."""
        return [s for s in self.spans if s.overlaps(from_ms, to_ms) and (not parts or s.part in parts)]

    def last_ack_ms(self, key: BrokerKey, server: str, before_ms: int) -> int | None:
        """Return when the last acknowledged request before an instant was sent."""
        times = self.acks.get((key, server), [])
        index = bisect.bisect_left(times, before_ms)
        return times[index - 1] if index else None

    def has_parted(self, key: BrokerKey, server: str, before_ms: int) -> bool:
        """Whether a broker has unregistered or disconnected at a server since its last acknowledged request there."""
        since_ms = self.last_ack_ms(key, server, before_ms) or 0
        times = self.losses.get((key, server), [])
        ends = [life.down_ms for life in self.of(key) if life.down_ms is not None and life.how != "silent"]
        return any(since_ms <= at_ms < before_ms for at_ms in (*times, *ends))


class Journal:
    """A file of JSON lines; each is flushed at once, so that it survives a kill of the writer."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def write(self, kind: str, **fields: Any) -> None:
        """Write a line; adds the current time if it has none."""
        self._file.write(json.dumps({"kind": kind, "at": now_ms(), **fields}) + "\n")

    def close(self) -> None:
        self._file.close()


def read_truth(paths: Iterable[Path], spans: Iterable[Span] = ()) -> Truth:
    """Read the truth from journals and the spans of the test."""
    lives: dict[int, Lifetime] = {}
    acks: dict[tuple[BrokerKey, str], list[int]] = defaultdict(list)
    losses: dict[tuple[BrokerKey, str], list[int]] = defaultdict(list)
    found = list(spans)
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            match entry["kind"]:
                case "up":
                    lives[entry["life"]] = _life(entry)
                case "down":
                    lives[entry["life"]] = _ended(lives[entry["life"]], entry)
                case "ack":
                    acks[lives[entry["life"]].key, entry["server"]].append(entry["at"])
                case "lost":
                    losses[lives[entry["life"]].key, entry["server"]].append(entry["at"])
                case "stall":
                    found.append(Span("stall", entry["part"], entry["at"] - entry["ms"], entry["at"]))
                case _:
                    pass
    for times in (*acks.values(), *losses.values()):
        times.sort()
    return Truth(tuple(sorted(lives.values(), key=lambda life: life.up_ms)), acks, tuple(sorted(found)), losses)


def _life(entry: Mapping[str, Any]) -> Lifetime:
    key = BrokerKey(entry["broker_name"], entry["cluster"], entry["broker_addr"])
    return Lifetime(entry["life"], key, entry["broker_id"], entry["timeout_ms"], tuple(entry["servers"]), entry["at"])


def _ended(life: Lifetime, entry: Mapping[str, Any]) -> Lifetime:
    return Lifetime(
        life.number,
        life.key,
        life.broker_id,
        life.timeout_ms,
        life.servers,
        life.up_ms,
        entry["at"],
        entry["how"],
    )
