"""Sessions, and figures computed from them: flapping, outages, availability."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from namesrv_stream.cli import main
from namesrv_stream.history.answer import Window
from namesrv_stream.history.database import Past, Row
from namesrv_stream.history.sessions import replica_numbers, sessions_between
from tests.support.builders import BEGIN_MS, Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.report_figures import HOUR_MS, MONDAY_MS, a_session, ask, figures_of

MINUTE_MS = 60_000
END_MS = BEGIN_MS + 180 * MINUTE_MS
BROKER = a_registration()


def minutes_of(ms: int | None) -> int | None:
    """Convert an instant to minutes since the start of the morning."""
    return None if ms is None else (ms - BEGIN_MS) // MINUTE_MS


def sessions_of(tables: HistoryOfLogs, since_ms: int, until_ms: int, **only: str) -> list[Row]:
    found: list[Row] = sessions_between(Past(tables.settings), Window(since_ms, until_ms), **only).to_pylist()
    return found


def values(row: Row, *keys: str) -> list[object]:
    return [row[key] for key in keys]


@pytest.fixture(scope="module")
def sessions(morning: HistoryOfLogs) -> list[Row]:
    return sessions_of(morning, BEGIN_MS, END_MS)


def test_a_session_has_its_start_its_end_and_its_heartbeats(sessions: list[Row]) -> None:
    first, second, third = (s for s in sessions if s["broker_name"] == "broker-b")
    assert (minutes_of(first["up_ms"]), minutes_of(first["down_ms"])) == (0, 61)
    assert values(first, "up_cause", "down_cause", "heartbeats", "longest_gap_ms") == [
        *("registered", "expired", 121, 30_000)
    ]
    assert "not heard for 121000 ms" in first["down_detail"]
    assert [second["down_cause"], *values(third, "down_ms", "down_cause")] == ["unregistered", None, None]


def test_sessions_continue_after_the_end_of_the_table(tmp_path: Path) -> None:
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


def test_table_and_later_changes_equal_the_complete_table(tmp_path: Path, morning: HistoryOfLogs) -> None:
    whole = HistoryOfLogs(tmp_path, *morning.logs)
    whole.write_all()

    def ends(tables: HistoryOfLogs) -> list[list[object]]:
        found = sessions_of(tables, BEGIN_MS, END_MS)
        return [values(s, "broker_addr", "up_ms", "down_ms", "up_cause", "down_cause") for s in found]

    assert ends(morning) == ends(whole)


def test_later_events_are_not_visible(morning: HistoryOfLogs) -> None:
    at_ms = BEGIN_MS + 30 * MINUTE_MS
    found = sessions_of(morning, BEGIN_MS, at_ms, broker_name="broker-b")
    assert [values(s, "down_ms", "down_cause") for s in found] == [[None, None]]


def test_only_the_last_session_before_the_period_is_included(morning: HistoryOfLogs) -> None:
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
def test_broker_flaps_after_three_ends_in_half_an_hour_or_repeated_ends(
    sessions: list[Row], every_minutes: int, times: int, has_flapped: bool
) -> None:
    first = next(s for s in sessions if s["broker_name"] == "loner")
    step_ms = every_minutes * MINUTE_MS
    begins = [BEGIN_MS + n * step_ms for n in range(times)]
    looping = [first | {"up_ms": up_ms, "down_ms": up_ms + step_ms - 1_000} for up_ms in begins]
    (found,) = ask("flaps", looping, BEGIN_MS, BEGIN_MS + (times + 24) * step_ms)
    assert found["has_flapped"] == has_flapped
    assert not found["flapping"]  # no longer


def test_flap_score_halves_every_hour(sessions: list[Row]) -> None:
    loner = [s for s in sessions if s["broker_name"] == "loner"]
    (at_first,) = ask("flaps", loner, BEGIN_MS, BEGIN_MS + 140 * MINUTE_MS)
    (later,) = ask("flaps", loner, BEGIN_MS, BEGIN_MS + 200 * MINUTE_MS)
    assert later["score"] == pytest.approx(at_first["score"] / 2, abs=0.001)
    assert later["peak_score"] == at_first["peak_score"]


def test_outages_are_listed_for_processes_broker_names_and_clusters(sessions: list[Row]) -> None:
    found = ask("outages", sessions, BEGIN_MS, END_MS)
    (of_cluster,) = (o for o in found if o["scope"] == "cluster")
    assert values(of_cluster, "name", "brokers", "cause", "duration_ms") == ["c0", 3, "unregistered", 242_500]
    assert [o["name"] for o in found if o["scope"] == "broker_name"] == ["broker-a"]
    assert [minutes_of(o["begin_ms"]) for o in found if o["name"] == "broker-b"] == [61, 150]
    assert {o["cause"] for o in found if o["name"] == "loner"} == {"disconnected"}


def test_continuing_outage_has_no_end(sessions: list[Row]) -> None:
    until_ms = BEGIN_MS + 65 * MINUTE_MS
    found = ask("outages", [s for s in sessions if s["up_ms"] < until_ms], BEGIN_MS, until_ms)
    assert [values(o, "name", "end_ms") for o in found] == [["broker-b", None]]


def test_broker_down_before_the_period_is_counted_and_not_listed(morning: HistoryOfLogs) -> None:
    since_ms, until_ms = BEGIN_MS + 63 * MINUTE_MS, BEGIN_MS + 65 * MINUTE_MS
    found = sessions_of(morning, since_ms, until_ms)
    assert ask("outages", found, since_ms, until_ms) == []
    assert ask("gone_before", found, since_ms, until_ms) == [{"brokers": 1}]


def test_availability_counts_from_the_first_session(sessions: list[Row]) -> None:
    of = {row["broker_name"]: row for row in ask("brokers", sessions, BEGIN_MS - MINUTE_MS, END_MS)}
    loner = of["loner"]
    assert values(loner, "known_ms", "down_ms") == [END_MS - (BEGIN_MS + 4_000), 10 * MINUTE_MS]
    assert values(loner, "downs", "mttr_ms", "is_up") == [5, 2 * MINUTE_MS, True]
    share = 1 - (509_000 + 246_500) / (END_MS - BEGIN_MS - 3_000)
    assert of["broker-b"]["availability"] == pytest.approx(share)


def test_broker_that_unregistered_for_good_is_not_missed(tmp_path: Path) -> None:
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


def test_brokers_with_the_same_name_in_two_clusters_are_different_brokers(tmp_path: Path) -> None:
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


SINCE, UNTIL = MONDAY_MS, MONDAY_MS + 100 * HOUR_MS
MINUTE_MS = 60_000


def at(hours: float) -> int:
    return MONDAY_MS + round(hours * HOUR_MS)


def a_pod(host: int, begin: float, end: float | None = None, cause: str | None = None, *, broker_id: int = 0) -> Row:
    """Return a session of broker-a at a new address, from one hour to another."""
    return a_session(
        at(begin), None if end is None else at(end), cause, addr=f"10.0.0.{host}:10911", broker_id=broker_id
    )


def hosts(sessions: list[Row]) -> list[list[int]]:
    """Return the addresses of each replica, session by session."""
    found: dict[int, list[Row]] = {}
    for number, session in zip(replica_numbers(sessions), sessions, strict=True):
        found.setdefault(number, []).append(session)
    in_order = [sorted(own, key=lambda s: s["up_ms"]) for _, own in sorted(found.items())]
    return [[int(s["broker_addr"].split(":")[0].split(".")[3]) for s in own] for own in in_order]


def brokers_of(sessions: list[Row]) -> list[Row]:
    return ask("brokers", sessions, SINCE, UNTIL)


def outages_of(sessions: list[Row], scope: str = "broker") -> list[Row]:
    return [o for o in ask("outages", sessions, SINCE, UNTIL) if o["scope"] == scope]


def flaps_of(sessions: list[Row], until_ms: int) -> list[Row]:
    return ask("flaps", sessions, SINCE, until_ms)


def test_broker_that_returns_at_another_address_was_down_in_between() -> None:
    sessions = [a_pod(1, 0, 10), a_pod(2, 14)]
    (found,) = brokers_of(sessions)
    assert values(found, "known_ms", "down_ms", "availability") == [100 * HOUR_MS, 4 * HOUR_MS, 0.96]
    assert values(found, "downs", "mttr_ms", "is_up", "down_cause") == [1, 4 * HOUR_MS, True, "expired"]
    assert values(found, "broker_addr", "earlier_addrs") == ["10.0.0.2:10911", ["10.0.0.1:10911"]]
    (outage,) = outages_of(sessions)
    assert values(outage, "broker_addr", "replaced_by") == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert values(outage, "begin_ms", "end_ms") == [at(10), at(14)]


def test_broker_whose_replacement_starts_first_was_never_down() -> None:
    sessions = [a_pod(1, 0, 20), a_pod(2, 18)]
    (found,) = brokers_of(sessions)
    assert values(found, "availability", "downs", "repairs", "down_cause") == [1.0, 0, 0, None]
    assert outages_of(sessions) == []
    (flapping,) = flaps_of(sessions, UNTIL)
    assert values(flapping, "downs", "returns", "median_down_ms") == [1, 1, 0]


def test_replacement_that_ends_before_the_original_leaves_no_absence() -> None:
    sessions = [a_pod(1, 0, 30), a_pod(2, 18, 25), a_pod(3, 40)]
    (found,) = brokers_of(sessions)
    assert values(found, "downs", "mttr_ms") == [1, 10 * HOUR_MS]


def test_address_may_be_used_again() -> None:
    assert hosts([a_pod(1, 0, 10), a_pod(2, 11, 20), a_pod(1, 21)]) == [[1, 2, 1]]


def test_a_crash_loop_flaps_whatever_its_addresses() -> None:
    looping = [a_pod(n, n / 6, n / 6 + 0.1, "disconnected") for n in range(6)]
    (found,) = flaps_of(looping, at(1))
    assert values(found, "has_flapped", "downs", "returns", "median_down_ms") == [True, 6, 5, 4 * MINUTE_MS]
    assert len(found["earlier_addrs"]) == 5


def test_crash_loop_with_overlapping_processes_flaps_though_never_down() -> None:
    looping = [a_pod(n, n / 6, n / 6 + 0.3, "expired") for n in range(6)]
    (found,) = flaps_of(looping, at(1.2))
    assert values(found, "has_flapped", "downs") == [True, 6]
    assert [o["begin_ms"] for o in outages_of(looping)] == [looping[-1]["down_ms"]]


def test_a_broker_with_another_id_does_not_replace_a_broker() -> None:
    sessions = [a_pod(1, 0, 10, broker_id=1), a_pod(2, 14, broker_id=2)]
    assert hosts(sessions) == [[1], [2]]
    assert [o["end_ms"] for o in outages_of(sessions)] == [None]


def test_a_broker_of_another_name_or_cluster_does_not_replace_a_broker() -> None:
    sessions = [a_pod(1, 0, 10), a_session(at(14), name="broker-b", addr="10.0.0.2:10911")]
    sessions.append(a_session(at(14), cluster="c9", addr="10.0.0.3:10911"))
    assert hosts(sessions) == [[1], [2], [3]]


def test_a_broker_without_id_is_identified_by_its_address() -> None:
    sessions = [a_session(at(0), at(1), broker_id=None), a_session(at(2), broker_id=None, addr="10.0.0.2:10911")]
    assert hosts(sessions) == [[1], [2]]


def test_ids_that_change_in_a_failover_do_not_matter_while_addresses_stay_the_same() -> None:
    # The master at 1 fails; the slave at 2 becomes master as it is; 1 comes back as slave; 2 restarts as master.
    sessions = [a_pod(1, 0, 10), a_pod(2, 0, 40, broker_id=2), a_pod(1, 20, broker_id=1), a_pod(2, 41)]
    assert hosts(sessions) == [[1, 1], [2, 2]]
    assert [values(o, "begin_ms", "end_ms", "replaced_by") for o in outages_of(sessions)] == [
        [at(10), at(20), None],
        [at(40), at(41), None],
    ]


def test_a_master_returns_as_slave_at_another_address_after_a_failover() -> None:
    sessions = [a_pod(1, 0, 10), a_pod(2, 0, broker_id=2), a_pod(3, 20, broker_id=1)]
    assert hosts(sessions) == [[2], [1, 3]]


def test_ended_slave_returns_at_another_address_as_master() -> None:
    # The master at 1 came back as slave at 3, so that id 0 is free when the other one restarts as master.
    sessions = [a_pod(1, 0, 10), a_pod(2, 0, 30, broker_id=2), a_pod(3, 20, broker_id=1), a_pod(4, 31)]
    assert hosts(sessions) == [[1, 3], [2, 4]]


def test_a_slave_that_is_up_is_not_replaced_by_a_master() -> None:
    assert hosts([a_pod(1, 0, broker_id=1), a_pod(2, 14)]) == [[1], [2]]


def test_a_broker_name_has_outages_only_if_it_has_several_replicas() -> None:
    alone = [a_pod(1, 0, 10), a_pod(2, 14, 20), a_pod(3, 21)]
    assert outages_of(alone, "broker_name") == []
    two = [*alone, a_pod(8, 0, 12, broker_id=1), a_pod(9, 13, broker_id=1)]
    (outage,) = outages_of(two, "broker_name")
    assert values(outage, "begin_ms", "end_ms", "brokers") == [at(12), at(13), 2]


def test_broker_replaced_before_the_period_is_not_down() -> None:
    sessions = [a_pod(1, -20, -10), a_pod(2, -5)]
    assert ask("gone_before", sessions, SINCE, UNTIL) == [{"brokers": 0}]
    assert [row["earlier_addrs"] for row in brokers_of(sessions)] == [None]


def test_absence_that_began_before_the_period_ends_with_the_replacement() -> None:
    sessions = [a_pod(1, -20, -10), a_pod(2, 5)]
    (found,) = brokers_of(sessions)
    assert values(found, "availability", "downs", "mttr_ms") == [0.95, 0, 15 * HOUR_MS]


def test_a_report_counts_a_replaced_broker_once() -> None:
    found = figures_of([a_pod(n, 10 * n, 10 * n + 8, "disconnected") for n in range(10)], SINCE, UNTIL)
    assert values(found.total, "brokers", "known_ms", "down_ms") == [1, 100 * HOUR_MS, 20 * HOUR_MS]
    assert values(found.total, "interruptions", "mttr_ms", "dark_ms") == [10, 2 * HOUR_MS, 20 * HOUR_MS]
    assert [values(e, "count", "brokers", "down_ms") for e in found.rows["session_ends"]] == [[10, 1, 20 * HOUR_MS]]
    assert {o["replica"] for o in found.rows["outages"] if o["scope"] == "broker"} == {
        found.rows["brokers"][0]["replica"]
    }


@pytest.fixture
def pods(tmp_path: Path) -> HistoryOfLogs:
    """Tables in which broker-a's pod ends and restarts three times, each time at another address."""
    log = Log()
    for number in range(1, 5):
        pod = a_registration(f"10.0.0.{number}:10911")
        log.register(pod, connection=number)
        log.tick(20 * MINUTE_MS)
        if number < 4:
            log.disconnect(pod, connection=number)
            log.tick(2 * MINUTE_MS)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    return tables


def test_all_output_formats_show_all_addresses(
    pods: HistoryOfLogs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    span = ("--data-dir", str(pods.settings.data.dir), "--since", str(BEGIN_MS), "--until", str(pods.logs[0].now_ms))

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["namesrv-stream", *arguments, *span])
        assert main() == 0
        return capsys.readouterr().out

    (broker,) = json.loads(run("history", "--json"))["brokers"]
    assert (broker["broker_addr"], broker["downs"], broker["mttr_ms"]) == ("10.0.0.4:10911", 3, 2 * MINUTE_MS)
    assert broker["earlier_addrs"] == ["10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"]
    (row,) = csv.DictReader(io.StringIO(run("history", "--flaps", "--csv")))
    assert row["earlier_addrs"] == "10.0.0.1:10911 10.0.0.2:10911 10.0.0.3:10911"
    outages = json.loads(run("history", "--outages", "--json"))["outages"]
    assert [o["replaced_by"] for o in outages] == ["10.0.0.2:10911", "10.0.0.3:10911", "10.0.0.4:10911"]
    assert "10.0.0.1:10911, 10.0.0.2:10911, 10.0.0.3:10911" in run("history")
    report = json.loads(run("report", "--json", "--html", str(tmp_path / "report.html")))
    (of_report,), (of_server,) = report["brokers"], report["servers"]
    assert of_server["brokers"] == 1
    assert [of_report[key] for key in ("broker_addr", "earlier_addrs", "availability", "mttr_ms")] == [
        broker[key] for key in ("broker_addr", "earlier_addrs", "availability", "mttr_ms")
    ]
    for question in ([], ["broker-a"]):
        run("history", *question, "--plot", str(tmp_path / "plot.html"))


def test_identity_of_brokers_does_not_depend_on_the_period(tmp_path: Path) -> None:
    """The master fails, the slave restarts as master, and the first one comes back as slave, all at their addresses."""
    log = Log()
    first, second = a_registration("10.0.0.1:10911", 0), a_registration("10.0.0.2:10911", 2)
    log.register(first)
    log.register(second, connection=2)
    log.tick(MINUTE_MS)
    log.disconnect(first)
    log.tick(MINUTE_MS)
    log.disconnect(second, connection=2)
    log.tick(MINUTE_MS)
    log.register(a_registration("10.0.0.2:10911", 0), connection=3)
    log.tick(MINUTE_MS)
    since_ms = log.now_ms
    log.tick(MINUTE_MS)
    log.register(a_registration("10.0.0.1:10911", 1), connection=4)
    log.tick(MINUTE_MS)
    log.disconnect(second, connection=3)
    log.tick(MINUTE_MS)
    log.register(a_registration("10.0.0.2:10911", 2), connection=5)
    log.tick(MINUTE_MS)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    asked = Past(tables.settings)
    for begin_ms in (BEGIN_MS, since_ms, log.now_ms - MINUTE_MS):
        assert hosts(sessions_between(asked, Window(begin_ms, log.now_ms)).to_pylist()) == [[1, 1], [2, 2, 2]]
