"""What the person at the terminal reads: numbered steps, what was measured, tables."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

_NARROWEST: Final = 100  # columns; a pipe or a small terminal would cut the tables
_INDENT: Final = 10  # columns: below the text that follows a time stamp


class Story:
    """Writes to standard output, in colour on a terminal; each line says how many seconds have passed."""

    def __init__(self) -> None:
        """Begin the time."""
        probe = Console(highlight=False)
        self._console = Console(highlight=False, width=max(probe.width, _NARROWEST))
        self._began = time.monotonic()
        self._steps = 0

    @property
    def is_watched(self) -> bool:
        """Whether a person may be reading along: standard output is a terminal."""
        return self._console.is_terminal

    def title(self, text: str) -> None:
        """Say what this is."""
        self._console.rule(f"[bold]{escape(text)}")

    def step(self, text: str, why: str = "") -> None:
        """Begin the next step: what is done, and what to look for."""
        self._steps += 1
        self._console.print(f"\n{self._stamp()} [bold cyan]{self._steps}. {escape(text)}[/]")
        if why:
            self._console.print(self._indented(f"[dim]{escape(why)}[/]"))

    def note(self, text: str) -> None:
        """Say what is going on within a step."""
        self._console.print(f"{self._stamp()} [dim]{escape(text)}[/]")

    def measured(self, text: str, seconds: float, limit_s: float | None = None) -> None:
        """Say what happened and how long it took, and how long it may take."""
        limit = "" if limit_s is None else f" [dim](limit {limit_s:g} s)[/]"
        took = f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
        self._console.print(f"{self._stamp()} [green]✓[/] {escape(text)}: [bold]{took}[/]{limit}")

    def done(self, text: str) -> None:
        """Say what happened."""
        self._console.print(f"{self._stamp()} [green]✓[/] {escape(text)}")

    def failed(self, text: str) -> None:
        """Say what did not happen."""
        self._console.print(f"{self._stamp()} [bold red]✗ {escape(text)}[/]")

    def command(self, text: str) -> None:
        """Show a command that does the same."""
        self._console.print(self._indented(f"[bold]$ {escape(text)}[/]"))

    def output(self, lines: Iterable[RenderableType]) -> None:
        """Show what the command prints."""
        for line in lines:
            self._console.print(self._indented(line))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Show rows."""
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
