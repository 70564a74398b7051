"""Hostile broker names break no table, CSV file or plot, and send no control characters to a terminal."""

import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest

from namesrv_stream.cli import main
from tests.support.builders import BEGIN_MS, RW, Log, a_registration
from tests.support.history_tables import HistoryOfLogs

EVIL = 'b,"\n\x1b[31m\r\x9b$\\frac{$ [red]\\'
CLUSTER = "=1+1\n\u202e名"
HUGE = "x" * 5_000
FROM_BEGIN = ("--since", str(BEGIN_MS - 1))


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> HistoryOfLogs:
    """Tables of brokers with a hostile name and with a very long one, which start, end and start again."""
    log = Log()
    of_evil = a_registration("_evil$:1", broker_name=EVIL, cluster=CLUSTER, topics={EVIL: RW, "t": RW})
    of_huge = a_registration(HUGE, broker_name=HUGE, cluster=HUGE, topics={HUGE: RW, "t": RW})
    for connection in (1, 2):
        for registration in (of_evil, of_huge):
            log.register(registration, connection=connection, after_ms=1_000)
            log.beat(registration, after_ms=1_000)
            log.disconnect(registration, connection=connection)
    for registration in (of_evil, of_huge):
        log.register(registration, connection=3, after_ms=1_000)
    tables = HistoryOfLogs(tmp_path_factory.mktemp("evil"), log)
    tables.write_all()
    return tables


QUESTIONS = [
    ("brokers", []),
    ("flaps", ["--flaps"]),
    ("outages", ["--outages"]),
    ("sessions", [EVIL]),
    ("sessions", [HUGE]),
    ("changes", ["--topic", EVIL]),
    ("outages", ["--topic", EVIL, "--outages"]),
    ("brokers", ["--cluster", CLUSTER]),
]


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["namesrv-stream", *arguments])
    assert main() == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("section", "question"), QUESTIONS)
def test_hostile_names_do_not_break_any_output_format(
    section: str,
    question: list[str],
    evil: HistoryOfLogs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("history", *question, *FROM_BEGIN, "--data-dir", str(evil.settings.data.dir))
    plot = tmp_path / "plot.html"
    text = run(monkeypatch, capsys, *asked, "--plot", str(plot))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert max(map(len, text.splitlines())) < 4_000
    page = plot.read_text()
    assert not re.search("[\x1b\x9b\u202e]", page)
    assert len(page) < 60_000

    rows = json.loads(run(monkeypatch, capsys, *asked, "--json"))[section]
    of_csv = run(monkeypatch, capsys, *asked, "--csv")
    assert all(char.isprintable() or char == "\n" for char in of_csv)
    assert len(of_csv.splitlines()) == 1 + len(rows)
    read = list(csv.DictReader(io.StringIO(of_csv)))
    assert len(read) == len(rows)
    assert not any(value.startswith("=") for row in read for value in row.values())


def test_json_has_hostile_names_unchanged(
    evil: HistoryOfLogs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("history", *FROM_BEGIN, "--json", "--data-dir", str(evil.settings.data.dir))
    rows = json.loads(run(monkeypatch, capsys, *asked))["brokers"]
    assert {(row["cluster"], row["broker_name"]) for row in rows} == {(CLUSTER, EVIL), (HUGE, HUGE)}


def test_past_route_with_hostile_names_is_a_table(
    evil: HistoryOfLogs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("route", EVIL, "--as-of", str(BEGIN_MS + 1_500), "--data-dir", str(evil.settings.data.dir))
    text = run(monkeypatch, capsys, *asked)
    assert all(char.isprintable() or char == "\n" for char in text)


def test_a_terminal_of_another_encoding_gets_escapes(evil: HistoryOfLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stdout, encoding="ascii", write_through=True))
    asked = ["history", "--topic", EVIL, *FROM_BEGIN, "--data-dir", str(evil.settings.data.dir)]
    monkeypatch.setattr(sys, "argv", ["namesrv-stream", *asked])
    assert main() == 0
    assert b"+b," in stdout.getvalue()
