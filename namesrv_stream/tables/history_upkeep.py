"""Keeps the history tables small without an operator: compacts files, removes rows past their retention, vacuums.

Every run of the history process adds one or two files per table. Once an hour, the files of a day are compacted if
there are many. Once a day, rows past their retention and files that belong to no version are removed, and the log gets
a checkpoint, as it does every 100 commits. Ages are measured in the time of the log, so a machine that was off for a
month does not delete everything at its start. delta-rs does the work (ADR 0025).
"""

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow as pa
from deltalake import CommitProperties, WriterProperties, write_deltalake

from namesrv_stream.instants import utc
from namesrv_stream.processes import read_run_file, write_run_file
from namesrv_stream.route.changes import KEY_COLUMNS
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.open_table import open_delta
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.history_files import HistoryMark, commit_metadata, read_mark
from namesrv_stream.tables.layout import (
    BROKER_EVENTS,
    DAY_COLUMNS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_ARCHIVE,
)
from namesrv_stream.tables.storage import Storage, tables_of

logger = logging.getLogger(__name__)

_DAY_MS: Final = 86_400_000
#: The number of small files of the current day that are compacted. For past days, two are enough.
FILES_TO_JOIN: Final = 32
_STATE_FILE: Final = "history-upkeep.json"
_WRITER: Final = WriterProperties(compression="ZSTD")
_PLACE: Final = ("at_ms", "partition", "offset", "seq")


class Upkeep:
    """Runs due maintenance, in the thread that writes the tables."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tables = tables_of(settings)
        self._state = settings.data.run_dir / _STATE_FILE

    def run(self, now_ms: int) -> None:
        """Compact files and clean up, if they are due; blocks for seconds.

        Args:
            now_ms: Time by this machine's clock, epoch milliseconds. The times of the last runs are in ``DATA/run``.
        """
        done = read_run_file(self._state) or {}  # empty for new tables
        joined_ms, cleaned_ms = (int(done.get(name, now_ms)) for name in ("joined_ms", "cleaned_ms"))
        if not 0 <= now_ms - joined_ms < self._settings.history.upkeep_interval_ms:
            self.join_files()
            joined_ms = now_ms
        if not 0 <= now_ms - cleaned_ms < _DAY_MS:
            self.clean_up()
            cleaned_ms = now_ms
        now = {"joined_ms": joined_ms, "cleaned_ms": cleaned_ms}
        if now.items() - done.items():
            write_run_file(self._state, now)

    def join_files(self) -> None:
        """Compact the small files of every day; those of the newest day only if there are many; blocks."""
        newest = self._newest()
        whole = self._settings.history.optimize_file_bytes
        for name in HISTORY_SCHEMAS:
            storage = self._tables / name
            for day, files in sorted(_small_files(storage, DAY_COLUMNS[name], whole // 2).items()):
                if files >= (FILES_TO_JOIN if newest is None or day >= newest.date() else 2):
                    with storage.reaching():
                        open_delta(storage).optimize.compact(
                            partition_filters=[(DAY_COLUMNS[name], "=", str(day))],
                            target_size=whole,
                            max_concurrent_tasks=1,
                            writer_properties=_WRITER,
                            commit_properties=_with_same_mark(storage),
                        )
                    logger.debug("files compacted table=%s day=%s files=%d", name, day, files)

    def clean_up(self) -> None:
        """Remove rows past their retention, and files that belong to no version; blocks."""
        newest = self._newest()
        for name in HISTORY_SCHEMAS:
            storage = self._tables / name
            if newest is not None:
                before_ms = int(newest.timestamp() * 1000) - self._retention_ms(name)
                if name == ROUTE_ARCHIVE:
                    remove_superseded(self._tables, before_ms)
                else:
                    with storage.reaching():
                        open_delta(storage).delete(
                            f"{DAY_COLUMNS[name]} < DATE'{utc(before_ms).date()}'",
                            writer_properties=_WRITER,
                            commit_properties=_with_same_mark(storage),
                        )
            table, mark = open_delta(storage), _with_same_mark(storage)
            with storage.reaching():
                table.vacuum(dry_run=False, full=True, commit_properties=mark)
                # Without this, the next checkpoint may be written much later.
                table.create_checkpoint()
                table.cleanup_metadata()
            for day in Path(str(storage)).glob(f"{DAY_COLUMNS[name]}=*"):  # nothing for an object store
                with suppress(OSError):  # the folder has files
                    day.rmdir()

    def _newest(self) -> datetime | None:
        """Return the log time of the newest event; None if there is none."""
        table = StoredTable.open(self._tables, BROKER_EVENTS, HISTORY_SCHEMAS[BROKER_EVENTS])
        newest = table and table.extreme("max", "at")
        return newest.astimezone(UTC) if isinstance(newest, datetime) else None

    def _retention_ms(self, table: str) -> int:
        history = self._settings.history
        retention: Mapping[str, int] = {
            BROKER_EVENTS: history.events_retention_ms,
            HEARTBEAT_MINUTES: history.minutes_retention_ms,
            ROUTE_ARCHIVE: max(history.routes_retention_ms, history.sessions_retention_ms),
        }
        return retention[table]


def remove_superseded(tables: Storage, before_ms: int) -> None:
    """Remove rows of ``route_archive`` that were superseded before a time; blocks.

    For each key, the row that was valid at that time stays at any age, unless it says that the key was deleted. The
    last row of each partition stays as well, because it marks where ``route_changes`` continues. Only complete days are
    processed.

    Args:
        before_ms: The time, epoch milliseconds.
    """
    table = StoredTable.open(tables, ROUTE_ARCHIVE, HISTORY_SCHEMAS[ROUTE_ARCHIVE])
    if table is None:
        return
    day = utc(before_ms).date()
    old = table.rows(pl.col(DAY_COLUMNS[ROUTE_ARCHIVE]) < day)
    is_last = pl.col("offset") == pl.col("offset").max().over("partition")
    kept = newest_rows(old).filter(~pl.col("gone") | is_last)
    if kept.height == old.height:
        return
    storage = tables / ROUTE_ARCHIVE
    with storage.reaching():
        write_deltalake(
            open_delta(storage),
            _as_archived(kept),
            mode="overwrite",
            predicate=f"{DAY_COLUMNS[ROUTE_ARCHIVE]} < DATE'{day}'",
            writer_properties=_WRITER,
            commit_properties=_with_same_mark(storage),
        )


def newest_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the newest row of each key, given rows of ``route_archive``."""
    ordered = rows.sort(_PLACE)
    of_kinds = [
        ordered.filter(pl.col("kind") == kind.value).unique(key, keep="last", maintain_order=True)
        for kind, key in KEY_COLUMNS.items()
    ]
    return pl.concat(of_kinds)


def _as_archived(rows: pl.DataFrame) -> pa.Table:
    """Convert rows to the types of ``route_archive``, because Polars has no maps."""
    schema, table = HISTORY_SCHEMAS[ROUTE_ARCHIVE], rows.to_arrow()
    columns = [
        pa.array(table[field.name].to_pylist(), field.type) if pa.types.is_nested(field.type) else table[field.name]
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema.names).cast(schema)


def _with_same_mark(storage: Storage) -> CommitProperties:
    """Return the properties of a commit that does not change the table's mark."""
    return CommitProperties(custom_metadata=commit_metadata(read_mark(storage) or HistoryMark()))


def _small_files(storage: Storage, day_column: str, small_bytes: int) -> Counter[date]:
    """Return day → number of files below a size."""
    actions = pa.table(open_delta(storage).get_add_actions(flatten=True))
    if not actions.num_rows:
        return Counter()
    pairs = zip(actions[f"partition.{day_column}"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    return Counter(day for day, size in pairs if size < small_bytes)
