"""Opens the tables that a question needs, or says why there is nothing to ask."""

from dataclasses import dataclass
from typing import Final

from namesrv_stream.errors import NotInHistory
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.history_mark import HistoryMark, read_mark
from namesrv_stream.tables.schema.columns import CHANGES_SCHEMA
from namesrv_stream.tables.schema.history_columns import HISTORY_SCHEMAS
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES
from namesrv_stream.tables.storage import tables_of

_ELSEWHERE: Final = "name the directory of the tables with --conf or --data-dir"
#: A commit a minute is usual.
_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class MarkedTable:
    """A history table, and how far it reaches at that version."""

    table: StoredTable
    mark: HistoryMark


def open_history_table(settings: Settings, name: str) -> MarkedTable:
    """A history table at its newest version; blocks.

    Raises:
        NotInHistory: There is none.
        TableSchemaMismatch: It is damaged, or not as this version of the code expects.
    """
    path = tables_of(settings) / name
    for _ in range(_ATTEMPTS):
        mark = read_mark(path)
        table = StoredTable.open(tables_of(settings), name, HISTORY_SCHEMAS[name])
        if table is None:
            raise NotInHistory(f"there is no table {name} in {tables_of(settings)}: {_why_none(settings)}")
        if read_mark(path) == mark:  # else a commit came between, and the mark may be of before it
            return MarkedTable(table, mark or HistoryMark())
    raise NotInHistory(f"{path} is being written too fast to be read")


def open_changes(settings: Settings) -> StoredTable:
    """``route_changes`` at its newest version; to be opened after the history, whose writer reads it.

    Raises:
        NotInHistory: There is none.
        TableSchemaMismatch: It is damaged, or not as this version of the code expects.
    """
    table = StoredTable.open(tables_of(settings), ROUTE_CHANGES, CHANGES_SCHEMA)
    if table is None:
        raise NotInHistory(f"there is no table {ROUTE_CHANGES} in {tables_of(settings)}: {_ELSEWHERE}")
    return table


def _why_none(settings: Settings) -> str:
    if settings.history.enabled and not settings.has_history:
        return "it is written to a folder only (docs/deploy.md)"
    if not settings.history.enabled:
        return f"history.enabled is false; `namesrv-stream history-job --once` writes it, or {_ELSEWHERE}"
    wait = "`up` writes it within two minutes of its start, once a broker has registered"
    return f"{wait}; without `up`, `namesrv-stream history-job` does; or {_ELSEWHERE}"
