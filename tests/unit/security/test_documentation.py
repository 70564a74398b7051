"""docs/security.md names existing tests, and each item of its lists has one."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
_DOCUMENT = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
_NAME = re.compile(r"`(test_\w+)`")
_PATH = re.compile(r"`(tests/[\w/.]+)`")


def test_every_named_test_exists() -> None:
    named = set(_NAME.findall(_DOCUMENT))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py"))
    assert named
    assert sorted(name for name in named if f"def {name}(" not in sources) == []
    assert [path for path in _PATH.findall(_DOCUMENT) if not (REPOSITORY / path).exists()] == []


def test_every_item_names_a_test_or_says_that_it_has_none() -> None:
    rows = re.findall(r"^\| (\d+)\. .*? \| (.*) \|$", _DOCUMENT, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 15))
    assert [
        number for number, test in rows if not (_NAME.search(test) or _PATH.search(test) or "not run" in test)
    ] == []
