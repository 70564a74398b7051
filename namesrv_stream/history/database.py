"""DuckDB in this process. It answers questions, each of which is a SQL file in ``sql``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from namesrv_stream.history.answer import Window
from namesrv_stream.instants import utc
from namesrv_stream.table_errors import TableSchemaMismatch
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.storage import one_line

_MINUTE_MS: Final = 60_000

Row = dict[str, Any]


@cache
def sql_text(name: str) -> str:
    """Return the text of a SQL file: a question, or statements that create views or tables."""
    return files("namesrv_stream.history").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


class Database:
    """Registered tables and queries over them, for one thread."""

    def __init__(self, opened: Sequence[StoredTable] = ()) -> None:
        """Open an empty database.

        Args:
            opened: The tables that will be registered; errors name the damaged one.
        """
        self._connection = duckdb.connect()
        self._opened = opened
        self._where = str(opened[0].storage) if opened else ""
        self.execute("SET TimeZone = 'UTC'")
        self.execute("SET threads = 2")

    def register(self, name: str, rows: pa.Table | ds.Dataset) -> None:
        """Register rows as a table that questions read. It replaces a table of the same name."""
        self._connection.register(name, rows)

    def set_period(self, sessions: pa.Table, window: Window) -> None:
        """Create the tables of ``period_tables.sql``, which the questions about brokers read; blocks.

        Args:
            sessions: All sessions that overlap the period, and the first and last earlier one of each process, with the
                numbers of their replicas.
        """
        self.register("sessions", sessions)
        self.register("period", pa.table({"since_ms": [window.since_ms], "until_ms": [window.until_ms]}))
        self.execute(sql_text("period_tables"))

    def execute(self, script: str) -> None:
        """Execute statements without a result."""
        with self._reading():
            self._connection.execute(script)

    def query(self, question: str, **parameters: Any) -> pa.Table:
        """Answer a question with rows; blocks.

        Args:
            question: Name of a SQL file.
            parameters: Values of the file's parameters. For a time in epoch milliseconds, such as ``since_ms``, the
                file may also refer to the start of its minute as a timestamp: ``$since_minute``.

        Raises:
            TableSchemaMismatch: A data file is missing or damaged.
        """
        sql = sql_text(question)
        known = parameters | {
            name.replace("_ms", "_minute"): utc(value // _MINUTE_MS * _MINUTE_MS)
            for name, value in parameters.items()
            if name.endswith("_ms") and value is not None
        }
        wanted = {name: value for name, value in known.items() if f"${name}" in sql}
        with self._reading():
            return self._connection.execute(sql, wanted).to_arrow_table()

    def rows(self, question: str, **parameters: Any) -> list[Row]:
        """Answer a question with dictionaries. SQL maps become dictionaries as well, which are empty if null."""
        found = self.query(question, **parameters)
        maps = [field.name for field in found.schema if pa.types.is_map(field.type)]
        rows: list[Row] = found.to_pylist()
        for row in rows:
            row |= {name: dict(row[name] or ()) for name in maps}
        return rows

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            named = (str(table.storage) for table in self._opened if table.is_named_in(str(error)))
            raise TableSchemaMismatch(next(named, self._where), f"cannot be read: {one_line(error)}") from error
