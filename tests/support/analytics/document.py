"""Reads docs/analytics.md: its questions with their SQL, and the code that connects an engine."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from namesrv_stream.settings import project_home
from tests.support.analytics.expected_history import Row

DOCUMENT: Final = project_home() / "docs" / "analytics.md"
SPARK, DUCKDB, POLARS = "spark", "duckdb", "polars"
_SHOWN_ROWS: Final = 6
_BLOCK: Final = re.compile(r"^```([a-z ]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUESTION: Final = re.compile(r"^### (.+)$", re.MULTILINE)


class Question(NamedTuple):
    """A question of the document.

    Attributes:
        blocks: First line of a fenced block (language, and engine if it is for one) → its content.
    """

    title: str
    blocks: Mapping[str, str]

    def sql(self, engine: str) -> str | None:
        """Return the SQL for an engine; None if the document has none."""
        return self.blocks.get(f"sql {engine}") or self.blocks.get("sql")

    @property
    def answer(self) -> str | None:
        """The answer that the document shows."""
        return self.blocks.get("text")


def questions(document: Path = DOCUMENT) -> list[Question]:
    """Return the questions that have SQL, in the order of the document."""
    _, *parts = _QUESTION.split(document.read_text())
    found = [Question(name, dict(_BLOCK.findall(part))) for name, part in zip(parts[::2], parts[1::2], strict=True)]
    return [q for q in found if any(kind.startswith("sql") for kind in q.blocks)]


def connect_as_documented(
    engine: str, tables_dir: Path, names: dict[str, Any], document: Path = DOCUMENT
) -> dict[str, Any]:
    """Run the code of the document that connects an engine: its ``python`` block and the block of the engine.

    Args:
        engine: The engine, or another word that marks a block of Python.
        tables_dir: Replaces ``DATA/tables``.
        names: Namespace in which the code runs; it is returned.
        document: The document.
    """
    blocks: dict[str, str] = {}
    for kind, content in _BLOCK.findall(document.read_text()):
        blocks.setdefault(kind, content)
    for kind in ("python", f"python {engine}"):
        exec(blocks[kind].replace("DATA/tables", str(tables_dir)), names)
    return names


def normalised(rows: Iterable[Sequence[Any]]) -> list[Row]:
    """Normalise rows of any engine or of the oracle, so that equal rows compare equal."""
    return [tuple(_normalised(value) for value in row) for row in rows]


def _normalised(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, float | Decimal):
        return round(float(value), 6)
    return value


def formatted(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Format rows as the document shows them: only the first ones of many."""
    if not rows:
        return "(no rows)\n"
    first = rows if len(rows) <= _SHOWN_ROWS else rows[: _SHOWN_ROWS - 1]
    cells = [list(columns), *([_text(value) for value in row] for row in first)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    lines += [f"... {len(rows) - len(first)} more"] if len(first) < len(rows) else []
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case float():
            return f"{value:g}" if value != round(value, 2) else f"{value:.6g}"
        case _:
            return str(value)
