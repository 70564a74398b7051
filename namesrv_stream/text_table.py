"""Output of commands: text with tables that fit the terminal, or JSON.

If stdout is a terminal that is too narrow for a table, the longest texts are shortened first. Then optional columns are
left out, the last ones first, and a line below the table names them. If stdout is not a terminal, and with ``--wide``,
a table has all its columns at full width, so that grep sees whole rows.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import orjson
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")]
WideOption = Annotated[
    bool, typer.Option("--wide", help="Show all columns and whole texts, however narrow the terminal is.")
]
_UNLIMITED: Final = 100_000
_GAP: Final = 2  # between two columns
#: The smallest width to which a text is shortened.
_LEAST_TEXT_WIDTH: Final = 12


def json_text(value: Any) -> str:
    """Return indented JSON with sorted keys, and a line break at the end."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode() + "\n"


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun.

    Args:
        count: The number.
        one: The noun for one.
        several: The noun for any other number; by default ``one`` with an "s".
    """
    return f"{count:,} {plural(count, one, several)}"


def plural(count: int, one: str, several: str | None = None) -> str:
    """Return the noun, or the verb, that agrees with a number."""
    return one if count == 1 else (f"{one}s" if several is None else several)


def times(count: int) -> str:
    """Return a count as text: ``once``, ``12 times``."""
    return "once" if count == 1 else f"{count:,} times"


@dataclass(frozen=True, slots=True)
class TextColumn:
    """One column of a table.

    Attributes:
        title: The column's heading.
        is_text: Whether the texts may be shortened if the terminal is too narrow.
        is_optional: Whether the column may be left out if the terminal is too narrow.
    """

    title: str
    justify: Literal["left", "right"] = "left"
    is_text: bool = False
    is_optional: bool = False


def terminal_width(*, wide: bool = False) -> int | None:
    """Return the width of the terminal in characters; None (no limit) with ``wide`` or if stdout is not a terminal."""
    console = Console(file=sys.stdout)
    return console.width if console.is_terminal and not wide else None


def print_table(
    columns: Sequence[TextColumn],
    rows: Sequence[Sequence[str]],
    *,
    wide: bool = False,
    styles: Sequence[str | None] | None = None,
) -> None:
    """Print a table to stdout.

    Args:
        columns: From left to right.
        rows: A printable text for every column.
        wide: Whether the table may be wider than the terminal.
        styles: A style of Rich for every row; by default none has one.
    """
    for line in table_lines(columns, rows, terminal_width(wide=wide), styles):
        print_lines(line)


def print_lines(lines: Table | Text) -> None:
    """Print to stdout without wrapping or cropping any line."""
    # print() would limit a width to that of the console.
    Console(file=sys.stdout, highlight=False, width=_UNLIMITED).print(lines, crop=False, soft_wrap=False)


def table_lines(
    columns: Sequence[TextColumn],
    rows: Sequence[Sequence[str]],
    width: int | None,
    styles: Sequence[str | None] | None = None,
) -> list[Table | Text]:
    """Return a table that fits a width as far as possible, and a line that names the omitted columns.

    Args:
        columns: From left to right.
        rows: A printable text for every column.
        width: Width of the terminal; None for no limit.
        styles: A style of Rich for every row.
    """
    widths = [max(cell_len(text) for text in (c.title, *(r[n] for r in rows))) for n, c in enumerate(columns)]
    shown = _chosen(columns, widths, width)
    room = _shrunk(columns, widths, shown, width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for number in shown:
        column = columns[number]
        table.add_column(Text(column.title), justify=column.justify, width=room[number], no_wrap=True)
    for number, row in enumerate(rows):
        cells = (Text(row[n], no_wrap=True, overflow="ellipsis") for n in shown)
        table.add_row(*cells, style=styles[number] if styles else None)
    left_out = [c.title for n, c in enumerate(columns) if n not in shown]
    if not left_out:
        return [table]
    return [table, Text(f"--wide also shows: {', '.join(left_out)}", style="dim")]


def _chosen(columns: Sequence[TextColumn], widths: Sequence[int], width: int | None) -> list[int]:
    """Return the indexes of the columns that fit into ``width`` if all texts are shortened as far as allowed."""
    least = [min(w, _LEAST_TEXT_WIDTH) if c.is_text else w for c, w in zip(columns, widths, strict=True)]
    shown = list(range(len(columns)))
    for number in reversed(range(len(columns))):
        if width is not None and columns[number].is_optional and _total(least, shown) > width:
            shown.remove(number)
    return shown


def _shrunk(columns: Sequence[TextColumn], widths: Sequence[int], shown: Sequence[int], width: int | None) -> list[int]:
    """Return the widths of all columns, reduced until the table fits: always the widest text column first."""
    room = list(widths)
    texts = [n for n in shown if columns[n].is_text]
    while width is not None and _total(room, shown) > width:
        widest = max(texts, key=lambda n: room[n], default=None)
        if widest is None or room[widest] <= _LEAST_TEXT_WIDTH:
            break
        room[widest] -= 1
    return room


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[n] for n in shown) + _GAP * (len(shown) - 1)
