"""The history commands on real tables: answers, exit codes, and one line for each failure."""

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from namesrv_stream.cli import main
from namesrv_stream.tables.layout import HEARTBEAT_MINUTES
from tests.support.builders import BEGIN_MS, Log, a_registration
from tests.support.history_tables import HistoryOfLogs

Run = Callable[..., tuple[int, str, str]]

MINUTE_MS = 60_000
UNTIL = str(BEGIN_MS + 180 * MINUTE_MS)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs the command line and returns (exit code, stdout, stderr)."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run_main(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["namesrv-stream", *arguments])
        code = main()
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run_main


@pytest.fixture
def ask(run: Run, morning: HistoryOfLogs) -> Run:
    """Returns a function that runs ``history`` on the tables of the morning."""

    def ask_history(*arguments: str) -> tuple[int, str, str]:
        of_morning = ("--data-dir", str(morning.settings.data.dir), "--since", str(BEGIN_MS), "--until", UNTIL)
        return run("history", *arguments, *of_morning)

    return ask_history


def minutes(number: int) -> str:
    """Return an instant of the morning."""
    return str(BEGIN_MS + number * MINUTE_MS)


def test_a_past_route_is_a_table_with_the_reason_below(run: Run, morning: HistoryOfLogs) -> None:
    code, out, _ = run("route", "TopicTest", "--as-of", minutes(63), "--data-dir", str(morning.settings.data.dir))
    assert code == 0
    lines = out.splitlines()
    assert lines[1].split() == ["c0", "broker-a", "8", "8", "6", "0=10.0.0.1:10911", "1=10.0.0.3:10911"]
    assert lines[-2].startswith("as of 2023-11-14 23:16:20.000")
    assert "expired broker-b: not heard for 121000 ms of observed time at s1" in lines[-1]


@pytest.mark.parametrize("command", [["route", "TopicTest", "--json"], ["topicRoute", "-t", "TopicTest"]])
def test_a_past_route_as_json_is_rocketmqs_with_the_reason(
    run: Run, morning: HistoryOfLogs, command: list[str]
) -> None:
    code, out, _ = run(*command, "--as-of", minutes(92), "--data-dir", str(morning.settings.data.dir))
    found = json.loads(out)
    assert code == 0
    assert [q["perm"] for q in found["queueDatas"]] == [4, 6]
    assert found["asOf"] == BEGIN_MS + 92 * MINUTE_MS
    assert found["lastChange"]["cause"] == "write_perm_wiped"
    assert found["history"]["begin_ms"] == BEGIN_MS


@pytest.mark.parametrize(
    ("as_of", "topic", "code", "words"),
    [
        ("2023-11-14 03:12", "TopicTest", 1, "is before the start of the history, 2023-11-14"),
        ("2106-01-01", "TopicTest", 2, "command line: --as-of: 2106-01-01 00:00:00Z"),
        ("soon", "TopicTest", 2, "command line: --as-of: 'soon' is not a point in time: expected ISO 8601"),
        (minutes(152), "TopicTest", 1, "the last change was: broker-b unregistered at 2023-11-15"),
        (minutes(30), "nope", 1, "the history does not contain this topic"),
    ],
)
def test_the_message_about_a_missing_past_route_is_one_line(
    run: Run, morning: HistoryOfLogs, as_of: str, topic: str, code: int, words: str
) -> None:
    found = run("route", topic, "--as-of", as_of, "--data-dir", str(morning.settings.data.dir))
    assert found[:2] == (code, "")
    assert words in found[2]
    assert found[2].count("\n") == 1


def test_a_broker_has_sessions_and_changes(ask: Run) -> None:
    code, out, _ = ask("broker-b")
    assert code == 0
    assert "expired" in out
    assert "10.0.0.2:10911 down, 2 topics gone" in out


def test_all_output_formats_have_the_same_content(ask: Run) -> None:
    of_json = json.loads(ask("broker-b", "--json")[1])["sessions"]
    of_csv = list(csv.DictReader(io.StringIO(ask("broker-b", "--csv")[1])))
    assert [row["cause"] or "" for row in of_json] == [row["cause"] for row in of_csv]
    assert [row["heartbeats"] for row in of_json] == [int(row["heartbeats"]) for row in of_csv]
    assert of_csv[0]["down"].startswith("2023-11-14T23:14:5")


def test_heartbeats_before_the_first_count_are_unknown_and_not_zero(run: Run, tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    log.pass_time(90_000)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    question = (
        "history",
        "broker-a",
        "--data-dir",
        str(tmp_path),
        "--since",
        str(BEGIN_MS),
        "--until",
        str(log.now_ms),
    )
    counted = json.loads(run(*question, "--json")[1])
    shutil.rmtree(tables.settings.data.tables_dir / HEARTBEAT_MINUTES)
    before, text = json.loads(run(*question, "--json")[1]), run(*question)[1]
    assert [s["heartbeats"] for s in (*counted["sessions"], *before["sessions"])] == [1, None]
    assert "no heartbeats are counted yet" in text
    assert "no heartbeats are counted yet" not in " ".join(counted["notes"])


def test_heartbeats_of_a_session_after_the_last_count_are_unknown(run: Run, tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    log.pass_time(90_000)
    counted_to = {0: log.state.next_offset}
    log.register(a_registration(broker_name="broker-b"), connection=2)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    tables.write_minutes(counted_to)
    until = str(log.now_ms + 1_000)
    _, out, _ = run("history", "--data-dir", str(tmp_path), "--since", str(BEGIN_MS), "--until", until, "--json")
    assert {b["broker_name"]: b["heartbeats"] for b in json.loads(out)["brokers"]} == {"broker-a": 1, "broker-b": None}


def test_a_topics_changes_are_listed(ask: Run) -> None:
    changes = json.loads(ask("--topic", "TopicTest", "--json")[1])["changes"]
    assert [c["cause"] for c in changes][-2:] == ["topic_deleted", "returned"]
    assert changes[-2]["brokers"] == 0


def test_flaps_have_the_worst_first(ask: Run) -> None:
    flaps = json.loads(ask("--flaps", "--json")[1])["flaps"]
    assert (flaps[0]["broker_name"], flaps[0]["causes"]) == ("loner", {"disconnected": 5})
    assert [f["cluster"] for f in json.loads(ask("--cluster", "c0", "--flaps", "--json")[1])["flaps"]] == ["c0"] * 3


def test_outages_are_those_of_brokers_or_of_a_topic(ask: Run) -> None:
    found = json.loads(ask("--outages", "--json")[1])["outages"]
    assert {o["scope"] for o in found} == {"broker", "broker_name", "cluster"}
    of_topic = json.loads(ask("--outages", "--topic", "TopicTest", "--json")[1])["outages"]
    assert [o["cause"] for o in of_topic if o["scope"] == "topic"] == ["unregistered", "topic_deleted"]


def test_history_without_an_option_shows_availability(ask: Run) -> None:
    brokers = json.loads(ask("--json")[1])["brokers"]
    assert [b["broker_name"] for b in brokers] == ["broker-a", "broker-a", "broker-b", "loner"]
    assert all(0.9 < b["availability"] < 1 for b in brokers)
    assert "loner" not in ask("--cluster", "c0")[1]


@pytest.mark.parametrize("question", [["broker-b"], ["--topic", "TopicTest"], ["--flaps"], ["--outages"], []])
def test_every_question_has_a_plot(ask: Run, tmp_path: Path, question: list[str]) -> None:
    plot = tmp_path / "plot.html"
    assert ask(*question, "--plot", str(plot))[0] == 0
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize(
    ("question", "code", "words"),
    [
        (["nobody"], 1, "the history contains no broker nobody; it begins at 2023-11-14"),
        (["--topic", "nope"], 1, "the history contains no topic nope"),
        (["--cluster", "nowhere", "--flaps"], 1, "the history contains no cluster nowhere"),
        (["broker-b", "--topic", "t"], 2, "BROKER: cannot be combined with --topic"),
        (["--flaps", "--outages"], 2, "--flaps: cannot be combined with --outages"),
        (["--json", "--csv"], 2, "--json: cannot be combined with --csv"),
        ([""], 2, "BROKER: is empty"),
        (["--topic", ""], 2, "--topic: is empty"),
        (["--cluster", ""], 2, "--cluster: is empty"),
        (["broker-b", "--outages"], 2, "use `history --outages` for all brokers, or `history broker-b` for this one"),
        (["--plot", "x.png"], 2, "--plot: x.png does not end in .html"),
        (["broker-b", "--plot", "/no/such/folder/x.html"], 2, "--plot: /no/such/folder is not a directory"),
    ],
)
def test_the_error_about_a_question_without_answer_is_one_line(
    ask: Run, question: list[str], code: int, words: str
) -> None:
    found = ask(*question)
    assert found[:2] == (code, "")
    assert words in found[2]
    assert found[2].count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--until", "2106-01-01"], "--until: 2106-01-01 00:00:00Z"),
        (["--since", "2106-01-01"], "--since: 2106-01-01 00:00:00Z"),
        (["--since", "-1h", "--until", "-2h"], " is not earlier than --until, "),
        (["--since", "now"], " is not earlier than --until, "),
        (["--since", f"{'9' * 400}d"], "--since: '9999"),
        (["--since", "7"], "--since: '7' is not a point in time"),
    ],
)
def test_impossible_period_is_refused(run: Run, tmp_path: Path, flags: list[str], words: str) -> None:
    code, _, errors = run("history", "--data-dir", str(tmp_path), *flags)
    assert code == 2
    assert words in errors


def test_period_before_the_history_is_omitted_and_reported(run: Run, morning: HistoryOfLogs) -> None:
    of_morning = ("--data-dir", str(morning.settings.data.dir), "--until", UNTIL)
    answer = json.loads(run("history", *of_morning, "--since", "1970-01-01", "--json")[1])
    assert answer["since_ms"] == BEGIN_MS
    assert answer["notes"][0] == "the history begins at 2023-11-14 22:13:20Z"
    code, _, errors = run("history", *of_morning[:2], "--since", "1970-01-01", "--until", "1970-01-02")
    assert code == 1
    assert "1970-01-02 00:00:00.000Z is before the start of the history, 2023-11-14" in errors


def test_end_of_the_tables_is_reported(run: Run, morning: HistoryOfLogs) -> None:
    _, out, _ = run("history", "--data-dir", str(morning.settings.data.dir), "--since", str(BEGIN_MS))
    assert "the tables reach to " in out


def test_missing_tables_are_reported_with_their_place(run: Run, tmp_path: Path) -> None:
    for command in (["history"], ["route", "t", "--as-of", "-2h"]):
        code, out, errors = run(*command, "--data-dir", str(tmp_path))
        assert (code, out) == (1, "")
        assert f"there is no table route_archive in {tmp_path}/tables: `up` writes it within two minutes" in errors


def test_disabled_history_is_reported(run: Run, tmp_path: Path) -> None:
    code, _, errors = run("history", "--data-dir", str(tmp_path), "--set", "history.enabled=false")
    assert code == 1
    assert "history.enabled is false" in errors


def test_tables_of_another_format_are_refused(run: Run, tmp_path: Path, morning: HistoryOfLogs) -> None:
    copy = tmp_path / "data"
    shutil.copytree(morning.settings.data.dir, copy)
    first = copy / "tables" / "route_archive" / "_delta_log" / "00000000000000000000.json"
    first.write_text(first.read_text().replace('"minReaderVersion":1', '"minReaderVersion":2'))
    code, _, errors = run("history", "--data-dir", str(copy))
    assert code == 2
    assert "route_archive: protocol (2, " in errors
