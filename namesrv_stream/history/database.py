"""Queries the history tables with DuckDB, in this process. Each question is a SQL file in ``sql``.

``views.sql`` derives intervals and sessions from the append-only tables, and adds the rows of ``route_changes`` that
the history does not have yet. So an answer is as recent as the job's last commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache, reduce
from importlib.resources import files
from operator import or_
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from namesrv_stream.history.answer import Extent, Window
from namesrv_stream.instants import instant, utc
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory, TableSchemaMismatch
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, decode_changes
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.history_files import HistoryMark, read_mark
from namesrv_stream.tables.history_tables import has_former_history
from namesrv_stream.tables.layout import (
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    PARTITIONS_PROPERTY,
    ROUTE_ARCHIVE,
    ROUTE_CHANGES,
    TOPIC_ID_PROPERTY,
    removed_app_id,
)
from namesrv_stream.tables.storage import one_line, tables_of

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
            opened: The tables that will be registered. Errors name the damaged one of them.
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
            sessions: All sessions that overlap the period, and the first and the last earlier session of each process;
                with the numbers of their replicas.
        """
        self.register("sessions", sessions)
        self.register("period", pa.table({"since_ms": [window.since_ms], "until_ms": [window.until_ms]}))
        self.execute(sql_text("period_tables"))

    def execute(self, script: str) -> None:
        """Execute SQL statements that return nothing."""
        with self._reading():
            self._connection.execute(script)

    def query(self, question: str, **parameters: Any) -> pa.Table:
        """Answer a question with an Arrow table; blocks.

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
        """Answer a question with one dictionary per row. SQL maps become dictionaries, too; a null map an empty one."""
        found = self.query(question, **parameters)
        maps = [field.name for field in found.schema if pa.types.is_map(field.type)]
        rows: list[Row] = found.to_pylist()
        for row in rows:
            row |= {name: dict(row[name] or ()) for name in maps}
        return rows

    def changes(self, question: str, **parameters: Any) -> list[RouteChange]:
        """Answer a question whose rows have the columns of ``RouteChange``; blocks. Raises the errors of ``query``."""
        return decode_changes(self.query(question, **parameters))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            named = (str(table.storage) for table in self._opened if table.is_named_in(str(error)))
            raise TableSchemaMismatch(next(named, self._where), f"cannot be read: {one_line(error)}") from error


_ELSEWHERE: Final = "name the directory of the tables with --conf or --data-dir"
#: Further columns that the views and questions need. Each SQL engine computes them in its own way.
TABLE_VIEWS: Final = (
    "SET TimeZone = 'UTC'",
    "CREATE TEMPORARY VIEW route_archive AS SELECT *, make_timestamptz(at_ms * 1000) AS at FROM route_archive_files",
    "CREATE TEMPORARY VIEW route_changes AS SELECT *, make_timestamptz(at_ms * 1000) AS at FROM route_changes_files",
    "CREATE TEMPORARY VIEW heartbeat_minutes AS SELECT *, epoch_ms(minute) AS minute_ms, "
    "epoch_ms(first_at) AS first_at_ms, epoch_ms(last_at) AS last_at_ms FROM heartbeat_minutes_files",
)


class Past(Database):
    """The history tables and ``route_changes`` at the time of opening, for one thread.

    Attributes:
        extent: The time that the tables cover.
        counted_to_ms: Partition → log time up to which heartbeats are counted, epoch milliseconds.
    """

    def __init__(self, settings: Settings) -> None:
        """Open the tables; blocks.

        Raises:
            NotInHistory: There is no history.
            TableSchemaMismatch: A table is damaged or has an unexpected schema.
            StoreUnreachable: The object store does not answer.
        """
        super().__init__()
        self._tables = tables_of(settings)
        # In this order, because route_changes also has the rows that the archive gets meanwhile.
        mark = read_mark(self._tables / ROUTE_ARCHIVE) or HistoryMark()
        self._archive = open_history_table(settings, ROUTE_ARCHIVE)
        self.counted_to_ms: Mapping[int, int] = (read_mark(self._tables / HEARTBEAT_MINUTES) or HistoryMark()).at_ms
        self._changes = open_changes(settings)
        topic_id = self._changes.properties.get(TOPIC_ID_PROPERTY, "")
        of_history = self._archive.properties.get(TOPIC_ID_PROPERTY, "")
        if topic_id != of_history:
            reason = f"was made from the topic with id {of_history!r}, route_changes from {topic_id!r}"
            raise TableSchemaMismatch(str(self._archive.storage), reason)
        partitions = range(int(self._changes.properties.get(PARTITIONS_PROPERTY, 0)))
        begin = {p: mark.next_offset(p) for p in partitions}
        partition, offset = pc.field("partition"), pc.field("offset")
        beyond = reduce(or_, ((partition == p) & (offset >= o) for p, o in begin.items()), pc.scalar(False))
        self._minutes = StoredTable.open(self._tables, HEARTBEAT_MINUTES, HISTORY_SCHEMAS[HEARTBEAT_MINUTES])
        self._where = str(self._tables)
        self._opened = [table for table in (self._archive, self._changes, self._minutes) if table is not None]
        nothing = HISTORY_SCHEMAS[HEARTBEAT_MINUTES].empty_table()
        self.register("heartbeat_minutes_files", self._minutes.dataset() if self._minutes else nothing)
        self.register("route_archive_files", self._archive.dataset())
        self.register("route_changes_files", self._changes.dataset(beyond))
        for statement in (*TABLE_VIEWS, sql_text("views")):
            self.execute(statement)
        is_lost = any(o < self._changes.transaction_version(removed_app_id(topic_id, p)) for p, o in begin.items())
        retention_ms = max(settings.history.routes_retention_ms, settings.history.sessions_retention_ms)
        self.extent = self._extent(retention_ms, min(mark.at_ms.values(), default=0) if is_lost else None)

    def check_covers(self, at_ms: int) -> None:
        """Check that a time is not before the history.

        Raises:
            NotInHistory: The time is before the history.
        """
        begin_ms = self.extent.begin_ms
        if begin_ms is None:
            raise NotInHistory("the history has no rows yet")
        if at_ms < begin_ms:
            at, begin = instant(at_ms, with_ms=True), instant(begin_ms, with_ms=True)
            raise NotInHistory(f"{at} is before the start of the history, {begin}")

    def default_timeouts(self, settings: Settings, window: Window) -> pa.Table:
        """Return the default timeouts in a period: columns ``at_ms``, the start of its effect, and ``timeout_ms``."""
        default_ms = settings.liveness.default_timeout_ms
        return self.query("default_timeouts", default_timeout_ms=default_ms, **asdict(window))

    def all_counted_to_ms(self, until_ms: int) -> int | None:
        """Return the time up to which heartbeats of all brokers are counted, at most ``until_ms``; None if none are."""
        return min((min(at_ms, until_ms) for at_ms in self.counted_to_ms.values()), default=None)

    @property
    def has_heartbeats(self) -> bool:
        """Whether there is a table of heartbeats."""
        return self._minutes is not None

    def heartbeat_window(self, window: Window) -> Window | None:
        """Return the part of a period in which heartbeats are counted; None if there is no such part."""
        first = self._minutes.extreme("min", "minute") if self._minutes else None
        end_ms = self.all_counted_to_ms(window.until_ms)
        if first is None or end_ms is None:
            return None
        begin_ms = max(window.since_ms, round(first.timestamp() * 1000))
        return Window(begin_ms, end_ms) if end_ms > begin_ms else None

    def _extent(self, retention_ms: int, seen_ms: int | None) -> Extent:
        reaches_ms = self._changes.committed_ms() or self._changes.extreme("max", "at_ms") or 0
        with self._reading():
            (newer_ms,) = self._connection.execute("SELECT MIN(c.at_ms) FROM newer_changes c").fetchone() or (None,)
        # If route_changes has no further rows, the history is complete.
        stored_to_ms = reaches_ms if newer_ms is None else newer_ms
        lost_until_ms = None
        if seen_ms is not None:
            stored_to_ms, lost_until_ms = seen_ms, stored_to_ms
        low, high = self._archive.extreme("min", "at_ms"), self._archive.extreme("max", "at_ms")
        # Rows that were superseded before the retention are removed, so the history before it is incomplete.
        begin_ms = newer_ms if low is None else max(low, high - retention_ms)
        return Extent(begin_ms, stored_to_ms, reaches_ms, lost_until_ms)


def open_history_table(settings: Settings, name: str) -> StoredTable:
    """Open a history table at its newest version; blocks.

    Raises:
        NotInHistory: The table does not exist.
        TableSchemaMismatch: The table is damaged or has an unexpected schema.
        StoreUnreachable: The object store does not answer.
    """
    table = StoredTable.open(tables_of(settings), name, HISTORY_SCHEMAS[name])
    if table is None:
        raise NotInHistory(f"there is no table {name} in {tables_of(settings)}: {_why_none(settings)}")
    return table


def open_newest(settings: Settings) -> Database:
    """Open a database with the changes of the history, or those of ``route_changes`` if there is no history; blocks.

    Raises the errors of ``open_history_table``.
    """
    try:
        return Past(settings)
    except NotInHistory:
        table = open_changes(settings)
    database = Database([table])
    database.register("changes", table.dataset())
    return database


def open_changes(settings: Settings) -> StoredTable:
    """Open ``route_changes`` at its newest version. Call this after the history tables were opened: it may be newer.

    Raises the errors of ``open_history_table``.
    """
    table = StoredTable.open(tables_of(settings), ROUTE_CHANGES, CHANGES_SCHEMA)
    if table is None:
        raise NotInHistory(f"there is no table {ROUTE_CHANGES} in {tables_of(settings)}: {_ELSEWHERE}")
    return table


def _why_none(settings: Settings) -> str:
    if has_former_history(tables_of(settings)):
        return "an older release wrote the history; `namesrv-stream history-job --once` converts it, and so does `up`"
    if not settings.history.enabled:
        return f"history.enabled is false; `namesrv-stream history-job --once` writes it, or {_ELSEWHERE}"
    wait = "`up` writes it within two minutes of its start, once a broker has registered"
    return f"{wait}; without `up`, `namesrv-stream history-job` does; or {_ELSEWHERE}"
