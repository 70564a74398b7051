"""``namesrv-stream report`` on real tables: page, JSON, exit codes, and one line for each failure."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from namesrv_stream.cli import main
from tests.support.builders import BEGIN_MS, Log, a_registration
from tests.support.history_tables import HistoryOfLogs

Run = Callable[..., tuple[int, str, str]]

MINUTE_MS = 60_000
UNTIL = str(BEGIN_MS + 180 * MINUTE_MS)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs ``report`` and returns (exit code, stdout, stderr)."""

    def run_main(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["namesrv-stream", "report", *arguments])
        code = main()
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run_main


@pytest.fixture
def ask(run: Run, morning: HistoryOfLogs) -> Run:
    """Returns a function that runs ``report`` on the tables of the morning."""

    def ask_report(*arguments: str) -> tuple[int, str, str]:
        of_morning = ("--data-dir", str(morning.settings.data.dir), "--since", str(BEGIN_MS), "--until", UNTIL)
        return run(*of_morning, *arguments)

    return ask_report


_REPORTS: Final[dict[tuple[str, ...], str]] = {}


def report_of(ask: Run, *arguments: str) -> dict[str, Any]:
    """Return the report of the morning, which is made once for the same arguments."""
    if arguments not in _REPORTS:
        code, _REPORTS[arguments], _ = ask(*arguments, "--json")
        assert code == 0
    found: dict[str, Any] = json.loads(_REPORTS[arguments])
    return found


def test_report_has_the_figures_of_the_example_log(ask: Run) -> None:
    found = report_of(ask)
    (summary,) = found["summary"]
    # loner 5 times 2 min; broker-b 8 min 29 s and 4 min 6.5 s; both processes of broker-a some 4 min.
    assert (summary["brokers"], summary["up"], summary["interruptions"], summary["failures"]) == (4, 4, 9, 6)
    assert summary["down_ms"] == 600_000 + 509_000 + 246_500 + 243_500 + 245_000
    assert summary["known_ms"] == 4 * 180 * MINUTE_MS - (1 + 2 + 3 + 4) * 1_000
    assert summary["availability"] == pytest.approx(1 - summary["down_ms"] / summary["known_ms"])
    assert summary["mttr_ms"] == summary["down_ms"] / 9
    assert {e["cause"]: e["count"] for e in found["endings"]} == {"disconnected": 5, "unregistered": 3, "expired": 1}
    assert [(c["cluster"], c["dark_ms"]) for c in found["clusters"]] == [("c1", 600_000), ("c0", 242_500)]
    assert [f["broker_name"] for f in found["flaps"]] == ["loner"]


def test_delay_of_an_expiry_is_measured_from_its_deadline(ask: Run) -> None:
    delays = {d["delay"]: d for d in report_of(ask)["delays"]}
    assert (delays["expiry"]["count"], delays["expiry"]["max_ms"]) == (1, 1_000)
    assert delays["silence"]["count"] == 9


def test_a_page_is_written(ask: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    code, out, errors = ask("--html", str(path))
    assert (code, errors) == (0, "")
    assert out.splitlines()[-1] == f"written to {path}"
    assert "Broker availability" in path.read_text()


def test_page_and_json_can_be_combined(ask: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    found = report_of(ask, "--html", str(path))
    assert found["clusters"][0]["cluster"] in path.read_text()


def test_without_a_page_tables_are_printed(ask: Run) -> None:
    code, out, _ = ask()
    assert code == 0
    assert "brokers by how long they were down" in out


def test_report_of_a_cluster_has_only_its_brokers(ask: Run) -> None:
    found = report_of(ask, "--cluster", "c1")
    assert [b["broker_name"] for b in found["brokers"]] == ["loner"]
    assert {m["cluster"] for m in found["missed"]} <= {"c1"}
    assert sum(p["heartbeats"] for p in found["pieces"]) < sum(p["heartbeats"] for p in report_of(ask)["pieces"])


def test_objective_is_given_in_percent(ask: Run) -> None:
    for text in ("99.9%", " 99.9 "):
        assert report_of(ask, "--slo", text)["summary"][0]["objective"] == pytest.approx(0.999)


def test_objective_decides_whether_it_is_met(ask: Run) -> None:
    assert [c["met"] for c in report_of(ask, "--slo", "90")["clusters"]] == [True, True]
    assert [c["met"] for c in report_of(ask, "--slo", "95")["clusters"]] == [False, True]


def test_json_has_the_keys_of_its_document(ask: Run) -> None:
    text = (Path(__file__).parents[4] / "docs" / "report.md").read_text()
    found = report_of(ask)
    for section, rows in found.items():
        if isinstance(rows, list):
            assert f"`{section}`" in text
            missing = [key for row in rows for key in row if f"`{key}`" not in text]
            assert missing == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--cluster", "nowhere"], 1, "the history contains no cluster nowhere; it begins at 2023-11-14"),
        (["--cluster", ""], 2, "--cluster: is empty"),
        (["--slo", "100"], 2, "--slo: must be a percentage between 0 and 100, for example 99.9, but is '100'"),
        *((["--slo", text], 2, f"99.9, but is '{text}'") for text in ("0", "nan", "inf", "many", "", "99,9")),
        (["--since", "soon"], 2, "--since: 'soon' is not a point in time"),
        (["--until", "2106-01-01"], 2, "is in the future"),
        (["--until", str(BEGIN_MS - 1)], 2, "is not earlier than"),
        (["--html", "/no/such/folder/x.html"], 2, "--html: /no/such/folder/x.html cannot be written: No such file"),
        (["--html", "/"], 2, "--html: / cannot be written: Is a directory"),
        (["--pdf", "x"], 2, "No such option"),
    ],
)
def test_an_error_is_one_line(ask: Run, arguments: list[str], code: int, words: str) -> None:
    found = ask(*arguments)
    assert found[:2] == (code, "")
    assert words in found[2]
    assert found[2].count("\n") == 1


def test_missing_tables_are_reported_with_their_place(run: Run, tmp_path: Path) -> None:
    code, out, errors = run("--data-dir", str(tmp_path))
    assert (code, out) == (1, "")
    assert f"there is no table route_archive in {tmp_path}/tables" in errors


def test_without_heartbeats_the_rest_is_reported(run: Run, morning: HistoryOfLogs, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(morning.settings.data.dir, copy)
    shutil.rmtree(copy / "tables" / "heartbeat_minutes")
    code, out, _ = run("--data-dir", str(copy), "--since", str(BEGIN_MS), "--until", UNTIL, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["summary"][0]["missed"] is None
    assert [u["what"] for u in found["unknown"]] == ["heartbeats"]


def test_a_table_that_cannot_be_read_is_named(run: Run, morning: HistoryOfLogs, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(morning.settings.data.dir, copy)
    for path in (copy / "tables" / "heartbeat_minutes").rglob("*.parquet"):
        path.write_bytes(b"PAR1 no more")
    code, out, errors = run("--data-dir", str(copy), "--since", str(BEGIN_MS), "--until", UNTIL)
    assert (code, out) == (2, "")
    assert "heartbeat_minutes" in errors
    assert errors.count("\n") == 1


def test_hostile_names_do_not_break_the_report(run: Run, tmp_path: Path) -> None:
    name = '<script>alert("1")</script>'
    broker = a_registration("10.0.0.1:10911", broker_name=name, cluster=name)
    log = Log()
    log.register(broker)
    log.tick(60_000)
    log.disconnect(broker)
    log.tick(60_000)
    log.register(broker, connection=2)
    tables = HistoryOfLogs(tmp_path / "data", log)
    tables.write_all()
    path = tmp_path / "report.html"
    span = ("--since", str(BEGIN_MS), "--until", str(log.now_ms))
    assert run("--data-dir", str(tables.settings.data.dir), *span, "--html", str(path))[0] == 0
    assert "<script" not in path.read_text()
    assert "&lt;script&gt;" in path.read_text()
