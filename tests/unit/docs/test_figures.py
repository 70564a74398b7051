"""Values that several documents quote are equal in all: defaults, benchmark figures, exit codes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from namesrv_stream.settings import Settings

_ROOT: Final = Path(__file__).resolve().parents[3]
_DOCUMENTS: Final = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))]

# ---- defaults of settings ----

_WORDS: Final = {"a": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}
_MS: Final = {
    **{"ms": 1, "s": 1_000, "second": 1_000, "min": 60_000, "minute": 60_000},
    **{"hour": 3_600_000, "day": 86_400_000, "week": 604_800_000},
}
_BYTES: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_UNIT: Final = "|".join([*_MS, *_BYTES])
_NUMBERS: Final = rf"[0-9][0-9,]*(?:\.[0-9]+)?|{'|'.join(_WORDS)}"
_VALUE: Final = rf"(?P<number>{_NUMBERS})(?:[ -](?P<unit>{_UNIT})s?)?\b(?![:.][0-9])"
_KEY: Final = r"`(?P<key>(?:advanced\.)?[a-z_]+\.[a-z_]+)`"
#: "`key` (30 days", "(`key`, two weeks" and "30 days (`key`".
_QUOTED_DEFAULT: Final = [
    re.compile(pattern) for pattern in (rf"{_KEY}\s\({_VALUE}", rf"\({_KEY},\s{_VALUE}", rf"\b{_VALUE}\s\({_KEY}")
]


class _Quoted(NamedTuple):
    key: str
    value: float
    words: str


def _quoted_defaults(text: str) -> Iterator[_Quoted]:
    for pattern in _QUOTED_DEFAULT:
        for found in pattern.finditer(text):
            number = _WORDS.get(found["number"]) or float(found["number"].replace(",", ""))
            factor = {**_MS, **_BYTES}.get(found["unit"] or "", 1)
            if found["unit"] or found["number"] not in _WORDS:
                yield _Quoted(found["key"], number * factor, " ".join(found[0].split()))


def _default(key: str) -> object:
    section, _, name = key.removeprefix("advanced.").partition(".")
    value = getattr(getattr(Settings(), section, None), name, None)
    if isinstance(value, str) and (heap := re.fullmatch(r"(\d+)([mg])", value)):
        return int(heap[1]) << {"m": 20, "g": 30}[heap[2]]
    return value


def _wrong_defaults(text: str) -> list[str]:
    return [
        f"{quoted.words}: the default of {quoted.key} is {_default(quoted.key)}"
        for quoted in _quoted_defaults(text)
        if _default(quoted.key) is not None and quoted.value != _default(quoted.key)
    ]


def test_defaults_that_documents_quote_are_those_of_the_settings() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in _DOCUMENTS}
    assert {name: wrong for name, text in texts.items() if (wrong := _wrong_defaults(text))} == {}
    assert len([quoted for text in texts.values() for quoted in _quoted_defaults(text)]) > 20


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("kept for 30 days (`streaming.changes_retention_ms`).", False),
        ("kept for about a day (`streaming.changes_retention_ms`).", True),
        ("for a week (`kafka.retention_ms`)", False),
        ("(`history.events_retention_ms`,\ntwo weeks)", False),
        ("`advanced.http.max_connections` (1,000)", False),
        ("`advanced.http.max_connections` (1,001)", True),
        ("`streaming.driver_memory` (1 GiB)", False),
        ("`kafka.max_message_bytes` (20 MiB) and", False),
        ("`liveness.server_lost_ms` (15 min)", True),
        ("by a client (`http.max_streams` is a limit)", False),
    ],
)
def test_wrong_default_is_detected(text: str, wrong: bool) -> None:
    assert bool(_wrong_defaults(text)) is wrong


# ---- figures of the benchmarks ----

_RESULTS: Final[list[dict[str, Any]]] = json.loads((_ROOT / "bench/results.json").read_text(encoding="utf-8"))[
    "figures"
]
_NUMBER: Final = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?")
_CONTENDERS: Final = ("ours", "Java 5.3.3", "Java 5.5.0")
_READS: Final = ("queries a second", "p99, ms")
#: Start of a row in the summary of docs/performance.md → row of the results, and the figures that its cells begin with.
_SUMMARY_ROWS: Final = {
    "route queries per second, 2,000 topics on 4 brokers, 16 connections": ("route reads, 16 connections", _READS),
    "the same, 64 connections": ("route reads, 64 connections", _READS),
    "the same, 1,024 connections": ("route reads, 1,024 connections", _READS),
    "100,000 topics on 16 of 1,000 brokers": ("100,000 topics on 16 of 1,000 brokers, 1,024 connections", _READS),
    "95 % reads, 5 % unchanged": ("95 % reads, 5 % unchanged registrations", ("requests a second", "read p99, ms")),
    "the same with changed": ("95 % reads, 5 % changed registrations", ("requests a second", "read p99, ms")),
    "reads' p99 while 300 brokers": ("300 brokers of 2,000 topics, all changed", ("read p99 meanwhile, ms",)),
    "memory of the server, 2,000": ("route reads", ("memory of the server, MB",)),
    "memory with 1,000 brokers": ("memory at rest, 1,000 brokers, 20,000 topics on 4 each", ("server, MB",)),
    "heartbeats per second": ("heartbeats of 1,000 brokers over 64 connections", ("answered a second", "p99, ms")),
}
_PROPAGATION: Final = "a change in Kafka to the memory of another server, 1,000 brokers"
_AT_REST: Final = "memory at rest, 1,000 brokers, 20,000 topics on 4 each"
#: Sentences elsewhere: document, pattern with one group for each figure, the figures.
_SENTENCES: Final = [
    (
        "docs/performance.md",
        r"p50 / p99 \| ([\d.]+) / ([\d.]+) ms",
        [(_PROPAGATION, "p50, ms"), (_PROPAGATION, "p99, ms")],
    ),
    ("docs/capacity.md", r"p50 ([\d.]+) ms, p99 ([\d.]+) ms", [(_PROPAGATION, "p50, ms"), (_PROPAGATION, "p99, ms")]),
    ("docs/capacity.md", r"20,000 topics on 4 brokers each \| (\d+) MB", [(_AT_REST, "server, MB")]),
    (
        "docs/capacity.md",
        r"A server answers ([\d,]+) to ([\d,]+) of them a second",
        [("route reads, 16 connections", _READS[0]), ("route reads, 64 connections", _READS[0])],
    ),
]


def _measured(row: str, name: str, contender: str = "ours") -> float:
    (figure,) = [figure for figure in _RESULTS if (figure["row"], figure["name"]) == (row, name)]
    return float(figure["values"][contender]["median"])


def _is_rounded(quoted: str, measured: float) -> bool:
    """Whether a quoted figure is the measured one rounded to two digits or to its own last decimal."""
    value = float(quoted.replace(",", ""))
    unit = 10.0 ** -len(quoted.partition(".")[2])
    return abs(value - measured) <= max(unit * 0.51, 0.005 * measured)


def _cells(text: str, label: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {label}")]
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def _summary_differences(text: str) -> list[str]:
    found = []
    for label, (row, names) in _SUMMARY_ROWS.items():
        for contender, cell in zip(_CONTENDERS, _cells(text, label), strict=True):
            scale = 0.001 if " GB" in cell.split("(")[0] else 1  # the results are in MB
            wanted = [_measured(row, name, contender) * scale for name in names]
            quoted = _NUMBER.findall(cell)[: len(wanted)]
            if not all(_is_rounded(*pair) for pair in zip(quoted, wanted, strict=True)):
                found.append(f"{label}, {contender}: {cell}, measured {wanted}")
    return found


def test_the_summary_quotes_the_results_of_the_benchmarks() -> None:
    assert _summary_differences((_ROOT / "docs/performance.md").read_text(encoding="utf-8")) == []


def test_wrong_figure_in_the_summary_is_detected() -> None:
    text = (_ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert len(_summary_differences(text.replace("152,900 (", "151,900 ("))) == 1
    assert len(_summary_differences(text.replace("935 ms", "953 ms"))) == 1


@pytest.mark.parametrize(("document", "pattern", "figures"), _SENTENCES)
def test_a_sentence_quotes_the_results_of_the_benchmarks(
    document: str, pattern: str, figures: list[tuple[str, str]]
) -> None:
    text = " ".join((_ROOT / document).read_text(encoding="utf-8").split())
    found = re.findall(pattern, text)
    assert found, "the sentence has changed: change the pattern too"
    for each in found:
        quoted = each if isinstance(each, tuple) else (each,)
        assert all(_is_rounded(q, _measured(*figure)) for q, figure in zip(quoted, figures, strict=True)), (
            each,
            figures,
        )


def _performance_rows() -> Iterator[tuple[str, str, str]]:
    """Return (row, name, our cell) of the tables in docs/performance.md that name rows of the results."""
    row = ""
    for line in (_ROOT / "docs/performance.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if len(cells) == 7 and cells[0].startswith("**"):
            row = cells[0].strip("*")
        elif len(cells) == 7 and row and cells[0] != "what" and _NUMBER.search(cells[1]):
            yield row, cells[0], cells[1]


def test_the_tables_of_the_performance_page_are_the_results() -> None:
    rows = list(_performance_rows())
    assert len(rows) > 40
    wrong = [
        (row, name, cell) for row, name, cell in rows if not _is_rounded(_NUMBER.findall(cell)[0], _measured(row, name))
    ]
    assert wrong == []


# ---- exit codes ----


def test_exit_codes_are_listed_in_one_place_only() -> None:
    lists = re.compile(r"[Ee]xit codes?: ?0|\b0 (?:fine|done|answered)\b|^\| 0 \| done", re.MULTILINE)
    assert [path.name for path in _DOCUMENTS if lists.search(path.read_text(encoding="utf-8"))] == ["operations.md"]
