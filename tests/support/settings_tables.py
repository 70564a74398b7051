"""Generates the tables of docs/configuration.md from conf/defaults.toml and from the tables of RocketMQ's keys.

``python -m tests.support.settings_tables`` writes them; a test compares the document with them.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from namesrv_stream.settings.conf_file import COUNTERPARTS, TLS_COUNTERPARTS, TLS_WITHOUT_MEANING, WITHOUT_MEANING
from namesrv_stream.settings.names import public_key

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = REPOSITORY / "docs" / "configuration.md"
ADVANCED_DOCUMENT = REPOSITORY / "docs" / "advanced-settings.md"
_DEFAULTS = REPOSITORY / "conf" / "defaults.toml"
_SECTION = re.compile(r"\[([a-z_.]+)\](?:  # (.*))?")
_SETTING = re.compile(r"([a-z_]+) = (.+?)(?:  # (.*))?")
_UNITS = {
    "ms": (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1_000)),
    "bytes": (("MiB", 1 << 20), ("KiB", 1 << 10)),
}


class Entry(NamedTuple):
    """A setting, or a table of options, as conf/defaults.toml describes it.

    Attributes:
        key: ``section.key``.
        default: Its default in TOML; empty for a table of options.
        meaning: Its meaning.
        range: The values that it can have; empty for an advanced setting.
        advice: When to change it, and what that costs; empty for an advanced setting.
    """

    key: str
    default: str
    meaning: str
    range: str = ""
    advice: str = ""


def sections() -> Iterator[tuple[str, str, list[Entry]]]:
    """Yield name, comment and settings of every section of conf/defaults.toml."""
    name, title, entries, comment = "", "", list[Entry](), list[str]()
    for line in _DEFAULTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            comment.append(line.removeprefix("# "))
            continue
        if section := _SECTION.fullmatch(line):
            if comment:  # a table of options in the section
                entries.append(Entry(section[1], "", *_parts(comment)))
            else:
                if entries:
                    yield name, title, entries
                name, title, entries = section[1], section[2] or "", []
        elif setting := _SETTING.fullmatch(line):
            key, default, meaning = setting.groups()
            parts = (meaning,) if meaning else _parts(comment)
            entries.append(Entry(f"{name}.{key}", default, *parts))
        comment = []
    yield name, title, entries


def _parts(comment: list[str]) -> tuple[str, str, str]:
    """Return meaning, range and advice; a table of options has no range."""
    meaning, _, advice = " ".join(comment).partition(" Advice: ")
    meaning, _, values = meaning.partition(" Range: ")
    return meaning, values, advice


def settings_lines() -> Iterator[str]:
    """Yield a table for each section: the documented settings."""
    for name, title, entries in sections():
        if name.startswith("advanced."):
            continue
        yield from (f"### `{name}`", "", f"{title[:1].upper()}{title[1:]}.", "")
        yield from ("| key | default | range | meaning, and when to change it |", "|---|---|---|---|")
        for entry in entries:
            default = _default(entry) if entry.default else "a table"
            meaning = f"{entry.meaning} {entry.advice}"
            yield f"| `{entry.key}` | {default} | {_cell(entry.range.removesuffix('.'))} | {_cell(meaning)} |"
        yield ""


def advanced_lines() -> Iterator[str]:
    """Yield a table of the advanced settings."""
    yield from ("| key | default | meaning |", "|---|---|---|")
    for name, _, entries in sections():
        if name.startswith("advanced."):
            yield from (f"| `{entry.key}` | {_default(entry)} | {_cell(entry.meaning)} |" for entry in entries)


def _default(entry: Entry) -> str:
    """Return the default in TOML, and also in a larger unit if it is a round number there."""
    value = tomllib.loads(f"value = {entry.default}")["value"]
    for unit, size in _UNITS.get(entry.key.rpartition("_")[2], ()):
        if value >= size and value % size == 0:
            count = value // size
            return f"`{entry.default}` ({count} {unit[:-1] if count == 1 and unit.endswith('s') else unit})"
    return f"`{entry.default}`"


def rocketmq_lines() -> Iterator[str]:
    """Yield a table of RocketMQ's keys: the corresponding setting, or why the key has no effect."""
    yield from ("| RocketMQ's key | here |", "|---|---|")
    for name, (section, key, factor) in sorted({**COUNTERPARTS, **TLS_COUNTERPARTS}.items()):
        yield f"| `{name}` | `{public_key(f'{section}.{key}')}`{f', times {factor}' if factor != 1 else ''} |"
    for name, reason in sorted({**WITHOUT_MEANING, **TLS_WITHOUT_MEANING}.items()):
        yield f"| `{name}` | no effect: {_cell(reason)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_PARTS = {
    "settings": settings_lines,
    "rocketmq-keys": rocketmq_lines,
    "advanced-settings": advanced_lines,
}


def with_tables(document: str) -> str:
    """Return the document with up-to-date generated parts."""
    for name, lines in _PARTS.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        head, found, rest = document.partition(begin)
        if not found:
            continue
        _, found, tail = rest.partition(end)
        assert found, f"the document has no end of {name}"
        document = head + begin + "\n" + "\n".join(lines()).rstrip() + "\n\n" + end + tail
    return document


if __name__ == "__main__":
    for path in (DOCUMENT, ADVANCED_DOCUMENT):
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
