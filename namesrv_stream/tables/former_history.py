"""Takes over the history of version 0.1.0, which kept intervals and sessions as tables of their own.

Its ``route_history`` has the rows of ``route_archive``, with the ends of intervals beside them. The other two tables
were made from the same rows. All three are kept, in a folder that nothing reads.
"""

import logging
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.errors import ConfigError
from namesrv_stream.tables.delta.commit import LOG
from namesrv_stream.tables.delta.table_version import open_delta
from namesrv_stream.tables.history_commits import HistoryTable
from namesrv_stream.tables.history_files import FILE_SCHEMA, read_batches, write_files
from namesrv_stream.tables.history_mark import read_mark
from namesrv_stream.tables.schema.columns import ROW_SCHEMA
from namesrv_stream.tables.schema.history_columns import HISTORY_SCHEMAS, ROUTE_ARCHIVE
from namesrv_stream.tables.schema.layout import TOPIC_ID_PROPERTY
from namesrv_stream.tables.storage import Storage

_LOG = logging.getLogger(__name__)

_FORMER: Final = "route_history"
_FORMER_TABLES: Final = (_FORMER, "topic_route_history", "broker_sessions")
#: Where the tables are kept.
KEPT: Final = "history-of-0.1.0"


def has_former_history(tables: Storage) -> bool:
    """Whether there is a history that no process of this version has taken over."""
    return (tables / _FORMER).has(LOG)


def take_over_former_history(tables: Storage, topic_id: str) -> None:
    """Copy the rows of an older release to ``route_archive``, in one commit, and put its tables aside; blocks.

    Killed in between, the next start goes on.

    Raises:
        ConfigError: They were made from another topic.
        TableSchemaMismatch: They are damaged.
    """
    if has_former_history(tables):
        archive = HistoryTable.open(tables, ROUTE_ARCHIVE)
        if not archive.mark.topic_id:
            _copy(tables, archive, topic_id)
    for name in _FORMER_TABLES:
        if (tables / name).has(LOG):
            tables.move(name, f"{KEPT}/{name}")


def _copy(tables: Storage, archive: HistoryTable, topic_id: str) -> None:
    former = open_delta(tables / _FORMER)
    found = former.metadata().configuration.get(TOPIC_ID_PROPERTY)
    if found != topic_id:
        raise ConfigError(str(tables / _FORMER), TOPIC_ID_PROPERTY, f"is {found}, and that of the topic {topic_id}")
    mark = read_mark(tables / _FORMER)
    if mark is None:
        return
    wanted = pa.schema([field.with_nullable(True) for field in ROW_SCHEMA]).remove_metadata()
    files: list[pa.RecordBatch] = []
    for path in pa.table(former.get_add_actions())["path"].to_pylist():
        rows = (_archived(batch) for batch in read_batches(tables / _FORMER, path, wanted))
        files += write_files(tables, ROUTE_ARCHIVE, rows)
    written = archive.commit(pa.Table.from_batches(files, FILE_SCHEMA), mark)
    _LOG.info("route_archive has %d rows of the former route_history; that is kept in %s", written, tables / KEPT)


def _archived(rows: pa.RecordBatch) -> pa.RecordBatch:
    schema = HISTORY_SCHEMAS[ROUTE_ARCHIVE].remove_metadata()
    day = pc.cast(pc.cast(rows["at_ms"], pa.timestamp("ms")), pa.date32())
    return rows.append_column("day", day).select(schema.names).cast(schema)
