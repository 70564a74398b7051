"""An answer as rows and columns, and the three forms in which it is told: tables for people, JSON, CSV.

Instants are columns whose names end in ``_ms`` without being durations: epoch milliseconds in JSON, ISO 8601 in UTC in
CSV and in this machine's zone in tables. Names are as brokers told them in JSON alone: in CSV and tables control
characters are escaped, so that a row is a line and does nothing to a terminal.
"""

import csv
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from namesrv_stream.client.mqadmin_tables import printable
from namesrv_stream.history.extent import Extent
from namesrv_stream.instants import duration, instant, iso_instant

_WIDE: Final = 10_000  # a line stays a line for grep where stdout is no terminal
_LEAST_TEXT_WIDTH: Final = 24
#: What people are shown of a value: RocketMQ allows topics of 127 characters; a text may have some dozens of names.
_MOST_CHARS: Final = 128
_MOST_TEXT_CHARS: Final = 2_000

Show = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        key: In rows.
        title: For people.
        show: A value that is not None, for people.
        is_instant: Whether values are epoch milliseconds.
        is_text: Whether a value may be long, and is folded where the terminal is narrow.
        is_for_scripts: Whether people are spared it.
    """

    key: str
    title: str
    show: Show = str
    justify: Literal["left", "right"] = "left"
    is_instant: bool = False
    is_text: bool = False
    is_for_scripts: bool = False


def at_column(key: str, title: str, *, is_for_scripts: bool = False) -> Column:
    """A column of instants."""

    def show(at_ms: int) -> str:
        return instant(at_ms)

    return Column(key, title, show, is_instant=True, is_for_scripts=is_for_scripts)


def duration_column(key: str, title: str) -> Column:
    """A column of durations in milliseconds."""
    return Column(key, title, duration, "right")


def number_column(key: str, title: str, show: Show = "{:,}".format) -> Column:
    return Column(key, title, show, "right")


@dataclass(frozen=True, slots=True)
class Section:
    """A table of an answer.

    Attributes:
        name: In JSON.
        title: Above it, for people.
        rows: Each with the keys of all columns, and no others.
        emphasis: Which rows people should see first.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    emphasis: Callable[[Mapping[str, Any]], bool] = lambda row: False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question is answered with.

    Attributes:
        since_ms: The time it is about, epoch milliseconds.
        until_ms: Its end.
        sections: The first is the one that CSV has.
        extent: Of the history.
        notes: What else people should know.
    """

    since_ms: int
    until_ms: int
    sections: Sequence[Section]
    extent: Extent
    notes: Sequence[str] = field(default_factory=tuple)


def as_text(answer: Answer) -> RenderableType:
    """Tables, and below them of what time they tell."""
    parts: list[RenderableType] = []
    for section in answer.sections:
        parts += [
            Text(printable(section.title), style="bold"),
            _table(section) if section.rows else Text("none"),
            Text(),
        ]
    parts += [Text(note) for note in answer.notes]
    span = f"from {instant(answer.since_ms)} to {instant(answer.until_ms)}"
    parts.append(Text(f"{span}; {answer.extent.reach()}", style="dim"))
    return Group(*parts)


def _table(section: Section) -> Table:
    table = Table(box=None, pad_edge=False)
    shown = [c for c in section.columns if not c.is_for_scripts]
    columns = [c for c in shown if any(row[c.key] is not None for row in section.rows)]
    for column in columns:
        width = _LEAST_TEXT_WIDTH if column.is_text else None
        table.add_column(
            column.title, justify=column.justify, overflow="fold", no_wrap=not column.is_text, min_width=width
        )
    for row in section.rows:
        style = "bold red" if section.emphasis(row) else None
        table.add_row(*(Text(_shown(c, row[c.key])) for c in columns), style=style)
    return table


def _shown(column: Column, value: Any) -> str:
    text = "" if value is None else printable(column.show(value))
    most = _MOST_TEXT_CHARS if column.is_text else _MOST_CHARS
    return text if len(text) <= most else f"{text[:most]}…"


def as_json(answer: Answer) -> dict[str, Any]:
    """All of it; instants in epoch milliseconds."""
    return {
        "since_ms": answer.since_ms,
        "until_ms": answer.until_ms,
        "history": answer.extent.as_json(),
        "notes": list(answer.notes),
        **{section.name: [dict(row) for row in section.rows] for section in answer.sections},
    }


def as_csv(section: Section) -> str:
    """One line a row below a line of names; instants lose their ``_ms``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([c.key.removesuffix("_ms") if c.is_instant else c.key for c in section.columns])
    for row in section.rows:
        writer.writerow([_cell(column, row[column.key]) for column in section.columns])
    return text.getvalue()


def _cell(column: Column, value: Any) -> Any:
    if value is None:
        return ""
    if column.is_instant:
        return iso_instant(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = " ".join(value)
    if not isinstance(value, str):
        return value
    # What a spreadsheet would take for a formula is text.
    return f"'{printable(value)}" if value.startswith(("=", "+", "-", "@")) else printable(value)


def print_text(answer: Answer) -> None:
    """Print it to stdout, as wide as it must be where that is no terminal."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=_WIDE)
    text = as_text(answer)
    # Instants and addresses are not broken: the terminal folds a line that is too long for it.
    console.print(text, width=max(console.width, console.measure(text).minimum), crop=False)
