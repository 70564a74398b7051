"""Silences of brokers: which timeouts would have ended them, and what the log says later of who was dead.

A silence begins when a broker process (name, cluster, address) was last heard, by any server, and ends when it is heard
again, or with the log. Time is observed time of the partition, which is the same whatever the timeout.

What a silence was, by how it ended:

- ``ALIVE``: heard again over a connection that had been there before it. A process that still has its connection
  never restarted. Also after a restart of the server, which ends every connection and says nothing of brokers; and of
  producers that publish by themselves and have no connection.
- ``RESTARTED``: heard again over another connection of the same server, though that server had not closed the former
  one; or the broker had said goodbye, or all its former connections were closed from its end, and the log says so.
- ``UNCLEAR``: heard again over another connection, after the server itself had closed the former one (it was idle, or
  the broker had expired) or at a server that had not heard it before. It may have restarted or been frozen.
- ``GONE``: not heard again in the log.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from namesrv_stream.route.changes import Cause, RouteChange
from namesrv_stream.route.events import (
    DIRECT,
    BrokerDisconnected,
    BrokerUnregistered,
    Origin,
)
from namesrv_stream.route.model import Holder, LeaseKey, LiveKey

#: How the server words a close that came from the other end.
_PEER_CLOSED = "closed by the peer"


class Verdict(StrEnum):
    ALIVE = "alive"
    RESTARTED = "restarted"
    UNCLEAR = "unclear"
    GONE = "gone"

    @property
    def is_death(self) -> bool:
        return self in (Verdict.RESTARTED, Verdict.GONE)


@dataclass(frozen=True, slots=True)
class Ended:
    """A run took the broker out.

    Attributes:
        observed_ms: Observed time of the partition.
        cause: Of the fold.
    """

    observed_ms: int
    cause: str

    @property
    def is_expiry(self) -> bool:
        return self.cause == Cause.EXPIRED


@dataclass(slots=True)
class Silence:
    """One silence that some run ended.

    Attributes:
        ends: Number of the run → what it did.
        heard_again_ms: Observed time; None where the log ends before.
    """

    key: LeaseKey
    ends: dict[int, Ended] = field(default_factory=dict)
    heard_again_ms: int | None = None
    verdict: Verdict = Verdict.GONE

    def seen_ms(self, run: int) -> int | None:
        """When a death was seen in a run: the broker was taken out, or came back anew; None where never."""
        end = self.ends.get(run)
        return end.observed_ms if end else self.heard_again_ms


@dataclass(slots=True)
class _Process:
    """What is known of a broker process.

    Attributes:
        connections: server_id → connection over which it was heard last.
        server_closed: Servers that have closed that connection themselves.
        peer_closed: Servers at which that connection was closed from the broker's end.
        said_goodbye: And was not heard since.
    """

    heard_ms: int
    connections: dict[str, Holder] = field(default_factory=dict)
    server_closed: set[str] = field(default_factory=set)
    peer_closed: set[str] = field(default_factory=set)
    said_goodbye: bool = False
    silence: Silence | None = None

    @property
    def has_left(self) -> bool:
        return self.said_goodbye or self.connections.keys() <= self.peer_closed

    def heard(self, origin: Origin, observed_ms: int) -> None:
        self.heard_ms = observed_ms
        self.connections[origin.server_id] = origin.holder
        self.server_closed.discard(origin.server_id)
        self.peer_closed.discard(origin.server_id)
        self.said_goodbye = False
        self.silence = None


class Hearing(NamedTuple):
    """A process that was known already was heard again.

    Attributes:
        verdict: What it was doing in between, however short that was.
        silent_ms: Since it was last heard, by any server; observed time of the partition.
        is_over: Whether the log as it was had taken it out meanwhile.
    """

    verdict: Verdict
    silent_ms: int
    is_over: bool


class SilenceTally:
    """What silences came to, in room for the deaths among them only.

    Attributes:
        deaths: Silences of brokers that were dead.
        expiries: (cluster, run, verdict) → how many silences of others the run ended by an expiry.
    """

    def __init__(self) -> None:
        self.deaths: list[Silence] = []
        self.expiries: Counter[tuple[str, int, Verdict]] = Counter()

    def add(self, silence: Silence) -> None:
        if silence.verdict.is_death:
            self.deaths.append(silence)
            return
        for run, end in silence.ends.items():
            if end.is_expiry:
                self.expiries[silence.key.live_key.cluster, run, silence.verdict] += 1


class SilenceWatch:
    """Puts together what the runs did and what brokers did next, in one partition.

    Args:
        on_over: Told of each silence that some run ended, once the broker is heard again.
    """

    def __init__(self, on_over: Callable[[Silence], None]) -> None:
        self._on_over = on_over
        self._processes: dict[LeaseKey, _Process] = {}

    @property
    def open(self) -> list[Silence]:
        """Those that some run ended, and after which the broker was not heard."""
        return [process.silence for process in self._processes.values() if process.silence is not None]

    def ended(self, run: int, row: RouteChange, observed_ms: int) -> None:
        """A run has a row that says that a process is gone."""
        key = LeaseKey(row.broker_name or "", LiveKey(row.cluster or "", row.broker_addr or ""))
        process = self._processes.get(key)
        if process is None:
            return
        if process.silence is None:
            process.silence = Silence(key)
        process.silence.ends.setdefault(run, Ended(observed_ms, row.cause))
        if row.cause == Cause.EXPIRED and run == 0:
            # As it was: a server closes the connection over which it heard a broker that has expired.
            process.server_closed |= process.connections.keys()

    def heard(self, key: LeaseKey, origin: Origin, observed_ms: int) -> Hearing | None:
        """A process was heard, after the runs have folded it; None for the first time."""
        process = self._processes.get(key)
        if process is None:
            process = self._processes[key] = _Process(observed_ms)
            process.heard(origin, observed_ms)
            return None
        verdict, silence = _verdict(process, origin), process.silence
        if silence is not None:
            silence.heard_again_ms, silence.verdict = observed_ms, verdict
            self._on_over(silence)
        hearing = Hearing(verdict, observed_ms - process.heard_ms, silence is not None and 0 in silence.ends)
        process.heard(origin, observed_ms)
        return hearing

    def left(self, event: BrokerUnregistered | BrokerDisconnected) -> None:
        """A goodbye, or the close of a connection."""
        process = self._processes.get(LeaseKey(event.broker_name, event.live_key))
        if process is None:
            return
        server_id = event.origin.server_id
        if isinstance(event, BrokerUnregistered):
            process.said_goodbye = True
        elif process.connections.get(server_id) == event.origin.holder:
            closed = process.peer_closed if _PEER_CLOSED in event.reason else process.server_closed
            closed.add(server_id)


def _verdict(process: _Process, origin: Origin) -> Verdict:
    """What a silence was that ends with the process being heard from ``origin``."""
    before = process.connections.get(origin.server_id)
    if process.has_left:
        return Verdict.RESTARTED
    if before is None:
        return Verdict.UNCLEAR
    if origin.holder == before or origin.server_id == DIRECT or origin.server_epoch > before.server_epoch:
        return Verdict.ALIVE
    return Verdict.UNCLEAR if origin.server_id in process.server_closed else Verdict.RESTARTED
