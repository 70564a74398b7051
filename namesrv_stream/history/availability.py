"""How much of a time brokers and clusters were up."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from namesrv_stream.history.sessions import Session, by_broker
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.lease import LeaseKey


@dataclass(frozen=True, slots=True)
class Availability:
    """One broker process over some time.

    Attributes:
        broker_id: Its last; 0 is a master.
        known_ms: How long it was to be up: from when it first came, to the end or to the goodbye after which it did not
            come back.
        up_ms: How much of that it was up.
        downs: How often it went, goodbyes included.
        repairs_ms: How long each absence took from which it came back.
        heartbeats: How often it was heard in sessions of that time, as far as they were counted.
        longest_gap_ms: Its longest silence while it was up; None where none is known.
        is_up: Whether it was up at the end.
        down_cause: Why it went last; None where it never did.
    """

    key: LeaseKey
    broker_id: int | None
    known_ms: int
    up_ms: int
    downs: int
    repairs_ms: Sequence[int]
    heartbeats: int
    longest_gap_ms: int | None
    is_up: bool
    down_cause: str | None

    @property
    def share(self) -> float | None:
        """Between 0 and 1; None where it was not to be up at all."""
        return self.up_ms / self.known_ms if self.known_ms else None

    @property
    def mttr_ms(self) -> float | None:
        """Mean time to repair; None where there was none."""
        return mean(self.repairs_ms) if self.repairs_ms else None


def availabilities(sessions: Iterable[Session], since_ms: int, until_ms: int) -> list[Availability]:
    """Every broker of a time, by cluster, name and address.

    Args:
        sessions: All that overlap the time, and each broker's last before.
        since_ms: Epoch milliseconds.
        until_ms: Epoch milliseconds.
    """
    return [
        _availability(key, own, since_ms, until_ms)
        for key, own in by_broker(sessions).items()
        if own[-1].down_ms is None or own[-1].down_ms > since_ms
    ]


def _availability(key: LeaseKey, sessions: Sequence[Session], since_ms: int, until_ms: int) -> Availability:
    within = [s for s in sessions if s.down_ms is None or s.down_ms > since_ms]
    last = sessions[-1]
    begin_ms = max(since_ms, sessions[0].up_ms)
    has_left = last.down_ms is not None and last.down_cause == Cause.UNREGISTERED
    end_ms = last.down_ms if has_left and last.down_ms is not None else until_ms
    repairs = [
        later.up_ms - before.down_ms
        for before, later in itertools.pairwise(sessions)
        if before.down_ms is not None and later.up_ms > since_ms
    ]
    gaps = [s.longest_gap_ms for s in within if s.longest_gap_ms is not None]
    downs = [s for s in within if s.down_ms is not None]
    return Availability(
        key=key,
        broker_id=last.broker_id,
        known_ms=end_ms - begin_ms,
        up_ms=sum(min(s.down_ms or end_ms, end_ms) - max(s.up_ms, begin_ms) for s in within),
        downs=len(downs),
        repairs_ms=repairs,
        heartbeats=sum(s.heartbeats for s in within),
        longest_gap_ms=max(gaps, default=None),
        is_up=last.down_ms is None,
        down_cause=downs[-1].down_cause if downs else None,
    )
