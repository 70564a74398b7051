"""Figures of lives by chance against computing them hour by hour, the slow way."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.history.report.by_piece import by_piece
from namesrv_stream.history.sessions import Session
from tests.support.examples import examples
from tests.support.report_figures import HOUR_MS, MONDAY_MS, a_session, figures_of

_BEGIN, _END = -10, 40  # hours about the time asked about, which has 30
_CAUSES = ("expired", "disconnected", "unregistered")
_BROKERS = (("c0", "a", 1), ("c0", "a", 2), ("c0", "b", 0), ("c1", "x", 0))


@st.composite
def lives(draw: st.DrawFn) -> list[Session]:
    """Of each broker sessions one after the other, each at any of three addresses, the last of which may last.

    One at an address that is not seen again may end later than the next one begins.
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


def brokers_of(sessions: Sequence[Session]) -> list[list[Session]]:
    """The sessions of each broker that was up in the time, or went in it: who had gone before is not counted."""
    of_broker = [[s for s in sessions if (s.cluster, s.broker_name, s.broker_id) == broker] for broker in _BROKERS]
    return [own for own in of_broker if any(s.down_ms is None or s.down_ms > MONDAY_MS for s in own)]


def is_up(sessions: Sequence[Session], at_ms: int) -> bool:
    return any(s.up_ms <= at_ms and (s.down_ms is None or at_ms < s.down_ms) for s in sessions)


def is_awaited(sessions: Sequence[Session], at_ms: int) -> bool:
    """Whether it had come, and will come back or has gone without a goodbye."""
    if not any(s.up_ms <= at_ms for s in sessions):
        return False
    if any(s.down_ms is None for s in sessions):
        return True
    last = max(sessions, key=lambda s: s.down_ms or 0)
    return last.down_cause != "unregistered" or at_ms < (last.down_ms or 0)


def absences_of(sessions: Sequence[Session], until_ms: int) -> list[tuple[int, int | None]]:
    """Hours at which it was up no more, each with that at which it was again."""
    hours = range(MONDAY_MS + _BEGIN * HOUR_MS, until_ms + 1, HOUR_MS)
    begins = [at_ms for at_ms in hours if is_up(sessions, at_ms - HOUR_MS) and not is_up(sessions, at_ms)]
    return [(begin, next((h for h in hours if h > begin and is_up(sessions, h)), None)) for begin in begins]


@settings(max_examples=examples(150), deadline=None)
@given(lives())
def test_figures_are_what_counting_hours_says(sessions: list[Session]) -> None:
    since_ms, until_ms = MONDAY_MS, MONDAY_MS + 30 * HOUR_MS
    counted = brokers_of(sessions)
    if not counted:
        return
    hours = range(since_ms, until_ms, HOUR_MS)
    found = figures_of(sessions, since_ms, until_ms)
    known = sum(is_awaited(own, at_ms) for own in counted for at_ms in hours)
    up = sum(is_up(own, at_ms) for own in counted for at_ms in hours)
    assert found.total.brokers == len(counted)
    assert (found.total.known_ms, found.total.up_ms) == (known * HOUR_MS, up * HOUR_MS)
    assert sum(a.length_ms for a in found.absences) == (known - up) * HOUR_MS
    assert sum(e.down_ms for e in found.endings) == (known - up) * HOUR_MS
    absences = [(own, *absence) for own in counted for absence in absences_of(own, until_ms)]
    repairs = [end - begin for _, begin, end in absences if end is not None and since_ms < end]
    assert sorted(found.total.repairs_ms) == sorted(repairs)
    assert found.total.interruptions == sum(
        since_ms < begin and any(is_awaited(own, at_ms) for at_ms in range(begin, until_ms + 1, HOUR_MS))
        for own, begin, _ in absences
    )
    ended = [s for own in counted for s in own if s.down_ms is not None and since_ms < s.down_ms]
    assert sum(e.count for e in found.endings) == sum(f.downs for f in found.flapping.values()) == len(ended)


@settings(max_examples=examples(150), deadline=None)
@given(lives())
def test_hours_are_what_looking_at_each_says(sessions: list[Session]) -> None:
    since_ms, until_ms = MONDAY_MS, MONDAY_MS + 30 * HOUR_MS
    counted = brokers_of(sessions)
    if not counted:
        return
    pieces = by_piece(figures_of(sessions, since_ms, until_ms))
    assert len(pieces) == 30
    for piece in pieces:
        known = [own for own in counted if is_awaited(own, piece.begin_ms)]
        down = sum(not is_up(own, piece.begin_ms) for own in known)
        assert (piece.known_ms, sum(piece.down_ms.values())) == (len(known) * HOUR_MS, down * HOUR_MS)
        for cluster, share in piece.shares.items():
            own = [sessions for sessions in known if sessions[0].cluster == cluster]
            up = sum(is_up(s, piece.begin_ms) for s in own)
            assert share is None if not own else share == pytest.approx(up / len(own))


@settings(max_examples=examples(150), deadline=None)
@given(lives())
def test_a_cluster_is_dark_in_the_hours_in_which_none_is_up(sessions: list[Session]) -> None:
    since_ms, until_ms = MONDAY_MS, MONDAY_MS + 30 * HOUR_MS
    in_time = [s for s in sessions if s.down_ms is None or s.down_ms > since_ms]
    if not in_time:
        return
    for cluster in figures_of(sessions, since_ms, until_ms).clusters:
        own = [s for s in sessions if s.cluster == cluster.cluster]
        counted = brokers_of(own)
        dark = [
            at_ms
            for at_ms in range(since_ms, until_ms, HOUR_MS)
            if not is_up(own, at_ms)
            and any(s.up_ms <= at_ms for s in own)
            and any(is_awaited(of, later) for of in counted for later in range(at_ms, until_ms, HOUR_MS))
        ]
        assert cluster.dark_ms == len(dark) * HOUR_MS
