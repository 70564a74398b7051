"""Silences of brokers: which timeouts would have ended them, and what the log says later of who was dead.

A silence begins when a broker process (name, cluster, address) was last heard, by any server, and ends when it is heard
again, or with the log. Time is observed time of the partition, which is the same whatever the timeout.

What a silence was, by how it ended:

- ``ALIVE``: heard again over a connection that had been there before it. A process that still has its connection
  never restarted. Also after a restart of the server, which ends every connection and says nothing of brokers; and of
  producers that publish by themselves and have no connection.
- ``RESTARTED``: heard again over another connection of the same server, though that server had not closed the former
  one; or the broker had said goodbye, or the former connection was closed from its end, and the log says so.
- ``UNCLEAR``: heard again over another connection, after the server itself had closed the former one (it was idle, or
  the broker had expired) or at a server that had not heard it before. It may have restarted or been frozen.
- ``GONE``: not heard again in the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from namesrv_stream.route.changes import Cause, RouteChange
from namesrv_stream.route.events import (
    DIRECT,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    Origin,
)
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.model import Holder, LiveKey

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
        at_ms: LogAppendTime, epoch milliseconds.
        cause: Of the fold.
    """

    observed_ms: int
    at_ms: int
    cause: str

    @property
    def is_expiry(self) -> bool:
        return self.cause == Cause.EXPIRED


@dataclass(slots=True)
class Silence:
    """One silence that some run ended.

    Attributes:
        last_heard_ms: Observed time of the partition.
        last_heard_at_ms: LogAppendTime, epoch milliseconds.
        ends: Number of the run → what it did.
        heard_again_ms: Observed time; None where the log ends before.
    """

    key: LeaseKey
    last_heard_ms: int
    last_heard_at_ms: int
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
        has_left: It said goodbye, or a connection was closed from its end.
    """

    heard_ms: int
    heard_at_ms: int
    connections: dict[str, Holder] = field(default_factory=dict)
    server_closed: set[str] = field(default_factory=set)
    has_left: bool = False
    silence: Silence | None = None


class SilenceWatch:
    """Puts together what the runs did and what brokers did next, in one partition.

    Attributes:
        silences: All that some run ended, in the order in which they began to be noticed.
    """

    def __init__(self) -> None:
        self.silences: list[Silence] = []
        self._processes: dict[LeaseKey, _Process] = {}

    def ended(self, run: int, row: RouteChange, observed_ms: int) -> None:
        """A run has a row that says that a process is gone."""
        key = LeaseKey(row.broker_name or "", LiveKey(row.cluster or "", row.broker_addr or ""))
        process = self._processes.get(key)
        if process is None:
            return
        if process.silence is None:
            process.silence = Silence(key, process.heard_ms, process.heard_at_ms)
            self.silences.append(process.silence)
        process.silence.ends.setdefault(run, Ended(observed_ms, row.at_ms, row.cause))
        if row.cause == Cause.EXPIRED and run == 0:
            # As it was: a server closes the connection over which it heard a broker that has expired.
            process.server_closed |= process.connections.keys()

    def told(self, events: Sequence[Event], observed_ms: int, at_ms: int) -> None:
        """What a record says, after the runs have folded it."""
        for event in events:
            match event:
                case BrokerHeartbeat():
                    self._heard(LeaseKey(event.broker_name, event.live_key), event.origin, observed_ms, at_ms)
                case BrokerRegistered():
                    key = LeaseKey(event.registration.broker_name, event.registration.live_key)
                    self._heard(key, event.origin, observed_ms, at_ms)
                case BrokerUnregistered() | BrokerDisconnected():
                    self._left(event)

    def verdict_of(self, key: LeaseKey, origin: Origin) -> Verdict:
        """What a silence was that ends with the process being heard from ``origin``."""
        process = self._processes[key]
        before = process.connections.get(origin.server_id)
        if process.has_left:
            return Verdict.RESTARTED
        if before is None:
            return Verdict.UNCLEAR
        if origin.holder == before or origin.server_id == DIRECT or origin.server_epoch > before.server_epoch:
            return Verdict.ALIVE
        return Verdict.UNCLEAR if origin.server_id in process.server_closed else Verdict.RESTARTED

    def _heard(self, key: LeaseKey, origin: Origin, observed_ms: int, at_ms: int) -> None:
        process = self._processes.get(key)
        if process is None:
            process = self._processes[key] = _Process(observed_ms, at_ms)
        elif process.silence is not None:
            process.silence.heard_again_ms = observed_ms
            process.silence.verdict = self.verdict_of(key, origin)
            process.silence = None
        process.heard_ms, process.heard_at_ms = observed_ms, at_ms
        process.connections[origin.server_id] = origin.holder
        process.server_closed.discard(origin.server_id)
        process.has_left = False

    def _left(self, event: BrokerUnregistered | BrokerDisconnected) -> None:
        process = self._processes.get(LeaseKey(event.broker_name, event.live_key))
        if process is None:
            return
        server_id = event.origin.server_id
        if isinstance(event, BrokerUnregistered):
            process.has_left = True
        elif process.connections.get(server_id) == event.origin.holder:
            if _PEER_CLOSED in event.reason:
                process.has_left = True
            else:
                process.server_closed.add(server_id)
