"""What the history tables must contain for the example log, computed in plain Python."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from namesrv_stream.route.changes import ChangeKind, RouteChange
from tests.support.analytics.example_log import instant_ms
from tests.support.builders import Log
from tests.support.history_oracle import clocks, instant, intervals, minutes, sessions

SINCE_MS: Final = instant_ms("02:10:00")
UNTIL_MS: Final = instant_ms("05:00:00")
Row = tuple[Any, ...]
Session = dict[str, Any]


class Interval(NamedTuple):
    """The value of a key and the interval in which it was valid, in epoch milliseconds."""

    change: RouteChange
    begin_ms: int
    end_ms: int | None


class Event(NamedTuple):
    """One record of the topic; ``fields`` is empty if it is not JSON."""

    partition: int
    offset: int
    at: datetime
    fields: dict[str, Any]
    value: str

    @property
    def kind(self) -> str | None:
        return self.fields.get("kind")


@dataclass(frozen=True)
class ExpectedHistory:
    """The expected rows.

    Attributes:
        changes: All rows of the fold, in log order.
        intervals: Changes that lasted, by begin.
        topics: Intervals of topics at broker names, by begin.
        sessions: Rows of ``broker_sessions``, by begin.
        minutes: Rows of ``heartbeat_minutes`` with all ``gaps`` instead of quantiles.
        events: All records.
    """

    changes: Sequence[RouteChange]
    intervals: Sequence[Interval]
    topics: Sequence[Interval]
    sessions: Sequence[Session]
    minutes: Sequence[dict[str, Any]]
    events: Sequence[Event]

    def topics_at(self, clock: str) -> list[RouteChange]:
        """Return the newest change of each topic at each broker name at an instant, from the changes of the fold."""
        newest: dict[tuple[str, str], RouteChange] = {}
        for change in self.of_kind(ChangeKind.QUEUE_DATA):
            if change.at_ms <= instant_ms(clock):
                newest[change.topic or "", change.broker_name or ""] = change
        return sorted(newest.values(), key=lambda c: (c.topic or "", c.broker_name or ""))

    def up_at(self, clock: str) -> list[Session]:
        at = instant(instant_ms(clock))
        found = (s for s in self.sessions if s["up_at"] <= at and (end_of(s) is None or at < end_of(s)))
        return sorted(found, key=_name)

    def of_kind(self, kind: ChangeKind) -> Iterator[RouteChange]:
        return (change for change in self.changes if change.kind == kind)

    def ended_sessions(self) -> list[Session]:
        """Return the sessions that ended in the period, by end."""
        ended_in_period = [s for s in self.sessions if s["down_at"] and SINCE_MS <= ms(s["down_at"]) < UNTIL_MS]
        return sorted(ended_in_period, key=lambda s: (s["down_at"], *_name(s)))

    def next_up(self, session: Session) -> datetime | None:
        """Return when the next session of the broker began."""
        later: list[datetime] = [
            s["up_at"] for s in self.sessions if broker(s) == broker(session) and s["up_at"] > session["up_at"]
        ]
        return min(later, default=None)


def expected_history(logs: Sequence[Log]) -> ExpectedHistory:
    changes = [c for log in logs for c in log.output.changes]
    found = [Interval(change, change.at_ms, end_ms) for change, end_ms in intervals(changes)]
    topics = [i for i in found if i.change.kind == ChangeKind.QUEUE_DATA]
    all_minutes = [row for log in logs for row in minutes(log, 86_400_000)]
    of_logs = [_with_heartbeats(session, all_minutes) for log in logs for session in sessions(log)]
    return ExpectedHistory(
        changes=changes,
        intervals=sorted(found, key=lambda i: (i.begin_ms, i.change.partition, i.change.offset, i.change.seq)),
        topics=sorted(topics, key=lambda i: (i.begin_ms, i.change.topic, i.change.broker_name)),
        sessions=sorted(of_logs, key=lambda s: s["up_at"]),
        minutes=all_minutes,
        events=[event for log in logs for event in _events(log)],
    )


def _with_heartbeats(session: Session, all_minutes: Sequence[Session]) -> Session:
    """Add the heartbeats of a session; a gap that began before the session does not count."""
    up_at, down_at = session["up_at"], session["down_at"]
    own = [
        m
        for m in all_minutes
        if broker(m) == broker(session) and m["last_at"] >= up_at and (down_at is None or m["last_at"] <= down_at)
    ]
    gaps = [
        max(m["gaps"])
        for m in own
        if m["gaps"] and max(m["gaps"]) <= max(ms(m["last_at"]) - ms(m["first_at"]), ms(m["first_at"]) - ms(up_at))
    ]
    return session | {
        "heartbeats": sum(m["heartbeats"] for m in own),
        "longest_gap_ms": max(gaps, default=None),
        "last_heard_at": max((m["last_at"] for m in own), default=None),
    }


def _events(log: Log) -> Iterator[Event]:
    for record, _ in zip(log.records, clocks(log), strict=True):
        try:
            fields = orjson.loads(record.value)
        except orjson.JSONDecodeError:
            fields = {}
        yield Event(record.partition, record.offset, instant(record.at_ms), fields, record.value.decode())


def broker(session: Session) -> tuple[str, str, str]:
    return session["cluster"], session["broker_name"], session["broker_addr"]


def _name(session: Session) -> tuple[Any, ...]:
    return session["cluster"], session["broker_name"], session["broker_id"]


def end_of(session: Session) -> Any:
    return session["down_at"]


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def in_period(at_ms: int) -> bool:
    return SINCE_MS <= at_ms < UNTIL_MS


def overlaps_period(begin_ms: int, end_ms: int | None) -> bool:
    return begin_ms < UNTIL_MS and (end_ms is None or end_ms > SINCE_MS)


def at_or_none(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else instant(at_ms)
