"""Every definition in docs/report.md: figures of sessions against values computed by hand."""

import pytest

from namesrv_stream.history.report.page import verdict
from namesrv_stream.table_errors import NotInHistory
from tests.support.report_figures import DAY_MS, HOUR_MS, MONDAY_MS, a_session, figures_of

SINCE, UNTIL = MONDAY_MS, MONDAY_MS + 10 * DAY_MS
MINUTE_MS = 60_000


def at(hours: float) -> int:
    """Return an instant some hours after the start of the period."""
    return MONDAY_MS + round(hours * HOUR_MS)


def test_availability_is_up_time_divided_by_time_since_the_first_session() -> None:
    # The broker starts after 40 of 240 h, and is down from 100 to 110 and from 150 to 160: up for 180 of 200 h.
    sessions = [a_session(at(40), at(100)), a_session(at(110), at(150)), a_session(at(160))]
    (broker,) = figures_of(sessions, SINCE, UNTIL).rows["brokers"]
    assert (broker["known_ms"], broker["down_ms"], broker["availability"]) == (200 * HOUR_MS, 20 * HOUR_MS, 0.9)


def test_events_before_the_period_do_not_count() -> None:
    sessions = [a_session(at(-100), at(-2)), a_session(at(6))]
    (broker,) = figures_of(sessions, SINCE, UNTIL).rows["brokers"]
    assert (broker["known_ms"], broker["down_ms"]) == (240 * HOUR_MS, 6 * HOUR_MS)


def test_mttr_is_the_mean_of_ended_absences() -> None:
    sessions = [a_session(at(0), at(10)), a_session(at(12), at(20)), a_session(at(26), at(200))]
    found = figures_of(sessions, SINCE, UNTIL)
    assert found.rows["brokers"][0]["mttr_ms"] == 4 * HOUR_MS  # 2 h and 6 h; the third absence continues
    assert found.total["mttr_ms"] == 4 * HOUR_MS


def test_mtbf_is_up_time_divided_by_interruptions() -> None:
    sessions = [a_session(at(0), at(10)), a_session(at(12), at(20), "unregistered"), a_session(at(26), at(200))]
    found = figures_of(sessions, SINCE, UNTIL)
    assert found.rows["brokers"][0]["interruptions"] == 3
    assert found.rows["brokers"][0]["mtbf_ms"] == pytest.approx((10 + 8 + 174) / 3 * HOUR_MS)


def test_final_unregistration_is_neither_interruption_nor_outage() -> None:
    found = figures_of([a_session(at(0), at(10), "unregistered")], SINCE, UNTIL)
    assert (found.total["interruptions"], found.total["mtbf_ms"], found.total["availability"]) == (0, None, 1.0)
    assert found.rows["outages"] == []
    assert [(e["cause"], e["count"], e["down_ms"]) for e in found.rows["session_ends"]] == [("unregistered", 1, 0)]


def test_brokers_lost_without_unregistration_are_counted_separately() -> None:
    sessions = [
        a_session(at(0), at(10), "unregistered"),
        a_session(at(11), at(20), "expired"),
        a_session(at(21), at(30), "disconnected"),
        a_session(at(31)),
    ]
    found = figures_of(sessions, SINCE, UNTIL)
    assert (found.total["interruptions"], found.total["failures"]) == (3, 2)


def test_a_cluster_is_the_sum_of_its_brokers() -> None:
    sessions = [
        a_session(at(0)),
        a_session(at(120), at(180), addr="10.0.0.2:10911", broker_id=1),
        a_session(at(0), name="x", cluster="c1"),
    ]
    c0, c1 = figures_of(sessions, SINCE, UNTIL).rows["clusters"]
    assert (c0["brokers"], c0["up"], c0["known_ms"], c0["down_ms"]) == (2, 1, 360 * HOUR_MS, 60 * HOUR_MS)
    assert (c1["cluster"], c1["availability"]) == ("c1", 1.0)


def test_cluster_is_down_while_none_of_its_brokers_is_up() -> None:
    sessions = [
        a_session(at(0), at(10)),
        a_session(at(14)),
        a_session(at(0), at(12), addr="10.0.0.2:10911", broker_id=1),
        a_session(at(13), addr="10.0.0.2:10911", broker_id=1),
        a_session(at(0), at(20), name="lonely", cluster="c1"),
        a_session(at(25), name="lonely", cluster="c1"),
    ]
    found = figures_of(sessions, SINCE, UNTIL)
    assert [(c["cluster"], c["dark_ms"]) for c in found.rows["clusters"]] == [("c0", HOUR_MS), ("c1", 5 * HOUR_MS)]
    assert found.total["dark_ms"] == 6 * HOUR_MS


def test_cluster_that_unregistered_is_not_down() -> None:
    sessions = [
        a_session(at(0), at(10), "unregistered"),
        a_session(at(0), at(11), "unregistered", addr="b:1", broker_id=1),
    ]
    (cluster,) = figures_of(sessions, SINCE, UNTIL).rows["clusters"]
    assert cluster["dark_ms"] == 0


def test_every_cause_has_sessions_down_time_and_returns() -> None:
    sessions = [
        a_session(at(0), at(10), "expired", last_heard_ms=at(9)),
        a_session(at(12), at(20), "expired", last_heard_ms=at(17)),
        a_session(at(26), at(235), "disconnected", last_heard_ms=at(235)),
    ]
    expired, disconnected = figures_of(sessions, SINCE, UNTIL).rows["session_ends"]
    assert [expired[key] for key in ("cause", "count", "brokers", "down_ms")] == ["expired", 2, 1, 8 * HOUR_MS]
    assert [expired[key] for key in ("returns", "return_mean_ms", "return_p95_ms")] == [2, 4 * HOUR_MS, 6 * HOUR_MS]
    assert (expired["silence_p50_ms"], expired["silence_max_ms"]) == (HOUR_MS, 3 * HOUR_MS)
    assert (disconnected["down_ms"], disconnected["returns"]) == (5 * HOUR_MS, 0)
    assert expired["down_share"] == pytest.approx(8 / 13)


def test_silences_outside_the_counted_time_are_not_estimated() -> None:
    sessions = [a_session(at(0), at(10), last_heard_ms=at(1))]
    found = figures_of(sessions, SINCE, UNTIL, counted_to_ms={0: at(9)})
    assert found.rows["session_ends"][0]["silence_max_ms"] is None
    assert [row["count"] for row in found.rows["delays"]] == [0, 0, 0]


def test_the_longest_outage_is_first() -> None:
    sessions = [a_session(at(0), at(10)), a_session(at(12), at(20)), a_session(at(26))]
    found = figures_of(sessions, SINCE, UNTIL)
    assert [(o["scope"], o["duration_ms"]) for o in found.rows["outages"]] == [
        ("broker", 6 * HOUR_MS),
        ("broker", 2 * HOUR_MS),
    ]


def test_a_day_has_its_own_availability() -> None:
    sessions = [a_session(at(0), at(22)), a_session(at(30))]
    segments = figures_of(sessions, SINCE, UNTIL).rows["segments"]
    assert [row["down_ms"] / HOUR_MS for row in segments] == [2, 6, *[0] * 8]
    assert [row["availability"] for row in segments[:3]] == pytest.approx([22 / 24, 18 / 24, 1])
    assert [row["ended_by_cause"] for row in segments[:2]] == [{"expired": 1}, {}]


def test_summary_names_the_main_findings() -> None:
    sessions = [
        a_session(at(0), at(10)),
        a_session(at(34)),
        a_session(at(0), addr="10.0.0.2:10911", name="b"),
        a_session(at(0), name="x", cluster="c1"),
    ]
    lines = verdict(figures_of(sessions, SINCE, UNTIL))
    assert lines[0].startswith("The objective of 99.9% was missed: brokers were up for 96.666% of their time")
    assert lines[1] == "1 of 2 clusters missed it, worst of all c0 with 95.000%."
    assert lines[2] == "100% of the down time had the cause “expired” (once)."


def test_without_brokers_there_is_no_report() -> None:
    with pytest.raises(NotInHistory):
        figures_of([a_session(at(-10), at(-5))], SINCE, UNTIL)
