"""Sessions, and what is reckoned from them: flapping, outages, availability."""

from dataclasses import replace
from pathlib import Path

import pytest

from namesrv_stream.history.availability import availabilities
from namesrv_stream.history.flaps import flappings
from namesrv_stream.history.outages import Scope, broker_outages, gone_before
from namesrv_stream.history.past import Past
from namesrv_stream.history.sessions import Session, sessions_between
from tests.support.builders import BEGIN_MS, Log, a_registration
from tests.support.history_tables import HistoryOfLogs

MINUTE_MS = 60_000
END_MS = BEGIN_MS + 180 * MINUTE_MS
BROKER = a_registration()


def minutes_of(ms: int | None) -> int | None:
    """Since the morning began."""
    return None if ms is None else (ms - BEGIN_MS) // MINUTE_MS


@pytest.fixture(scope="module")
def sessions(morning: HistoryOfLogs) -> list[Session]:
    return sessions_between(Past(morning.settings), BEGIN_MS, END_MS)


def test_a_session_has_its_begin_its_end_and_its_heartbeats(sessions: list[Session]) -> None:
    first, second, third = (s for s in sessions if s.broker_name == "broker-b")
    assert (minutes_of(first.up_ms), minutes_of(first.down_ms)) == (0, 61)
    assert (first.up_cause, first.down_cause) == ("registered", "expired")
    assert "not heard for 121000 ms" in (first.down_detail or "")
    assert (first.heartbeats, first.longest_gap_ms) == (121, 30_000)
    assert (second.down_cause, third.down_ms, third.down_cause) == ("unregistered", None, None)


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
    found = sessions_between(Past(tables.settings), BEGIN_MS, log.now_ms)
    assert [(s.up_ms - BEGIN_MS, s.down_ms and s.down_ms - BEGIN_MS, s.down_cause) for s in found] == [
        (0, 1_000, "unregistered"),
        (2_000, None, None),
    ]


def test_the_table_and_what_is_beyond_it_say_what_the_whole_table_says(tmp_path: Path, morning: HistoryOfLogs) -> None:
    whole = HistoryOfLogs(tmp_path, *morning.logs)
    whole.write_all()

    def ends(tables: HistoryOfLogs) -> list[tuple[object, ...]]:
        found = sessions_between(Past(tables.settings), BEGIN_MS, END_MS)
        return [(s.key, s.up_ms, s.down_ms, s.up_cause, s.down_cause) for s in found]

    assert ends(morning) == ends(whole)


def test_what_comes_later_is_not_known_yet(morning: HistoryOfLogs) -> None:
    at_ms = BEGIN_MS + 30 * MINUTE_MS
    found = sessions_between(Past(morning.settings), BEGIN_MS, at_ms, broker_name="broker-b")
    assert [(s.down_ms, s.down_cause) for s in found] == [(None, None)]


def test_sessions_that_ended_before_are_left_out_but_for_the_last(morning: HistoryOfLogs) -> None:
    since_ms = BEGIN_MS + 65 * MINUTE_MS
    found = sessions_between(Past(morning.settings), since_ms, since_ms + MINUTE_MS, broker_name="broker-b")
    assert [s.down_cause for s in found] == ["expired"]


def test_a_crash_loop_flaps_and_a_restart_does_not(sessions: list[Session]) -> None:
    worst, second, *_ = flappings(sessions, BEGIN_MS, BEGIN_MS + 140 * MINUTE_MS)
    assert (worst.key.broker_name, worst.downs, worst.returns, worst.median_down_ms) == ("loner", 5, 5, 2 * MINUTE_MS)
    assert dict(worst.causes) == {"disconnected": 5}
    assert worst.is_flapping
    assert 4 < worst.peak_score < 5
    assert not second.is_flapping


@pytest.mark.parametrize(
    ("every_minutes", "times", "has_flapped"), [(15, 3, True), (20, 3, False), (44, 20, True), (50, 200, False)]
)
def test_who_goes_three_times_in_half_an_hour_or_time_and_again_flaps(
    sessions: list[Session], every_minutes: int, times: int, has_flapped: bool
) -> None:
    first = next(s for s in sessions if s.broker_name == "loner")
    step_ms = every_minutes * MINUTE_MS
    looping = [
        replace(first, up_ms=BEGIN_MS + n * step_ms, down_ms=BEGIN_MS + (n + 1) * step_ms - 1_000) for n in range(times)
    ]
    (found,) = flappings(looping, BEGIN_MS, BEGIN_MS + (times + 24) * step_ms)
    assert found.has_flapped == has_flapped
    assert not found.is_flapping  # not any more


def test_a_score_fades_by_half_each_hour(sessions: list[Session]) -> None:
    loner = [s for s in sessions if s.broker_name == "loner"]
    (at_first,) = flappings(loner, BEGIN_MS, BEGIN_MS + 140 * MINUTE_MS)
    (later,) = flappings(loner, BEGIN_MS, BEGIN_MS + 200 * MINUTE_MS)
    assert later.score == pytest.approx(at_first.score / 2)
    assert later.peak_score == at_first.peak_score


def test_outages_are_of_processes_names_and_clusters(sessions: list[Session]) -> None:
    found = broker_outages(sessions, BEGIN_MS, END_MS)
    (of_cluster,) = (o for o in found if o.scope is Scope.CLUSTER)
    assert (of_cluster.name, of_cluster.brokers, of_cluster.cause) == ("c0", 3, "unregistered")
    assert of_cluster.length_ms(END_MS) == 242_500
    assert [o.name for o in found if o.scope is Scope.BROKER_NAME] == ["broker-a"]
    assert [minutes_of(o.begin_ms) for o in found if o.name == "broker-b"] == [61, 150]
    assert {o.cause for o in found if o.name == "loner"} == {"disconnected"}


def test_an_outage_that_goes_on_has_no_end(sessions: list[Session]) -> None:
    until_ms = BEGIN_MS + 65 * MINUTE_MS
    found = broker_outages([s for s in sessions if s.up_ms < until_ms], BEGIN_MS, until_ms)
    assert [(o.name, o.end_ms) for o in found] == [("broker-b", None)]


def test_a_broker_that_had_gone_before_is_counted_and_not_listed(morning: HistoryOfLogs) -> None:
    since_ms, until_ms = BEGIN_MS + 63 * MINUTE_MS, BEGIN_MS + 65 * MINUTE_MS
    found = sessions_between(Past(morning.settings), since_ms, until_ms)
    assert broker_outages(found, since_ms, until_ms) == []
    assert gone_before(found, since_ms) == 1


def test_availability_counts_from_when_a_broker_first_came(sessions: list[Session]) -> None:
    of = {a.key.broker_name: a for a in availabilities(sessions, BEGIN_MS - MINUTE_MS, END_MS)}
    loner = of["loner"]
    assert loner.known_ms == END_MS - (BEGIN_MS + 4_000)
    assert loner.known_ms - loner.up_ms == 10 * MINUTE_MS
    assert (loner.downs, loner.mttr_ms, loner.is_up) == (5, 2 * MINUTE_MS, True)
    assert of["broker-b"].share == pytest.approx(1 - (509_000 + 246_500) / (END_MS - BEGIN_MS - 3_000))


def test_who_said_goodbye_and_stayed_away_is_not_missed(tmp_path: Path) -> None:
    log = Log()
    log.register(BROKER)
    log.tick(10_000)
    log.unregister(BROKER)
    log.pass_time(30_000)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    found = sessions_between(Past(tables.settings), BEGIN_MS, log.now_ms)
    (broker,) = availabilities(found, BEGIN_MS, log.now_ms)
    assert (broker.share, broker.downs, broker.is_up) == (1.0, 1, False)
    (outage,) = broker_outages(found, BEGIN_MS, log.now_ms)
    assert (outage.end_ms, outage.is_for_good) == (None, True)


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
    found = sessions_between(Past(tables.settings), BEGIN_MS, log.now_ms, broker_name="broker-a")
    assert [(s.cluster, s.down_cause) for s in found] == [("c0", None), ("c9", "disconnected")]
    outages = broker_outages(found, BEGIN_MS, log.now_ms)
    assert [(o.scope, o.cluster) for o in outages] == [(Scope.BROKER, "c9")]
    of_c9 = sessions_between(Past(tables.settings), BEGIN_MS, log.now_ms, cluster="c9")
    assert [s.cluster for s in of_c9] == ["c9"]
