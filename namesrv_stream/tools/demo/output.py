"""What the demo prints: numbered steps, measurements, and the audit trail of the Delta table."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

COLUMNS: Final = ("at", "offset", "kind", "cause", "broker_name", "detail")

# One row whenever a broker process registers or ends; rows about topics and connections would hide them.
_KIND: Final = "broker_live"
_NARROWEST: Final = 100  # columns; a pipe or a small terminal would cut the tables
_INDENT: Final = 10  # columns: below the text that follows a time stamp


class History:
    """Rows of ``route_changes``."""

    def __init__(self, data_dir: Path) -> None:
        """Locate the table, without reading it.

        Args:
            data_dir: The product's data directory.
        """
        self._path = data_dir / "tables" / "route_changes"

    def brokers(self) -> list[dict[str, Any]]:
        """Return the rows about broker processes, in log order; none before the table exists.

        Returns:
            One dict for every row: partition, offset, seq, at_ms, kind, gone, cause, broker_name and detail.
        """
        if not (self._path / "_delta_log").is_dir():
            return []
        columns = ("partition", "offset", "seq", "at_ms", "kind", "gone", "cause", "broker_name", "detail")
        found = (
            pl.scan_delta(str(self._path))
            .filter(pl.col("kind") == _KIND)
            .select(columns)
            .sort("partition", "offset", "seq")
            .collect()
        )
        return found.to_dicts()

    def count(self) -> int:
        """Return the number of rows of all kinds."""
        return int(pl.scan_delta(str(self._path)).select(pl.len()).collect().item())


def ends_of(rows: list[dict[str, Any]], broker_name: str) -> list[dict[str, Any]]:
    """Return the rows about the end of a broker process, oldest first."""
    return [row for row in rows if row["gone"] and row["broker_name"] == broker_name]


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row as text, in the order of ``COLUMNS``."""
    at = datetime.fromtimestamp(row["at_ms"] / 1000, tz=UTC).strftime("%H:%M:%S.%f")[:-3]
    kind = f"{row['kind']} {'gone' if row['gone'] else ''}".strip()
    return (at, str(row["offset"]), kind, row["cause"], row["broker_name"] or "", row["detail"] or "")


class Output:
    """Writes to standard output, in colour on a terminal; every line has the seconds since the start."""

    def __init__(self) -> None:
        """Start the clock."""
        probe = Console(highlight=False)
        self._console = Console(highlight=False, width=max(probe.width, _NARROWEST))
        self._began = time.monotonic()
        self._steps = 0

    @property
    def is_watched(self) -> bool:
        """Whether a person may be reading: standard output is a terminal."""
        return self._console.is_terminal

    def title(self, text: str) -> None:
        """Print the heading."""
        self._console.rule(f"[bold]{escape(text)}")

    def step(self, text: str, why: str = "") -> None:
        """Print a numbered heading for the next step, and below it what to expect."""
        self._steps += 1
        self._console.print(f"\n{self._stamp()} [bold cyan]{self._steps}. {escape(text)}[/]")
        if why:
            self._console.print(self._indented(f"[dim]{escape(why)}[/]"))

    def note(self, text: str) -> None:
        """Print a remark within a step."""
        self._console.print(f"{self._stamp()} [dim]{escape(text)}[/]")

    def measured(self, text: str, seconds: float, limit_s: float | None = None) -> None:
        """Print a result, how long it took, and its limit."""
        limit = "" if limit_s is None else f" [dim](limit {limit_s:g} s)[/]"
        took = f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
        self._console.print(f"{self._stamp()} [green]✓[/] {escape(text)}: [bold]{took}[/]{limit}")

    def done(self, text: str) -> None:
        """Print a result."""
        self._console.print(f"{self._stamp()} [green]✓[/] {escape(text)}")

    def failed(self, text: str) -> None:
        """Print a failure."""
        self._console.print(f"{self._stamp()} [bold red]✗ {escape(text)}[/]")

    def command(self, text: str) -> None:
        """Print a command with which a user can do what the demo has just done."""
        self._console.print(self._indented(f"[bold]$ {escape(text)}[/]"))

    def output(self, lines: Iterable[RenderableType]) -> None:
        """Print the output of a command."""
        for line in lines:
            self._console.print(self._indented(line))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row))
        self._console.print(self._indented(table))

    def _indented(self, what: RenderableType) -> Padding:
        return Padding(what, (0, 0, 0, _INDENT), expand=False)

    def _stamp(self) -> str:
        return f"[dim]\\[{time.monotonic() - self._began:5.1f} s][/]"
