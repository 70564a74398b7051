"""Silences of brokers: which timeouts would have expired them, and whether the log shows later that they were dead.

A silence of a broker process (name, cluster, address) begins with its last sign of life at any server, and ends with
the next one or with the log. Time is the observed time of the partition, which does not depend on the timeout.

The end of a silence decides its verdict:

- ``ALIVE``: it ended over a connection that had existed before. A process that still has its connection did not
  restart. The verdict is the same after a restart of the server, which closes every connection and says nothing about
  brokers, and for brokers of programs that publish directly, which have no connection.
- ``RESTARTED``: it ended over another connection of the same server, which had not closed the former one; or, according
  to the log, the broker had unregistered, or the broker's side had closed all its former connections.
- ``UNCLEAR``: it ended over another connection after the server itself had closed the former one (it was idle, or the
  broker had expired), or at another server. The broker may have restarted or been frozen. Or the log ended first, and
  the broker was still live in the recorded log: a broker between two heartbeats looks like one that has died.
- ``GONE``: the log ended first, and the broker had ended in the recorded log.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from namesrv_stream.route.changes import Cause, RouteChange
from namesrv_stream.route.events import DIRECT, BrokerDisconnected, BrokerUnregistered, Origin
from namesrv_stream.route.model import Holder, LeaseKey, LiveKey

#: The server's reason for a close that came from the peer.
_PEER_CLOSED = "closed by the peer"


class Verdict(StrEnum):
    ALIVE = "alive"
    RESTARTED = "restarted"
    UNCLEAR = "unclear"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a broker in one run.

    Attributes:
        observed_ms: When it ended, in the observed time of the partition.
        at_ms: LogAppendTime of the record that ended it, in epoch milliseconds.
        cause: Cause in the row of ``route_changes``.
    """

    observed_ms: int
    at_ms: int
    cause: str

    @property
    def is_expiry(self) -> bool:
        return self.cause == Cause.EXPIRED


@dataclass(slots=True)
class Silence:
    """A silence during which at least one run removed the broker from its routes.

    Attributes:
        ends: Number of the run → the end of the broker in it.
        seen_again_ms: Observed time of the next sign of life; None if the log ends first.
        verdict: Until the broker is seen again, the verdict that applies if the log ends now.
    """

    key: LeaseKey
    ends: dict[int, Ended] = field(default_factory=dict)
    seen_again_ms: int | None = None
    verdict: Verdict = Verdict.UNCLEAR

    def seen_ms(self, run: int) -> int | None:
        """Return the observed time at which a run noticed the death: it removed the broker, or the broker came back.

        None if the run never noticed it.
        """
        end = self.ends.get(run)
        return end.observed_ms if end else self.seen_again_ms


@dataclass(slots=True)
class _Process:
    """The history of a broker process.

    Attributes:
        connections: server_id → the connection of its last sign of life.
        server_closed: Servers that have closed this connection themselves.
        peer_closed: Servers at which the broker has closed this connection.
        has_unregistered: Whether it has unregistered since its last sign of life.
    """

    last_seen_ms: int
    connections: dict[str, Holder] = field(default_factory=dict)
    server_closed: set[str] = field(default_factory=set)
    peer_closed: set[str] = field(default_factory=set)
    has_unregistered: bool = False
    silence: Silence | None = None

    def seen(self, origin: Origin, observed_ms: int) -> None:
        self.last_seen_ms = observed_ms
        self.connections[origin.server_id] = origin.holder
        self.server_closed.discard(origin.server_id)
        self.peer_closed.discard(origin.server_id)
        self.has_unregistered = False
        self.silence = None


class ReceivedHeartbeat(NamedTuple):
    """A sign of life of a known process.

    Attributes:
        verdict: The verdict on the silence before it, however short.
        silent_ms: Length of the silence in observed time of the partition.
        is_over: Whether the fold with the timeouts of the log removed the broker during this silence.
    """

    verdict: Verdict
    silent_ms: int
    is_over: bool


class SilenceTally:
    """The results of silences; it stores only those of dead brokers.

    Attributes:
        deaths: Silences of brokers that were dead.
        expiries: (cluster, run, verdict) → number of silences of other brokers that expired in the run.
    """

    def __init__(self) -> None:
        self.deaths: list[Silence] = []
        self.expiries: Counter[tuple[str, int, Verdict]] = Counter()

    def add(self, silence: Silence) -> None:
        if silence.verdict in (Verdict.RESTARTED, Verdict.GONE):
            self.deaths.append(silence)
            return
        for run, end in silence.ends.items():
            if end.is_expiry:
                self.expiries[silence.key.live_key.cluster, run, silence.verdict] += 1


class SilenceWatch:
    """Combines the ends of brokers in the runs with their next signs of life, in one partition.

    A run is one fold of the partition: run 0 with the settings of the log, every other one with a requested timeout.

    Args:
        on_over: Called with every silence in which at least one run removed the broker, once the silence is over.
    """

    def __init__(self, on_over: Callable[[Silence], None]) -> None:
        self._on_over = on_over
        self._processes: dict[LeaseKey, _Process] = {}

    @property
    def open(self) -> list[Silence]:
        """The silences that have not ended and in which at least one run removed the broker."""
        return [process.silence for process in self._processes.values() if process.silence is not None]

    def ended(self, run: int, row: RouteChange, observed_ms: int) -> None:
        """Record that a run has a row about the end of a process."""
        key = LeaseKey(row.broker_name or "", LiveKey(row.cluster or "", row.broker_addr or ""))
        process = self._processes.get(key)
        if process is None:
            return
        if process.silence is None:
            process.silence = Silence(key)
        process.silence.ends.setdefault(run, Ended(observed_ms, row.at_ms, row.cause))
        if run == 0:
            process.silence.verdict = Verdict.GONE
            if row.cause == Cause.EXPIRED:
                # In the recorded log, a server closes the connection of a broker that has expired.
                process.server_closed |= process.connections.keys()

    def seen(self, key: LeaseKey, origin: Origin, observed_ms: int) -> ReceivedHeartbeat | None:
        """Record a sign of life that the runs have folded already.

        Returns:
            What the sign of life says about the silence before it; None for the first sign of life of a process.
        """
        process = self._processes.get(key)
        if process is None:
            process = self._processes[key] = _Process(observed_ms)
            process.seen(origin, observed_ms)
            return None
        verdict, silence = _verdict(process, origin), process.silence
        if silence is not None:
            silence.seen_again_ms, silence.verdict = observed_ms, verdict
            self._on_over(silence)
        heartbeat = ReceivedHeartbeat(
            verdict, observed_ms - process.last_seen_ms, silence is not None and 0 in silence.ends
        )
        process.seen(origin, observed_ms)
        return heartbeat

    def left(self, event: BrokerUnregistered | BrokerDisconnected) -> None:
        """Record that a process unregistered, or that its connection closed."""
        process = self._processes.get(LeaseKey(event.broker_name, event.live_key))
        if process is None:
            return
        server_id = event.origin.server_id
        if isinstance(event, BrokerUnregistered):
            process.has_unregistered = True
        elif process.connections.get(server_id) == event.origin.holder:
            closed = process.peer_closed if _PEER_CLOSED in event.reason else process.server_closed
            closed.add(server_id)


def _verdict(process: _Process, origin: Origin) -> Verdict:
    """Return the verdict on a silence that ends with a sign of life from ``origin``."""
    before = process.connections.get(origin.server_id)
    if process.has_unregistered or process.connections.keys() <= process.peer_closed:
        return Verdict.RESTARTED
    if before is None:
        return Verdict.UNCLEAR
    if origin.holder == before or origin.server_id == DIRECT or origin.server_epoch > before.server_epoch:
        return Verdict.ALIVE
    return Verdict.UNCLEAR if origin.server_id in process.server_closed else Verdict.RESTARTED
