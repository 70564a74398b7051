"""Figures of random sessions against a slow computation hour by hour."""

import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.history.database import Database, Row
from tests.support.examples import examples
from tests.support.report_figures import FAR_MS, HOUR_MS, MONDAY_MS, a_session, period_of, register_heartbeats

_BEGIN, _END = -10, 40  # hours around the period in question, which has 30 hours
SINCE, UNTIL = MONDAY_MS, MONDAY_MS + 30 * HOUR_MS
_CAUSES = ("expired", "disconnected", "unregistered")
_BROKERS = (("c0", "a", 1), ("c0", "a", 2), ("c0", "b", 0), ("c1", "x", 0))


@st.composite
def lives(draw: st.DrawFn) -> list[Row]:
    """Random sessions of each broker, one after the other, each at one of three addresses; the last may be open.

    A session at an address that is not used again may end later than the next session begins.
    """
    found = []
    for cluster, name, broker_id in _BROKERS:
        times = sorted(draw(st.sets(st.integers(_BEGIN, _END - 11), max_size=7)))
        spans = list(itertools.zip_longest(times[::2], times[1::2]))
        addrs = [f"{broker_id}.{draw(st.integers(0, 2))}:1" for _ in spans]
        for number, (up, end) in enumerate(spans):
            down = end
            if end is not None and addrs[number] not in addrs[number + 1 :]:
                down = draw(st.integers(end, _END - 11))
            cause = draw(st.sampled_from(_CAUSES))
            found.append(
                a_session(
                    MONDAY_MS + up * HOUR_MS,
                    None if down is None else MONDAY_MS + down * HOUR_MS,
                    cause,
                    name=name,
                    addr=addrs[number],
                    cluster=cluster,
                    broker_id=broker_id,
                )
            )
    return found


def brokers_of(sessions: Sequence[Row]) -> list[list[Row]]:
    """Return the sessions of each broker that was up or ended in the period; brokers down before it do not count."""
    of_broker = [
        [s for s in sessions if (s["cluster"], s["broker_name"], s["broker_id"]) == broker] for broker in _BROKERS
    ]
    return [own for own in of_broker if any(s["down_ms"] is None or s["down_ms"] > MONDAY_MS for s in own)]


def is_up(sessions: Sequence[Row], at_ms: int) -> bool:
    return any(s["up_ms"] <= at_ms and (s["down_ms"] is None or at_ms < s["down_ms"]) for s in sessions)


def is_awaited(sessions: Sequence[Row], at_ms: int) -> bool:
    """Whether the broker had started, and will return or has ended without unregistration."""
    if not any(s["up_ms"] <= at_ms for s in sessions):
        return False
    if any(s["down_ms"] is None for s in sessions):
        return True
    last = max(sessions, key=lambda s: s["down_ms"] or 0)
    return bool(last["down_cause"] != "unregistered" or at_ms < (last["down_ms"] or 0))


def absences_of(sessions: Sequence[Row], until_ms: int) -> list[tuple[int, int | None]]:
    """Return pairs of hours: when the broker was no longer up, and when it was up again."""
    hours = range(MONDAY_MS + _BEGIN * HOUR_MS, until_ms + 1, HOUR_MS)
    begins = [at_ms for at_ms in hours if is_up(sessions, at_ms - HOUR_MS) and not is_up(sessions, at_ms)]
    return [(begin, next((h for h in hours if h > begin and is_up(sessions, h)), None)) for begin in begins]


def with_period(sessions: Sequence[Row]) -> tuple[list[list[Row]], Database]:
    """Return the brokers that count, and a database."""
    database = period_of(sessions, SINCE, UNTIL)
    database.register("counted", pa.table({"partition": pa.array([0], pa.int32()), "at_ms": [FAR_MS]}))
    register_heartbeats(database)
    return brokers_of(sessions), database


@settings(max_examples=examples(40), deadline=None)
@given(lives())
def test_figures_equal_those_counted_hour_by_hour(sessions: list[Row]) -> None:
    counted, database = with_period(sessions)
    hours = range(SINCE, UNTIL, HOUR_MS)
    known = sum(is_awaited(own, at_ms) for own in counted for at_ms in hours)
    up = sum(is_up(own, at_ms) for own in counted for at_ms in hours)
    *_, total = database.rows("clusters", objective=0.999)
    if not counted:
        assert not database.rows("brokers", objective=0.999)
        return
    assert total["brokers"] == len(counted)
    assert (total["known_ms"], total["down_ms"]) == (known * HOUR_MS, (known - up) * HOUR_MS)
    ends = database.rows("session_ends")
    assert sum(e["down_ms"] for e in ends) == (known - up) * HOUR_MS
    absences = [(own, *absence) for own in counted for absence in absences_of(own, UNTIL)]
    repairs = [end - begin for _, begin, end in absences if end is not None and end > SINCE]
    assert (total["repairs"], total["repair_ms"]) == (len(repairs), sum(repairs))
    assert total["interruptions"] == sum(
        begin > SINCE and any(is_awaited(own, at_ms) for at_ms in range(begin, UNTIL + 1, HOUR_MS))
        for own, begin, _ in absences
    )
    ended = [s for own in counted for s in own if s["down_ms"] is not None and s["down_ms"] > SINCE]
    assert sum(e["count"] for e in ends) == sum(f["downs"] for f in database.rows("flaps")) == len(ended)


@settings(max_examples=examples(40), deadline=None)
@given(lives())
def test_hours_equal_those_computed_one_by_one(sessions: list[Row]) -> None:
    counted, database = with_period(sessions)
    if not counted:
        return
    segments = database.rows("segments", objective=None, heard_from_ms=None, heard_to_ms=None)
    assert len(segments) == 30
    for segment in segments:
        known = [own for own in counted if is_awaited(own, segment["begin_ms"])]
        down = sum(not is_up(own, segment["begin_ms"]) for own in known)
        assert (segment["known_ms"], segment["down_ms"]) == (len(known) * HOUR_MS, down * HOUR_MS)
        assert sum(segment["down_by_cause_ms"].values()) == down * HOUR_MS
        for cluster, share in segment["clusters"].items():
            own = [sessions for sessions in known if sessions[0]["cluster"] == cluster]
            up = sum(is_up(s, segment["begin_ms"]) for s in own)
            assert share is None if not own else share == pytest.approx(up / len(own))


@settings(max_examples=examples(40), deadline=None)
@given(lives())
def test_cluster_is_down_in_the_hours_in_which_no_broker_is_up(sessions: list[Row]) -> None:
    counted, database = with_period(sessions)
    for row in database.rows("clusters", objective=0.999)[:-1] if counted else ():
        own = [s for s in sessions if s["cluster"] == row["cluster"]]
        dark = [
            at_ms
            for at_ms in range(SINCE, UNTIL, HOUR_MS)
            if not is_up(own, at_ms)
            and any(s["up_ms"] <= at_ms for s in own)
            and any(is_awaited(of, later) for of in brokers_of(own) for later in range(at_ms, UNTIL, HOUR_MS))
        ]
        assert row["dark_ms"] == len(dark) * HOUR_MS
