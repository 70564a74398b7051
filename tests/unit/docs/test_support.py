"""docs/support.md names the versions in pom files, lock files and image, and existing tests.

Also what the changelog says about every release.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from namesrv_stream.settings import Settings
from namesrv_stream.settings.names import public_key
from tests.support.released_settings import RELEASE, released_settings

_ROOT: Final = Path(__file__).resolve().parents[3]
_PAGE: Final = (_ROOT / "docs" / "support.md").read_text(encoding="utf-8")
#: | what | version | `file`: `artifact` | tests |
_ROW: Final = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<version>[\d.]+) \| `(?P<file>[^`]+)`: `(?P<artifact>[^`]+)` \| (?P<tests>.+) \|$", re.M
)
#: Files whose artifacts of RocketMQ and Kafka are all on the page.
_POMS: Final = ("tests/e2e/pom.xml", "tests/e2e/rocketmq4/pom.xml", "tests/bench/newest/pom.xml", "conf/kafka/pom.xml")
_ON_THE_PAGE: Final = re.compile(r"rocketmq-\w+|kafka_2\.13")


class _Row(NamedTuple):
    what: str
    version: str
    file: str
    artifact: str
    tests: str


def _rows(page: str) -> list[_Row]:
    return [_Row(**found.groupdict()) for found in _ROW.finditer(page)]


def _pinned(file: str, artifact: str) -> str | None:
    """Return the version of an artifact in the file that pins it."""
    text, name = (_ROOT / file).read_text(encoding="utf-8"), re.escape(artifact)
    pattern = {
        ".xml": rf"<artifactId>{name}</artifactId>\s*<version>([^<]+)<",
        ".lock": rf"^{name}==(\S+)",
        ".mod": rf"{name} v(\S+)",
        "": rf"\b{name}[:-](\d+(?:\.\d+)*)",  # the image's recipe
    }[Path(file).suffix]
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None


def _wrong(page: str) -> list[str]:
    return [
        f"{row.what}: {row.version}, but {row.file} has {pinned}"
        for row in _rows(page)
        if (pinned := _pinned(row.file, row.artifact)) != row.version
    ]


def test_every_version_is_the_pinned_one() -> None:
    assert _wrong(_PAGE) == []
    assert len(_rows(_PAGE)) == len(re.findall(r"^\| .+ \| `.+ \|$", _PAGE, re.MULTILINE)) > 15


@pytest.mark.parametrize("row", _rows(_PAGE), ids=lambda row: f"{row.what} {row.version}")
def test_wrong_version_is_detected(row: _Row) -> None:
    assert _pinned(row.file, row.artifact) is not None
    changed = _PAGE.replace(f"| {row.what} | {row.version} |", f"| {row.what} | {row.version}9 |")
    assert len(_wrong(changed)) == 1


def test_all_artifacts_of_rocketmq_and_kafka_are_on_the_page() -> None:
    pinned = {
        (file, artifact)
        for file in _POMS
        for artifact in re.findall(
            r"<artifactId>([^<]+)</artifactId><version>", (_ROOT / file).read_text(encoding="utf-8")
        )
        if _ON_THE_PAGE.fullmatch(artifact)
    }
    assert pinned <= {(row.file, row.artifact) for row in _rows(_PAGE)}
    assert len(pinned) == 7


def test_the_page_names_the_required_versions_of_java_and_python() -> None:
    versions = {row.what: row.version for row in _rows(_PAGE)}
    assert f"JAVA_MAJOR: Final = {versions['Java']} " in (_ROOT / "namesrv_stream/prerequisites.py").read_text("utf-8")
    assert f'requires-python = ">={versions["Python"]}"' in (_ROOT / "pyproject.toml").read_text("utf-8")


def test_every_release_says_how_to_upgrade() -> None:
    releases = re.split(r"^## ", (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert [r.partition("\n")[0] for r in releases if "**Upgrade:** " not in r.partition("\n### ")[0]] == []


def test_the_changelog_names_the_settings_that_the_latest_release_refuses() -> None:
    sections = {name: type(getattr(Settings(), name)) for name in Settings.model_fields}
    keys = {public_key(f"{name}.{key}") for name, section in sections.items() for key in section.model_fields}
    _, found, rest = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition(f"**Go back to {RELEASE}:** ")
    named = set(re.findall(r"`([a-z_.]+)`", rest.partition("\n\n")[0]))
    assert found
    assert keys - released_settings() - named == set()
