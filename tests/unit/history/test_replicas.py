"""Brokers whose address changes: who replaced whom, and what follows for availability, outages and flapping."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from namesrv_stream.cli import main
from namesrv_stream.history.database import Row
from namesrv_stream.history.extent import Window
from namesrv_stream.history.past import Past
from namesrv_stream.history.replicas import replica_numbers
from namesrv_stream.history.sessions import sessions_between
from tests.support.builders import BEGIN_MS, Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.report_figures import HOUR_MS, MONDAY_MS, a_session, ask, figures_of

SINCE, UNTIL = MONDAY_MS, MONDAY_MS + 100 * HOUR_MS
MINUTE_MS = 60_000


def at(hours: float) -> int:
    return MONDAY_MS + round(hours * HOUR_MS)


def a_pod(host: int, begin: float, end: float | None = None, cause: str | None = None, *, broker_id: int = 0) -> Row:
    """A session of broker-a at an address of its own, from one hour to another."""
    return a_session(
        at(begin), None if end is None else at(end), cause, addr=f"10.0.0.{host}:10911", broker_id=broker_id
    )


def hosts(sessions: list[Row]) -> list[list[int]]:
    """Of each replica, at which addresses it was, session by session."""
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


def values(row: Row, *keys: str) -> list[object]:
    return [row[key] for key in keys]


def test_a_broker_that_comes_back_at_another_address_was_away_in_between() -> None:
    sessions = [a_pod(1, 0, 10), a_pod(2, 14)]
    (found,) = brokers_of(sessions)
    assert values(found, "known_ms", "down_ms", "availability") == [100 * HOUR_MS, 4 * HOUR_MS, 0.96]
    assert values(found, "downs", "mttr_ms", "is_up", "down_cause") == [1, 4 * HOUR_MS, True, "expired"]
    assert values(found, "broker_addr", "earlier_addrs") == ["10.0.0.2:10911", ["10.0.0.1:10911"]]
    (outage,) = outages_of(sessions)
    assert values(outage, "broker_addr", "replaced_by") == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert values(outage, "begin_ms", "end_ms") == [at(10), at(14)]


def test_a_broker_whose_next_process_is_up_before_it_goes_was_never_away() -> None:
    sessions = [a_pod(1, 0, 20), a_pod(2, 18)]
    (found,) = brokers_of(sessions)
    assert values(found, "availability", "downs", "repairs", "down_cause") == [1.0, 0, 0, None]
    assert outages_of(sessions) == []
    (flapping,) = flaps_of(sessions, UNTIL)
    assert values(flapping, "downs", "returns", "median_down_ms") == [1, 1, 0]


def test_a_replacement_that_goes_while_the_first_one_is_still_up_leaves_no_absence() -> None:
    sessions = [a_pod(1, 0, 30), a_pod(2, 18, 25), a_pod(3, 40)]
    (found,) = brokers_of(sessions)
    assert values(found, "downs", "mttr_ms") == [1, 10 * HOUR_MS]


def test_an_address_may_come_again() -> None:
    assert hosts([a_pod(1, 0, 10), a_pod(2, 11, 20), a_pod(1, 21)]) == [[1, 2, 1]]


def test_a_crash_loop_flaps_whatever_its_addresses() -> None:
    looping = [a_pod(n, n / 6, n / 6 + 0.1, "disconnected") for n in range(6)]
    (found,) = flaps_of(looping, at(1))
    assert values(found, "has_flapped", "downs", "returns", "median_down_ms") == [True, 6, 5, 4 * MINUTE_MS]
    assert len(found["earlier_addrs"]) == 5


def test_a_crash_loop_whose_processes_overlap_flaps_though_it_was_never_away() -> None:
    looping = [a_pod(n, n / 6, n / 6 + 0.3, "expired") for n in range(6)]
    (found,) = flaps_of(looping, at(1.2))
    assert values(found, "has_flapped", "downs") == [True, 6]
    assert [o["begin_ms"] for o in outages_of(looping)] == [looping[-1]["down_ms"]]


def test_one_with_another_id_replaces_nobody() -> None:
    sessions = [a_pod(1, 0, 10, broker_id=1), a_pod(2, 14, broker_id=2)]
    assert hosts(sessions) == [[1], [2]]
    assert [o["end_ms"] for o in outages_of(sessions)] == [None]


def test_one_of_another_name_or_cluster_replaces_nobody() -> None:
    sessions = [a_pod(1, 0, 10), a_session(at(14), name="broker-b", addr="10.0.0.2:10911")]
    sessions.append(a_session(at(14), cluster="c9", addr="10.0.0.3:10911"))
    assert hosts(sessions) == [[1], [2], [3]]


def test_a_broker_without_id_is_its_address() -> None:
    sessions = [a_session(at(0), at(1), broker_id=None), a_session(at(2), broker_id=None, addr="10.0.0.2:10911")]
    assert hosts(sessions) == [[1], [2]]


def test_ids_that_change_with_a_fail_over_do_not_matter_where_addresses_stay() -> None:
    # The master at 1 fails; the slave at 2 becomes master as it is; 1 comes back as slave; 2 restarts as master.
    sessions = [a_pod(1, 0, 10), a_pod(2, 0, 40, broker_id=2), a_pod(1, 20, broker_id=1), a_pod(2, 41)]
    assert hosts(sessions) == [[1, 1], [2, 2]]
    assert [values(o, "begin_ms", "end_ms", "replaced_by") for o in outages_of(sessions)] == [
        [at(10), at(20), None],
        [at(40), at(41), None],
    ]


def test_a_master_that_failed_over_comes_back_at_another_address_as_slave() -> None:
    sessions = [a_pod(1, 0, 10), a_pod(2, 0, broker_id=2), a_pod(3, 20, broker_id=1)]
    assert hosts(sessions) == [[2], [1, 3]]


def test_a_slave_that_went_comes_back_at_another_address_as_master() -> None:
    # The master at 1 came back as slave at 3, so that nobody has id 0 any more when the other one restarts as master.
    sessions = [a_pod(1, 0, 10), a_pod(2, 0, 30, broker_id=2), a_pod(3, 20, broker_id=1), a_pod(4, 31)]
    assert hosts(sessions) == [[1, 3], [2, 4]]


def test_a_slave_that_is_up_is_not_replaced_by_a_master() -> None:
    assert hosts([a_pod(1, 0, broker_id=1), a_pod(2, 14)]) == [[1], [2]]


def test_a_name_has_an_outage_only_where_it_has_several_replicas() -> None:
    alone = [a_pod(1, 0, 10), a_pod(2, 14, 20), a_pod(3, 21)]
    assert outages_of(alone, "broker_name") == []
    two = [*alone, a_pod(8, 0, 12, broker_id=1), a_pod(9, 13, broker_id=1)]
    (outage,) = outages_of(two, "broker_name")
    assert values(outage, "begin_ms", "end_ms", "brokers") == [at(12), at(13), 2]


def test_who_was_replaced_before_the_time_has_not_gone() -> None:
    sessions = [a_pod(1, -20, -10), a_pod(2, -5)]
    assert ask("gone_before", sessions, SINCE, UNTIL) == [{"brokers": 0}]
    assert [row["earlier_addrs"] for row in brokers_of(sessions)] == [None]


def test_an_absence_that_reaches_into_the_time_ends_with_the_replacement() -> None:
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
    """Broker-a's pod dies and comes back three times, each time at another address."""
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


def test_tables_and_forms_tell_of_all_its_addresses(
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


def test_who_is_whom_does_not_depend_on_the_time_asked_about(tmp_path: Path) -> None:
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
