"""Answers of commands: JSON for scripts, tables for people."""

import sys
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table


def emit_json(value: Any) -> None:
    """Indented, keys in order."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode() + "\n")


def print_table(table: Table) -> None:
    """As wide as the terminal; where stdout is none, as wide as the content: a line stays a line for grep."""
    console = Console(file=sys.stdout, highlight=False)
    if console.is_terminal:
        console.print(table, crop=False)
        return
    console = Console(highlight=False, width=10_000, color_system=None)
    with console.capture() as capture:
        console.print(table, crop=False)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
