"""An answer as rows and columns, the time that it covers, and its three forms: readable tables, JSON and CSV.

Columns of times and of durations have names that end in ``_ms``. Times are epoch milliseconds in JSON, ISO 8601 in UTC
in CSV, and UTC in tables. Only JSON contains names exactly as brokers sent them. In CSV and tables, control
characters are escaped, so that a row is one line and cannot affect a terminal.
"""

import csv
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from rich.table import Table
from rich.text import Text

from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.instants import duration, instant, iso_instant
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory
from namesrv_stream.text_table import TextColumn, json_text, print_lines, table_lines, terminal_width

#: The job commits about once a second. A delay up to this limit needs no note.
_USUAL_LAG_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Window:
    """The period of a question, in epoch milliseconds."""

    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The time that the tables cover, in epoch milliseconds.

    Attributes:
        begin_ms: Start of the time that is completely covered; None if there are no rows.
        stored_to_ms: Time up to which the history tables are complete; ``route_changes`` has the rest. 0 if they are
            empty.
        reaches_ms: Time up to which ``route_changes``, and therefore every answer, is complete, by the job's clock.
        lost_until_ms: End of the period after ``stored_to_ms`` whose changes are lost, because they were removed before
            the history process had read them; None if no changes are lost.
    """

    begin_ms: int | None
    stored_to_ms: int
    reaches_ms: int
    lost_until_ms: int | None = None

    def notes(self, at_ms: int) -> list[str]:
        """Return human-readable notes about what is missing in the tables up to a time; none if they are complete."""
        notes = []
        if self.lost_until_ms is not None and at_ms >= self.stored_to_ms:
            begin = f"between {instant(self.stored_to_ms)} and" if self.stored_to_ms else "before"
            span = f"{begin} {instant(self.lost_until_ms)}"
            notes.append(
                f"changes {span} are lost: they were removed from route_changes before the history process ran"
            )
        if self.lags(at_ms):
            notes.append(f"{self.reach()}: later changes are not known")
        return notes

    def lags(self, at_ms: int) -> bool:
        """Whether the tables end before a time, by more than the usual delay of the job."""
        return self.reaches_ms < at_ms - _USUAL_LAG_MS

    def reach(self) -> str:
        """Return a human-readable text that says up to when all answers are complete."""
        return f"the tables reach to {instant(self.reaches_ms)}"

    def known_part(self, requested: Window) -> Window:
        """Return the part of a period that the tables cover.

        Raises:
            NotInHistory: The period begins at or after the end of the tables.
        """
        known = Window(max(requested.since_ms, self.begin_ms or 0), min(requested.until_ms, self.reaches_ms))
        if known.since_ms >= known.until_ms:
            end, begin = instant(self.reaches_ms), instant(known.since_ms)
            raise NotInHistory(f"there is no data after {end}, and --since is {begin}: is the product running?")
        return known


_MINUTE_MS: Final = 60_000


def no_figures_text(settings: Settings, heard_from_ms: int, now_ms: int) -> str:
    """Return a sentence that says by when the first heartbeat figures arrive, or that they are overdue.

    Args:
        heard_from_ms: Time at which the first broker of the period came up, epoch milliseconds.
    """
    # The first minute must end, and the history process must then run twice.
    minute_end_ms = (heard_from_ms // _MINUTE_MS + 1) * _MINUTE_MS
    interval_ms = max(settings.history.heartbeats_interval_ms, settings.history.interval_ms)
    due_ms = minute_end_ms + interval_ms + _MINUTE_MS
    if due_ms >= now_ms:
        return f"the first heartbeat figures arrive by {instant(due_ms)}"
    return f"heartbeat figures were due by {instant(due_ms)}, but are missing: does the history process run?"


#: The longest shown value: RocketMQ allows topics of 127 characters, and a text may contain dozens of names.
_MAX_CHARS: Final = 128
_MAX_TEXT_CHARS: Final = 2_000

Show = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        key: Key in rows, JSON and CSV.
        title: Title in tables.
        show: Formats a value that is not None.
        is_instant: Whether values are epoch milliseconds.
        is_text: Whether values may be long texts, which are shortened on a narrow terminal.
        is_for_scripts: Whether tables leave it out.
        is_optional: Whether tables leave it out on a narrow terminal.
        show_short: Formats a value for a terminal, if this differs from ``show``.
    """

    key: str
    title: str
    show: Show = str
    justify: Literal["left", "right"] = "left"
    is_instant: bool = False
    is_text: bool = False
    is_for_scripts: bool = False
    is_optional: bool = False
    show_short: Show | None = None


def at_column(key: str, title: str) -> Column:
    """Return a column of times."""
    return Column(key, title, instant, is_instant=True)


def duration_column(key: str, title: str) -> Column:
    """Return a column of durations in milliseconds."""
    return Column(key, title, duration, "right")


def number_column(key: str, title: str, show: Show = "{:,}".format) -> Column:
    return Column(key, title, show, "right")


@dataclass(frozen=True, slots=True)
class Section:
    """A table of an answer.

    Attributes:
        name: Name in JSON.
        title: Title above the table.
        rows: Rows with the keys of all columns; other keys are ignored.
        emphasis: Returns whether a row is highlighted.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    emphasis: Callable[[Mapping[str, Any]], bool] = lambda row: False

    def shown_columns(self) -> list[Column]:
        """Return the columns of a printed table: not those for scripts, and only those with a value in a row."""
        shown = [column for column in self.columns if not column.is_for_scripts]
        return [c for c in shown if any(row[c.key] is not None and row[c.key] is not False for row in self.rows)]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question.

    Attributes:
        since_ms: Start of the period, epoch milliseconds.
        until_ms: End of the period, epoch milliseconds.
        sections: The tables. CSV contains the first one.
        extent: The time that the history covers.
        notes: Further notes for people.
        counted_to_ms: Time up to which heartbeats are counted, epoch milliseconds; None without such figures, or if
            none are counted yet.
    """

    since_ms: int
    until_ms: int
    sections: Sequence[Section]
    extent: Extent
    notes: Sequence[str] = field(default_factory=tuple)
    counted_to_ms: int | None = None


def print_text(answer: Answer, *, wide: bool = False) -> None:
    """Print tables that fit the terminal to stdout, and the period that they cover.

    Args:
        wide: Whether to print everything, regardless of the width of the terminal.
    """
    width = terminal_width(wide=wide)
    for section in answer.sections:
        print_lines(Text(printable(section.title), style="bold"))
        for part in _table(section, width) if section.rows else [Text("none")]:
            print_lines(part)
        print_lines(Text())
    notes = list(answer.notes)
    if answer.counted_to_ms is not None:
        notes.append(f"heartbeats are counted to {instant(answer.counted_to_ms)}")
    for note in notes:
        print_lines(Text(note))
    span = f"from {instant(answer.since_ms)} to {instant(answer.until_ms)}"
    print_lines(Text(f"{span}; {answer.extent.reach()}", style="dim"))


def _table(section: Section, width: int | None) -> list[Table | Text]:
    columns = section.shown_columns()
    return table_lines(
        [TextColumn(c.title, c.justify, c.is_text, c.is_optional) for c in columns],
        [[_shown(c, row[c.key], is_complete=width is None) for c in columns] for row in section.rows],
        width,
        ["bold red" if section.emphasis(row) else None for row in section.rows],
    )


def _shown(column: Column, value: Any, *, is_complete: bool) -> str:
    show = column.show if is_complete or column.show_short is None else column.show_short
    text = "" if value is None else printable(show(value))
    limit = _MAX_TEXT_CHARS if column.is_text else _MAX_CHARS
    return text if len(text) <= limit else f"{text[:limit]}…"


def print_json(answer: Answer) -> None:
    """Print the complete answer as JSON to stdout, with times in epoch milliseconds."""
    found = {
        "since_ms": answer.since_ms,
        "until_ms": answer.until_ms,
        "history": asdict(answer.extent),
        "notes": list(answer.notes),
        "heartbeats_counted_to_ms": answer.counted_to_ms,
        **{s.name: [{c.key: row[c.key] for c in s.columns} for row in s.rows] for s in answer.sections},
    }
    sys.stdout.write(json_text(found))


def as_csv(section: Section, *, raw: bool = False) -> str:
    """Return a table as CSV with a header. Names of time columns lose their ``_ms``.

    Args:
        section: The table.
        raw: Whether texts that a spreadsheet would read as formulas stay as they are. By default, an apostrophe
            precedes them, because the texts are from brokers.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([c.key.removesuffix("_ms") if c.is_instant else c.key for c in section.columns])
    for row in section.rows:
        writer.writerow([_cell(column, row[column.key], raw=raw) for column in section.columns])
    return text.getvalue()


def _cell(column: Column, value: Any, *, raw: bool) -> Any:
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
    is_formula = value.startswith(("=", "+", "-", "@")) and not raw
    return f"'{printable(value)}" if is_formula else printable(value)
