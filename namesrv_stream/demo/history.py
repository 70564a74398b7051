"""The audit trail, read from the Delta table with Polars as any analyst would."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

COLUMNS: Final = ("at", "offset", "kind", "cause", "broker_name", "detail")

# One row each time a broker process appears or goes; rows about its topics and connections would bury them.
_KIND: Final = "broker_live"


class History:
    """Rows of ``route_changes``."""

    def __init__(self, data_dir: Path) -> None:
        """Read nothing yet.

        Args:
            data_dir: The product's data directory.
        """
        self._path = data_dir / "tables" / "route_changes"

    def brokers(self) -> list[dict[str, Any]]:
        """Rows about broker processes, oldest first; none before the table exists.

        Returns:
            partition, offset, seq, at_ms, kind, gone, cause, broker_name, detail by column name.
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
        """Rows of all kinds."""
        return int(pl.scan_delta(str(self._path)).select(pl.len()).collect().item())


def ends_of(rows: list[dict[str, Any]], broker_name: str) -> list[dict[str, Any]]:
    """The rows that say that a broker process is no more, oldest first."""
    return [row for row in rows if row["gone"] and row["broker_name"] == broker_name]


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row as text, in the order of ``COLUMNS``."""
    at = datetime.fromtimestamp(row["at_ms"] / 1000, tz=UTC).strftime("%H:%M:%S.%f")[:-3]
    kind = f"{row['kind']} {'gone' if row['gone'] else ''}".strip()
    return (at, str(row["offset"]), kind, row["cause"], row["broker_name"] or "", row["detail"] or "")
