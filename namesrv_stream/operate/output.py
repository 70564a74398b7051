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
    """As wide as it must be where stdout is no terminal: a line stays a line for grep."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=10_000)
    console.print(table, crop=False)
