"""Commands of operators at run time, with the whole product and a second server: settings, skew, what-if, the guard.

All tests share one stack, so each restores the settings and removes its brokers.
"""

import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from namesrv_stream.kafka import LogReader, bootstrap_servers, producer_config
from tests.support.command_line import Finished, run_command
from tests.support.processes import wait_until
from tests.support.scripted_brokers import ScriptedBrokers
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

# The first test starts the stack, which takes minutes on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

SETTLE_S = 90.0
PARTITIONS = 2
BROKERS = 6  # of the cluster "fleet": three in each partition, as many as the guard needs
DEFAULT = "liveness.default_timeout_ms"

Run = Callable[..., Finished]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(
        tmp_path_factory.mktemp("operate") / "data", kafka__partitions=PARTITIONS, liveness__guard_known_ms=0
    ) as running:
        running.wait_job()
        yield running


@pytest.fixture(scope="module")
def second_server(stack: Stack) -> Iterator[SecondServer]:
    with SecondServer(
        stack.data_dir.parent / "second", stack, kafka__partitions=PARTITIONS, liveness__guard_known_ms=0
    ) as running:
        yield running


@pytest.fixture
def run(stack: Stack) -> Run:
    """Return a function that runs a command with the configuration of the stack."""
    return lambda *arguments: run_command(*arguments, "--data-dir", str(stack.settings.data.dir))


@pytest.fixture
def fleet(stack: Stack, second_server: SecondServer) -> Iterator[ScriptedBrokers]:
    """Six brokers that have just registered at both servers."""
    with ScriptedBrokers("fleet", BROKERS, [stack.remoting, second_server.remoting]) as brokers:
        brokers.register()
        wait_until(lambda: _is_whole(stack), SETTLE_S, "all brokers are heard by both servers")
        yield brokers
        if _fleet(stack):
            brokers.unregister()
    wait_until(lambda: not _fleet(stack), SETTLE_S, "the brokers are removed")


def _fleet(stack: Stack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.get("/brokers?cluster=fleet")
    return found


def _is_whole(stack: Stack) -> bool:
    fleet = _fleet(stack)
    return len(fleet) == BROKERS and all(len(b["servers"]) == 2 and b["held"] is None for b in fleet)


def _skew(stack: Stack, second_server: SecondServer, *arguments: str) -> Finished:
    return run_command("skew", "--http", f"http://{stack.http};http://{second_server.http}", *arguments)


def _set(run: Run, key: str, value: str) -> dict[str, Any]:
    done = run("config", "set", key, value, "--by", "ada@desk", "--wait", "60", "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    assert found["behind"] == [], found
    return found


@contextmanager
def _setting(run: Run, key: str, value: str) -> Iterator[None]:
    """Change a setting for the duration of the block."""
    old = _set(run, key, value)["old"]
    try:
        yield
    finally:
        _set(run, key, old)


def _wait_logged(stack: Stack, second_server: SecondServer, text: str) -> None:
    """Wait until the job and both servers have logged a line with this text."""
    logs = [stack.data_dir / "logs" / "job.log", stack.data_dir / "logs" / "serve.log", second_server.process.log_path]
    wait_until(lambda: all(text in log.read_text() for log in logs), SETTLE_S, f"{text!r} in {logs}")


def test_setting_changes_at_all_servers_and_the_job_without_a_restart(
    stack: Stack, second_server: SecondServer, run: Run
) -> None:
    changed = _set(run, DEFAULT, "60000")
    assert (changed["key"], changed["old"], changed["new"]) == (DEFAULT, "120000", "60000")
    assert set(changed["offsets"]) == {"0", "1"}
    assert _skew(stack, second_server, "--patience", "30").code == 0
    for http in (stack.http, second_server.http):
        assert ("effective", "default_timeout_ms", "60000") in _settings_rows(http)
    assert run("config", "set", DEFAULT, "60000").out == f"{DEFAULT} is already 60000\n"
    _set(run, DEFAULT, "120000")
    history = json.loads(run("config", "history", DEFAULT, "--json").out)
    assert [(c["old"], c["new"], c["by"], len(c["offsets"])) for c in history[-2:]] == [
        ("120000", "60000", "ada@desk", 2),
        ("60000", "120000", "ada@desk", 2),
    ]
    shown = json.loads(run("config", "show", "--running", "--json").out)
    assert (shown[DEFAULT]["running"], shown[DEFAULT]["configured"]) == ("120000", "120000")
    assert shown[DEFAULT]["changed_by"] == "ada@desk"
    line = "setting changed setting=default_timeout_ms old=120000 new=60000 by=ada@desk at="
    _wait_logged(stack, second_server, line)


def _settings_rows(http: str) -> set[tuple[str, str, str]]:
    with urllib.request.urlopen(f"http://{http}/state/rows?partition=0&kind=settings", timeout=10) as answer:
        return {(row["namespace"], row["key"], row["value"]) for row in json.load(answer)["rows"]}


def test_servers_under_load_serve_equal_tables(
    stack: Stack, second_server: SecondServer, fleet: ScriptedBrokers
) -> None:
    with _changing(fleet):
        done = _skew(stack, second_server, "--patience", "60", "--json")
    found = json.loads(done.out)
    assert (done.code, found["is_same"]) == (0, True), done.out
    digests = {state["digest"] for state in found["servers"].values()}
    assert len(digests) == 1
    assert all(state["age_ms"] < 30_000 for state in found["servers"].values())


@contextmanager
def _changing(fleet: ScriptedBrokers) -> Iterator[None]:
    """Register the brokers repeatedly, each time with changes, for the duration of the block."""
    stop = threading.Event()

    def change() -> None:
        for version in count(2):
            if stop.is_set():
                return
            fleet.register(version=version)

    thread = threading.Thread(target=change, name="changing-brokers")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_skew_names_a_server_that_is_down_and_finds_no_difference_after_its_restart(
    stack: Stack, second_server: SecondServer
) -> None:
    second_server.process.terminate()
    try:
        done = _skew(stack, second_server, "--patience", "1")
        assert (done.code, done.err.count("\n")) == (3, 1)
        assert second_server.http in done.err
    finally:
        second_server.start()
    assert _skew(stack, second_server, "--patience", "60").code == 0


def test_what_if_distinguishes_frozen_brokers_from_a_silent_one(stack: Stack, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "gaps.html"
    arguments = ("what-if", "--timeout", "4s,600s", "--since", "1h", "--cluster", "host")

    def analysed() -> dict[str, Any]:
        done = run(*arguments, "--json", "--plot", str(path))
        assert done.code == 0, done.err
        found: dict[str, Any] = json.loads(done.out)["clusters"]["host"]
        return found

    with ScriptedBrokers("host", 3, [stack.remoting]) as brokers, LogReader(stack.settings) as log:
        for _ in range(50):  # a suggestion needs some heartbeats
            brokers.register()

        def are_distinguished() -> bool:
            """The first two brokers pause and continue; the third stays silent.

            When the log is read, the last heartbeat of the first two must not be older than the shorter timeout.
            """
            _wait_for_records(log, 24)
            brokers.register(0, 1)
            _wait_for_records(log, 2)  # the registrations, or a tick and the registrations
            short = analysed()["runs"][1]
            return bool(short["false"] >= 2 and short["unclear"] == 1)

        wait_until(are_distinguished, SETTLE_S, "two brokers are heard again")
        cluster = analysed()
        shown = run(*arguments).out
    by_timeout = {r["timeout_ms"]: r for r in cluster["runs"]}
    # The longer timeout is longer than this test takes on any machine.
    assert (by_timeout[600_000]["expiries"], by_timeout[None]["expiries"]) == (0, 0)
    assert by_timeout[4_000]["real"] == 0  # by the actual timeout, all three are live
    assert cluster["gaps"]["longest"][0]["gap_ms"] > 4_000
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert "suggested:" in shown


def _wait_for_records(log: LogReader, records: int) -> None:
    """Wait until every partition has this number of further records; each server writes two ticks a second."""
    until = [log.extent(p)[1] + records for p in range(PARTITIONS)]
    wait_until(lambda: all(log.extent(p)[1] >= end for p, end in enumerate(until)), SETTLE_S, "time passes in the log")


def test_held_brokers_are_shown_everywhere_and_an_operator_releases_them(
    stack: Stack, second_server: SecondServer, run: Run, fleet: ScriptedBrokers
) -> None:
    # Long enough to check all outputs, even on a slow machine.
    with _setting(run, "advanced.liveness.guard_hold_timeouts", "1000"), _setting(run, DEFAULT, "1000"):
        wait_until(lambda: all(b["held"] for b in _fleet(stack)), SETTLE_S, "the guard holds all brokers")
        _wait_logged(stack, second_server, "brokers held cluster=fleet brokers=")
        addrs = (stack.remoting, second_server.remoting)
        wait_until(
            lambda: [_listed(addr) for addr in addrs] == [BROKERS, BROKERS], SETTLE_S, "both servers list the brokers"
        )
        assert "reason=3 of 3 brokers of fleet seem to end at once" in second_server.process.log_text()
        for command in ("brokers", "clusters"):
            shown = run_command(command, "-n", stack.remoting).out
            assert shown.count("protected: fleet fleet-") == BROKERS, shown
        assert f'rocketmq_namesrv_brokers{{cluster="fleet",state="held"}} {BROKERS}.0' in second_server.get_text(
            "/metrics"
        )
        assert stack.get("/healthz")["held_brokers"] == BROKERS
        status = run("status", "--json")
        found = [b for b in json.loads(status.out)["brokers"] if b["cluster"] == "fleet"]
        assert (status.code, [b["condition"] for b in found]) == (1, ["protected"] * BROKERS)

        done = run("guard", "release", "fleet", "--by", "ada@desk", "--wait", "60")
        assert (done.code, done.out.count("released: ")) == (0, BROKERS), done
        wait_until(lambda: not _fleet(stack), SETTLE_S, "the brokers are removed")
        status = run_command("status", "--http", f"http://{stack.http};http://{second_server.http}")
        down = [line for line in status.out.splitlines() if "fleet-" in line and " down " in line]
        assert (status.code, len(down)) == (1, BROKERS)
        rows = stack.changes(cause="guard_released", kind="guard")
        assert {row["detail"] for row in rows if row["gone"]} == {"by ada@desk"}
        _wait_logged(stack, second_server, "brokers no longer held cluster=fleet brokers=")
        gone = f'rocketmq_namesrv_brokers{{cluster="fleet",state="gone"}} {BROKERS}.0'
        wait_until(
            lambda: gone in second_server.get_text("/metrics"), SETTLE_S, "the brokers are removed from the metrics"
        )
        figures = second_server.get_text("/metrics")
        assert not re.search(r'rocketmq_namesrv_brokers\{cluster="fleet",state="(alive|held)"\} [1-9]', figures)
    assert run("guard", "release", "fleet").code == 1
    assert run("kv", "put", "listed", "k", "v").code == 0
    assert "listed" in run("kv", "list").out.splitlines()


def _listed(addr: str) -> int:
    return len(json.loads(run_command("guard", "list", "--json", "-n", addr).out))


def test_refused_records_are_listed_with_reason_and_content(stack: Stack, run: Run, tmp_path: Path) -> None:
    assert run("dead-letters").out == "no records were refused\n"
    topic = stack.settings.kafka.broker_events_topic
    places = []
    producer = KafkaProducer(**producer_config(stack.settings))
    try:
        for partition, value in enumerate((b"{nojson", b"\xff\xfe")):
            sent = producer.send(topic, key=b"x", value=value, partition=partition).get(30)
            places.append((sent.partition, sent.offset))
    finally:
        producer.close()

    def listed(*arguments: str) -> list[dict[str, Any]]:
        done = run("dead-letters", "--json", *arguments)
        assert done.code == 0, done
        found: list[dict[str, Any]] = json.loads(done.out)
        return found

    wait_until(lambda: len(listed()) == 2, SETTLE_S, "both records are refused")
    refused = sorted(listed(), key=lambda record: record["partition"])
    assert [(record["partition"], record["offset"], record["item"]) for record in refused] == [
        (*place, None) for place in places
    ]
    assert [record.get("value_text") or record["value_base64"] for record in refused] == ["{nojson", "//4="]
    assert all(record["reason"].startswith("not JSON") for record in refused)

    newest = run("dead-letters", "--limit", "1")
    assert len(newest.out.splitlines()) == 2
    assert newest.err == "1 older record is not shown; --limit 0 shows all\n"
    assert len(listed("--limit", "0", "--since", "1h")) == 2
    assert listed("--since", str(max(record["at_ms"] for record in refused) + 1)) == []

    # The same with Kafka's address alone, and then with another topic.
    elsewhere = ("--data-dir", str(tmp_path), "--set", f"kafka.bootstrap_servers={bootstrap_servers(stack.settings)}")
    assert json.loads(run_command("dead-letters", "--json", *elsewhere).out) == listed()
    none = run_command("dead-letters", *elsewhere, "--set", "advanced.kafka.dead_letter_topic=nosuch")
    assert (none.code, none.out, "has no topic nosuch" in none.err) == (1, "", True)
    examined = run("doctor")
    assert "the job refused 2 records" in examined.out
    assert "`namesrv-stream dead-letters` lists them" in examined.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("config", "set", "liveness.nonsense", "1"), 2),
        (("config", "set", DEFAULT, "0"), 2),
        (("what-if", "--timeout", "soon"), 2),
        (("what-if", "--timeout", "60s", "--cluster", "nobody"), 1),
    ],
)
def test_usage_error_is_one_line_with_its_exit_code(run: Run, arguments: tuple[str, ...], code: int) -> None:
    done = run(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
