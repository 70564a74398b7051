"""The report notes incomplete data."""

from collections.abc import Sequence

from namesrv_stream.history.answer import Extent, Window
from namesrv_stream.history.database import Row
from namesrv_stream.history.report.report_tables import answer_of, unobserved
from tests.support.report_figures import DAY_MS, HOUR_MS, MONDAY_MS, Heartbeats, a_session, figures_of

MINUTE_MS = 60_000
SINCE, UNTIL = MONDAY_MS, MONDAY_MS + 2 * DAY_MS


def heard_in(
    minutes: Sequence[int], begin_ms: int = SINCE, end_ms: int = UNTIL, usual_ms: float = 30_000
) -> Heartbeats:
    """Return known heartbeats: some broker was heard in these minutes after the start."""
    of = {"cluster": "c0", "broker_name": "broker-a", "broker_addr": "10.0.0.1:10911", "server_id": "ns1"}
    row = of | {"number": 1, "heartbeats": 1, "missed": 0, "silences": 0, "usual_ms": usual_ms}
    window = Window(begin_ms, end_ms) if end_ms > begin_ms else None
    return Heartbeats([row], [SINCE + n * MINUTE_MS for n in minutes], window)


ALL = range(2 * 24 * 60)


def unknown(sessions: Sequence[Row], heard: Heartbeats | None = None, extent: Extent | None = None) -> Sequence[Row]:
    return unobserved(figures_of(sessions, SINCE, UNTIL, heard=heard, extent=extent))


def what(sessions: Sequence[Row], heard: Heartbeats | None = None) -> list[str]:
    return [row["what"] for row in unknown(sessions, heard)]


def blind_spans(heard: Heartbeats, sessions: Sequence[Row]) -> list[tuple[int, int]]:
    return [(row["begin_ms"], row["end_ms"]) for row in unknown(sessions, heard) if row["what"] == "blind"]


def test_complete_data_gives_no_note() -> None:
    assert what([a_session(SINCE)], heard_in(ALL)) == []


def test_late_start_of_the_history_is_noted() -> None:
    (row,) = unknown([a_session(SINCE + HOUR_MS)], heard_in(ALL), Extent(SINCE + 7, UNTIL, UNTIL))
    assert (row["what"], row["begin_ms"], row["end_ms"]) == ("before the history", SINCE, SINCE + 7)


def test_lost_changes_are_noted() -> None:
    extent = Extent(0, SINCE + HOUR_MS, UNTIL, SINCE + 3 * HOUR_MS)
    (row,) = unknown([a_session(SINCE)], heard_in(ALL), extent)
    assert (row["what"], row["duration_ms"]) == ("lost changes", 2 * HOUR_MS)


def test_rebuilt_sessions_are_noted_once_per_instant() -> None:
    at_ms = SINCE + HOUR_MS
    sessions = [
        a_session(SINCE, at_ms, "state_rebuilt"),
        a_session(at_ms, addr="b:1", up_cause="state_rebuilt"),
        a_session(at_ms, addr="c:1", up_cause="state_rebuilt"),
    ]
    (row,) = unknown(sessions, heard_in(ALL))
    assert (row["what"], row["begin_ms"]) == ("state rebuilt", at_ms)
    assert row["meaning"].startswith("3 sessions begin or end here")


def test_brokers_down_before_the_period_are_counted() -> None:
    sessions = [a_session(SINCE), a_session(SINCE - HOUR_MS, SINCE - 1, name="b")]
    (row,) = unknown(sessions, heard_in(ALL))
    assert row["meaning"].startswith("1 broker")


def test_missing_heartbeats_are_noted() -> None:
    assert what([a_session(SINCE)]) == ["heartbeats"]
    late = heard_in(range(600, 1200), SINCE + 600 * MINUTE_MS, SINCE + 1200 * MINUTE_MS)
    assert what([a_session(SINCE)], late) == ["heartbeats", "heartbeats"]


def test_early_end_of_the_heartbeats_is_noted() -> None:
    (row,) = unknown([a_session(SINCE)], heard_in(ALL, end_ms=UNTIL - 1_000))
    assert (row["what"], row["begin_ms"], row["end_ms"]) == ("heartbeats", UNTIL - 1_000, UNTIL)


def test_no_heartbeats_are_missing_before_the_first_broker() -> None:
    late = heard_in(range(600, 2 * 24 * 60), SINCE + 600 * MINUTE_MS)
    assert what([a_session(SINCE + 600 * MINUTE_MS)], late) == []
    assert what([a_session(SINCE)], late) == ["heartbeats"]


def test_heartbeat_figures_state_their_period() -> None:
    found = figures_of([a_session(SINCE)], SINCE, UNTIL, heard=heard_in(range(30), end_ms=SINCE + 30 * MINUTE_MS))
    answer = answer_of(found)
    (summary,) = answer.sections[0].rows
    assert (summary["heartbeats_from_ms"], summary["heartbeats_to_ms"]) == (SINCE, SINCE + 30 * MINUTE_MS)
    assert answer.counted_to_ms == SINCE + 30 * MINUTE_MS
    assert [row["missed"] for row in answer.sections[9].rows[1:3]] == [None, None]
    unheard = figures_of([a_session(SINCE)], SINCE, UNTIL, heard=heard_in([], UNTIL, UNTIL))
    (summary,) = answer_of(unheard).sections[0].rows
    assert (summary["heartbeats"], summary["missed"]) == (None, None)


def test_a_time_without_heartbeats_of_live_brokers_is_blind() -> None:
    heard = heard_in([n for n in ALL if not 100 <= n < 125])
    assert blind_spans(heard, [a_session(SINCE)]) == [(SINCE + 100 * MINUTE_MS, SINCE + 125 * MINUTE_MS)]


def test_period_without_live_brokers_is_not_blind() -> None:
    heard = heard_in([n for n in ALL if not 100 <= n < 125])
    sessions = [a_session(SINCE, SINCE + 102 * MINUTE_MS), a_session(SINCE + 125 * MINUTE_MS)]
    assert blind_spans(heard, sessions) == []


def test_a_pause_of_minutes_within_the_timeout_is_not_blind() -> None:
    heard = heard_in([n for n in ALL if not 100 <= n < 104])
    assert blind_spans(heard, [a_session(SINCE, timeout_ms=600_000)]) == []
    assert blind_spans(heard_in(range(0, 2880, 5), usual_ms=300_000), [a_session(SINCE)]) == []
