"""Output formats for scripts have the keys that docs/history.md lists."""

import json
import re
import sys
from pathlib import Path

import pytest

from namesrv_stream.cli import main
from namesrv_stream.history.answer_tables import percent
from tests.support.builders import BEGIN_MS
from tests.support.history_tables import HistoryOfLogs

_DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "history.md"
_INSTANTS = ("at_ms", "begin_ms", "end_ms", "up_ms", "down_ms", "last_heard_ms")


def documented() -> list[tuple[str, list[str]]]:
    """Return the documented tables and the keys of their rows."""
    text = _DOCUMENT.read_text().partition("## For scripts")[2]
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", text, re.MULTILINE)
    return [(name, re.findall(r"`(\w+)`", keys)) for name, keys in rows]


def ask(tables: HistoryOfLogs, monkeypatch: pytest.MonkeyPatch, *question: str) -> None:
    of_morning = ("--since", str(BEGIN_MS), "--until", str(BEGIN_MS + 180 * 60_000))
    flags = ("--data-dir", str(tables.settings.data.dir), *of_morning)
    monkeypatch.setattr(sys, "argv", ["namesrv-stream", "history", *question, *flags])
    assert main() == 0


@pytest.mark.parametrize(
    ("number", "question"),
    [
        (0, ["broker-b"]),
        (1, ["broker-b"]),
        (2, ["--topic", "TopicTest"]),
        (3, []),
        (4, ["--flaps"]),
        (5, ["--outages"]),
        (5, ["--outages", "--topic", "TopicTest"]),
    ],
)
def test_the_keys_of_every_row_are_those_that_are_documented(
    number: int,
    question: list[str],
    morning: HistoryOfLogs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, keys = documented()[number]
    ask(morning, monkeypatch, *question, "--json")
    answer = json.loads(capsys.readouterr().out)
    assert {"since_ms", "until_ms", "history", "notes"} < answer.keys()
    assert set(answer["history"]) == {"begin_ms", "stored_to_ms", "reaches_ms", "lost_until_ms"}
    assert answer[name]
    assert all(row.keys() == set(keys) for row in answer[name])
    if number != 1:  # the second table of an answer is not in its CSV
        ask(morning, monkeypatch, *question, "--csv")
        header = capsys.readouterr().out.partition("\n")[0]
        assert header == ",".join(key.removesuffix("_ms") if key in _INSTANTS else key for key in keys)


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100%"), (0.999_999_9, "99.999%"), (0.29, "29.000%"), (0.99999, "99.999%"), (0.0, "0.000%")],
)
def test_percentages_are_never_rounded_up(share: float, text: str) -> None:
    assert percent(share) == text
