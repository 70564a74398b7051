"""Sessions, and what is reckoned from them: flapping, outages, availability."""

from pathlib import Path

import pytest

from namesrv_stream.history.database import Row
from namesrv_stream.history.extent import Window
from namesrv_stream.history.past import Past
from namesrv_stream.history.sessions import sessions_between
from tests.support.builders import BEGIN_MS, Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.report_figures import ask

MINUTE_MS = 60_000
END_MS = BEGIN_MS + 180 * MINUTE_MS
BROKER = a_registration()


def minutes_of(ms: int | None) -> int | None:
    """Since the morning began."""
    return None if ms is None else (ms - BEGIN_MS) // MINUTE_MS


def sessions_of(tables: HistoryOfLogs, since_ms: int, until_ms: int, **only: str) -> list[Row]:
    found: list[Row] = sessions_between(Past(tables.settings), Window(since_ms, until_ms), **only).to_pylist()
    return found


def values(row: Row, *keys: str) -> list[object]:
    return [row[key] for key in keys]


@pytest.fixture(scope="module")
def sessions(morning: HistoryOfLogs) -> list[Row]:
    return sessions_of(morning, BEGIN_MS, END_MS)


def test_a_session_has_its_begin_its_end_and_its_heartbeats(sessions: list[Row]) -> None:
    first, second, third = (s for s in sessions if s["broker_name"] == "broker-b")
    assert (minutes_of(first["up_ms"]), minutes_of(first["down_ms"])) == (0, 61)
    assert values(first, "up_cause", "down_cause", "heartbeats", "longest_gap_ms") == [
        *("registered", "expired", 121, 30_000)
    ]
    assert "not heard for 121000 ms" in first["down_detail"]
    assert [second["down_cause"], *values(third, "down_ms", "down_cause")] == ["unregistered", None, None]


def test_sessions_go_on_where_the_table_ends(tmp_path: Path) -> None:
    log = Log()
    log.register(BROKER)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    log.tick(1_000)
    log.unregister(BROKER)
    log.tick(1_000)
    log.register(BROKER, connection=2)
    tables.commit()
    found = sessions_of(tables, BEGIN_MS, log.now_ms)
    assert [values(s, "up_ms", "down_ms", "down_cause") for s in found] == [
        [BEGIN_MS, BEGIN_MS + 1_000, "unregistered"],
        [BEGIN_MS + 2_000, None, None],
    ]


def test_the_table_and_what_is_beyond_it_say_what_the_whole_table_says(tmp_path: Path, morning: HistoryOfLogs) -> None:
    whole = HistoryOfLogs(tmp_path, *morning.logs)
    whole.write_all()

    def ends(tables: HistoryOfLogs) -> list[list[object]]:
        found = sessions_of(tables, BEGIN_MS, END_MS)
        return [values(s, "broker_addr", "up_ms", "down_ms", "up_cause", "down_cause") for s in found]

    assert ends(morning) == ends(whole)


def test_what_comes_later_is_not_known_yet(morning: HistoryOfLogs) -> None:
    at_ms = BEGIN_MS + 30 * MINUTE_MS
    found = sessions_of(morning, BEGIN_MS, at_ms, broker_name="broker-b")
    assert [values(s, "down_ms", "down_cause") for s in found] == [[None, None]]


def test_sessions_that_ended_before_are_left_out_but_for_the_last(morning: HistoryOfLogs) -> None:
    since_ms = BEGIN_MS + 65 * MINUTE_MS
    found = sessions_of(morning, since_ms, since_ms + MINUTE_MS, broker_name="broker-b")
    assert [s["down_cause"] for s in found] == ["expired"]


def test_a_crash_loop_flaps_and_a_restart_does_not(sessions: list[Row]) -> None:
    worst, second, *_ = ask("flaps", sessions, BEGIN_MS, BEGIN_MS + 140 * MINUTE_MS)
    assert values(worst, "broker_name", "downs", "returns", "median_down_ms") == ["loner", 5, 5, 2 * MINUTE_MS]
    assert worst["causes"] == {"disconnected": 5}
    assert worst["flapping"]
    assert 4 < worst["peak_score"] < 5
    assert not second["flapping"]


@pytest.mark.parametrize(
    ("every_minutes", "times", "has_flapped"), [(15, 3, True), (20, 3, False), (44, 20, True), (50, 200, False)]
)
def test_who_goes_three_times_in_half_an_hour_or_time_and_again_flaps(
    sessions: list[Row], every_minutes: int, times: int, has_flapped: bool
) -> None:
    first = next(s for s in sessions if s["broker_name"] == "loner")
    step_ms = every_minutes * MINUTE_MS
    begins = [BEGIN_MS + n * step_ms for n in range(times)]
    looping = [first | {"up_ms": up_ms, "down_ms": up_ms + step_ms - 1_000} for up_ms in begins]
    (found,) = ask("flaps", looping, BEGIN_MS, BEGIN_MS + (times + 24) * step_ms)
    assert found["has_flapped"] == has_flapped
    assert not found["flapping"]  # not any more


def test_a_score_fades_by_half_each_hour(sessions: list[Row]) -> None:
    loner = [s for s in sessions if s["broker_name"] == "loner"]
    (at_first,) = ask("flaps", loner, BEGIN_MS, BEGIN_MS + 140 * MINUTE_MS)
    (later,) = ask("flaps", loner, BEGIN_MS, BEGIN_MS + 200 * MINUTE_MS)
    assert later["score"] == pytest.approx(at_first["score"] / 2, abs=0.001)
    assert later["peak_score"] == at_first["peak_score"]


def test_outages_are_of_processes_names_and_clusters(sessions: list[Row]) -> None:
    found = ask("outages", sessions, BEGIN_MS, END_MS)
    (of_cluster,) = (o for o in found if o["scope"] == "cluster")
    assert values(of_cluster, "name", "brokers", "cause", "duration_ms") == ["c0", 3, "unregistered", 242_500]
    assert [o["name"] for o in found if o["scope"] == "broker_name"] == ["broker-a"]
    assert [minutes_of(o["begin_ms"]) for o in found if o["name"] == "broker-b"] == [61, 150]
    assert {o["cause"] for o in found if o["name"] == "loner"} == {"disconnected"}


def test_an_outage_that_goes_on_has_no_end(sessions: list[Row]) -> None:
    until_ms = BEGIN_MS + 65 * MINUTE_MS
    found = ask("outages", [s for s in sessions if s["up_ms"] < until_ms], BEGIN_MS, until_ms)
    assert [values(o, "name", "end_ms") for o in found] == [["broker-b", None]]


def test_a_broker_that_had_gone_before_is_counted_and_not_listed(morning: HistoryOfLogs) -> None:
    since_ms, until_ms = BEGIN_MS + 63 * MINUTE_MS, BEGIN_MS + 65 * MINUTE_MS
    found = sessions_of(morning, since_ms, until_ms)
    assert ask("outages", found, since_ms, until_ms) == []
    assert ask("gone_before", found, since_ms, until_ms) == [{"brokers": 1}]


def test_availability_counts_from_when_a_broker_first_came(sessions: list[Row]) -> None:
    of = {row["broker_name"]: row for row in ask("brokers", sessions, BEGIN_MS - MINUTE_MS, END_MS)}
    loner = of["loner"]
    assert values(loner, "known_ms", "down_ms") == [END_MS - (BEGIN_MS + 4_000), 10 * MINUTE_MS]
    assert values(loner, "downs", "mttr_ms", "is_up") == [5, 2 * MINUTE_MS, True]
    share = 1 - (509_000 + 246_500) / (END_MS - BEGIN_MS - 3_000)
    assert of["broker-b"]["availability"] == pytest.approx(share)


def test_who_said_goodbye_and_stayed_away_is_not_missed(tmp_path: Path) -> None:
    log = Log()
    log.register(BROKER)
    log.tick(10_000)
    log.unregister(BROKER)
    log.pass_time(30_000)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    found = sessions_of(tables, BEGIN_MS, log.now_ms)
    (broker,) = ask("brokers", found, BEGIN_MS, log.now_ms)
    assert values(broker, "availability", "downs", "is_up") == [1.0, 1, False]
    (outage,) = ask("outages", found, BEGIN_MS, log.now_ms)
    assert values(outage, "end_ms", "for_good") == [None, True]


def test_brokers_of_one_name_in_two_clusters_are_two(tmp_path: Path) -> None:
    log = Log()
    other = a_registration("10.1.0.1:10911", cluster="c9")
    log.register(BROKER)
    log.register(other, after_ms=1_000)
    log.tick(1_000)
    log.disconnect(other)
    log.tick(1_000)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    found = sessions_of(tables, BEGIN_MS, log.now_ms, broker_name="broker-a")
    assert [values(s, "cluster", "down_cause") for s in found] == [["c0", None], ["c9", "disconnected"]]
    outages = ask("outages", found, BEGIN_MS, log.now_ms)
    assert [values(o, "scope", "cluster") for o in outages] == [["broker", "c9"]]
    of_c9 = sessions_of(tables, BEGIN_MS, log.now_ms, cluster="c9")
    assert [s["cluster"] for s in of_c9] == ["c9"]
