"""Links within the documents lead to existing files and headings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from namesrv_stream.run_books import RunBook

_ROOT: Final = Path(__file__).resolve().parents[3]
_DOCUMENTS: Final = sorted(
    path.relative_to(_ROOT)
    for folder, pattern in ((".", "*.md"), ("docs", "**/*.md"))
    for path in (_ROOT / folder).glob(pattern)
)
_FENCE: Final = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)(?: \"[^\"]*\")?\)|^\[[^\]]+\]: (\S+)", re.MULTILINE)
_HEADING: Final = re.compile(r"^#+ +(.*?) *#*$", re.MULTILINE)
_LINK_IN_HEADING: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*:")


def _links(text: str) -> Iterator[str]:
    for found in _LINK.finditer(_CODE.sub("", _FENCE.sub("", text))):
        link = found[1] or found[2]
        if not _ELSEWHERE.match(link):
            yield link


def _anchors(text: str) -> set[str]:
    """Return the names that GitHub gives to headings; the second of equal ones gets -1."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        name = re.sub(r"[^\w\- ]", "", _LINK_IN_HEADING.sub(r"\1", heading).lower()).replace(" ", "-")
        number = 0
        while (anchor := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(anchor)
    return found


def _is_broken(document: Path, link: str) -> str:
    name, _, anchor = link.partition("#")
    target = (_ROOT / document).parent / name if name else _ROOT / document
    if not target.exists():
        return f"{link}: there is no such file"
    if anchor and target.suffix == ".md" and anchor not in _anchors(target.read_text(encoding="utf-8")):
        return f"{link}: it has no such heading"
    return ""


@pytest.mark.parametrize("run_book", RunBook)
def test_run_books_that_the_product_names_exist(run_book: RunBook) -> None:
    assert _is_broken(Path("README.md"), run_book) == ""


def test_documents_are_found() -> None:
    assert {Path("README.md"), Path("docs/security.md"), Path("docs/adr/0001-log-as-clock.md")} <= set(_DOCUMENTS)


def test_index_of_the_decisions_has_every_record_with_its_heading() -> None:
    folder = _ROOT / "docs/adr"
    records = {path.name: path.read_text(encoding="utf-8").splitlines()[0] for path in folder.glob("[0-9]*.md")}
    rows = re.findall(
        r"^\| \[(\d+)\]\((.+)\) \| .* \| (.*) \|$", (folder / "README.md").read_text(encoding="utf-8"), re.M
    )
    assert [(number, name) for number, name, _ in rows] == [(name[:4], name) for name in sorted(records)]
    assert len({name[:4] for name in records}) == len(records)
    notes = {name: f"# {number} {title}".removeprefix(records[name]) for number, name, title in rows}
    assert [(name, note) for name, note in notes.items() if not re.fullmatch(r"( \(.*by \d+\))?", note)] == []


@pytest.mark.parametrize("document", _DOCUMENTS, ids=str)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    links = _links((_ROOT / document).read_text(encoding="utf-8"))
    assert [why for link in links if (why := _is_broken(document, link))] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](docs/security.md)", False),
        ("[a](docs/security.md#certificates-a-run-book)", False),
        ("[a](docs/security.md#no-such)", True),
        ("![a](docs/images/absent.png)", True),
        ("[a]: docs/absent.md", True),
        ("```\n[a](absent.md)\n```", False),
        ("`[a](absent.md)`", False),
        ("[a](https://example.org/absent.md)", False),
    ],
)
def test_wrong_link_is_detected(text: str, wrong: bool) -> None:
    assert any(_is_broken(Path("README.md"), link) for link in _links(text)) is wrong
