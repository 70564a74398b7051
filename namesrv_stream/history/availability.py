"""How much of a time brokers and clusters were up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Protocol

from namesrv_stream.history.replicas import Replica, replicas, times_away
from namesrv_stream.history.sessions import Session
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.lease import LeaseKey


class UpTime(Protocol):
    """For how long something was up of the time that it was to be up, and how it came back."""

    @property
    def known_ms(self) -> int: ...
    @property
    def up_ms(self) -> int: ...
    @property
    def interruptions(self) -> int: ...
    @property
    def repairs_ms(self) -> Sequence[int]: ...


class Rates:
    """What an ``UpTime``, of one broker or of many, comes to."""

    __slots__ = ()

    @property
    def share(self: UpTime) -> float | None:
        """Between 0 and 1; None where nobody was to be up at all."""
        return self.up_ms / self.known_ms if self.known_ms else None

    @property
    def mttr_ms(self: UpTime) -> float | None:
        """Mean time to repair; None where there was none."""
        return mean(self.repairs_ms) if self.repairs_ms else None

    @property
    def mtbf_ms(self: UpTime) -> float | None:
        """Mean time between a broker's interruptions: up-time by their number; None where there was none."""
        return self.up_ms / self.interruptions if self.interruptions else None


@dataclass(frozen=True, slots=True)
class Availability(Rates):
    """One broker, through all its processes, over some time.

    Attributes:
        key: Its newest process.
        earlier_keys: Others that it had in that time, as they came.
        broker_id: Its last; 0 is a master.
        begin_ms: From when on it was to be up: from when it first came. Epoch milliseconds.
        end_ms: Until when: to the end of the time, or to the goodbye after which it did not come back.
        up_ms: How much of that it was up.
        downs: How often it went, goodbyes included; not where another process of it was up already.
        failures: How often it went without a goodbye.
        repairs_ms: How long each absence took from which it came back.
        heartbeats: How often it was heard in sessions of that time, as far as they were counted.
        longest_gap_ms: Its longest silence while it was up; None where none is known.
        is_up: Whether it was up at the end.
        down_cause: Why it went last; None where it never did.
    """

    key: LeaseKey
    earlier_keys: Sequence[LeaseKey]
    broker_id: int | None
    begin_ms: int
    end_ms: int
    up_ms: int
    downs: int
    failures: int
    repairs_ms: Sequence[int]
    heartbeats: int
    longest_gap_ms: int | None
    is_up: bool
    down_cause: str | None

    @property
    def known_ms(self) -> int:
        """How long it was to be up."""
        return self.end_ms - self.begin_ms

    @property
    def interruptions(self) -> int:
        """How often it went while it was to be up: each time, but for a goodbye for good."""
        return self.downs - self.has_left

    @property
    def has_left(self) -> bool:
        """Whether it was taken away on purpose: its availability is that up to then."""
        return not self.is_up and has_left(self.down_cause)


def has_left(cause: str | None) -> bool:
    """Whether who went for this cause, and did not come back, was taken away on purpose."""
    return cause == Cause.UNREGISTERED


def availabilities(sessions: Iterable[Session], since_ms: int, until_ms: int) -> list[Availability]:
    """Every broker that was up in a time or went in it, by cluster, name and address.

    Args:
        sessions: All that overlap the time, and each process's first and last before.
        since_ms: Epoch milliseconds.
        until_ms: Epoch milliseconds.
    """
    return [_availability(replica, since_ms, until_ms) for replica in replicas(sessions) if replica.within(since_ms)]


def _availability(replica: Replica, since_ms: int, until_ms: int) -> Availability:
    within = replica.within(since_ms)
    away = [a for a in times_away(replica.sessions) if a.end_ms is None or a.end_ms > since_ms]
    is_up = not away or away[-1].end_ms is not None
    has_gone = not is_up and has_left(away[-1].last.down_cause)
    begin_ms = max(since_ms, replica.sessions[0].up_ms)
    end_ms = away[-1].begin_ms if has_gone else until_ms
    down_ms = sum((end_ms if a.end_ms is None else a.end_ms) - max(begin_ms, a.begin_ms) for a in away)
    gaps = [s.longest_gap_ms for s in within if s.longest_gap_ms is not None]
    downs = [a.last.down_cause for a in away if a.begin_ms > since_ms]
    return Availability(
        key=replica.key,
        earlier_keys=replica.earlier_keys(since_ms),
        broker_id=replica.newest.broker_id,
        begin_ms=begin_ms,
        end_ms=end_ms,
        up_ms=end_ms - begin_ms - down_ms,
        downs=len(downs),
        failures=sum(not has_left(cause) for cause in downs),
        repairs_ms=[a.end_ms - a.begin_ms for a in away if a.end_ms is not None],
        heartbeats=sum(s.heartbeats for s in within),
        longest_gap_ms=max(gaps, default=None),
        is_up=is_up,
        down_cause=downs[-1] if downs else None,
    )
