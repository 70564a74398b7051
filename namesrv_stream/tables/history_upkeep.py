"""Keeps the history tables small without an operator: joins files, removes rows past their retention, vacuums.

Each run of the history adds a file or two a table. Once an hour those of a day are joined where there are many, once a
day what is past its retention goes, and files that belong to no version, and the log gets a checkpoint, as it does each
100 commits, with which what it no longer needs is removed. Time is the log's: a machine that was off for a month does
not wake to empty tables. delta-rs does it (ADR 0025).
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
from namesrv_stream.route.changes import KEY_COLUMNS
from namesrv_stream.run_files import read_run_file, write_run_file
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.delta.table_version import open_delta
from namesrv_stream.tables.history_mark import HistoryMark, commit_metadata, read_mark
from namesrv_stream.tables.schema.history_columns import (
    BROKER_EVENTS,
    DAY_COLUMNS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_ARCHIVE,
)
from namesrv_stream.tables.storage import Storage, tables_of

_LOG = logging.getLogger(__name__)

_DAY_MS: Final = 86_400_000
#: Small files of a day that are joined; of one that is over, any two.
FILES_TO_JOIN: Final = 32
_STATE_FILE: Final = "history-upkeep.json"
_WRITER: Final = WriterProperties(compression="ZSTD")
_PLACE: Final = ("at_ms", "partition", "offset", "seq")


class Upkeep:
    """Does what is due; of the thread that writes the tables.

    Args:
        settings: Ours.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tables = tables_of(settings)
        self._state = settings.data.run_dir / _STATE_FILE

    def run(self, now_ms: int) -> None:
        """Join files, and clean up, if it is time; blocks, for seconds.

        Args:
            now_ms: Epoch milliseconds of this machine: when each was last done is kept in ``DATA/run``.
        """
        done = read_run_file(self._state) or {}  # never: the tables are new
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
        """Join the small files of each day that has many; blocks."""
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
                            commit_properties=_reaching_as_before(storage),
                        )
                    _LOG.debug("joined %d files of %s, %s", files, name, day)

    def clean_up(self) -> None:
        """Remove rows past their retention and files that belong to no version; blocks."""
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
                            commit_properties=_reaching_as_before(storage),
                        )
            table, mark = open_delta(storage), _reaching_as_before(storage)
            with storage.reaching():
                table.vacuum(dry_run=False, full=True, commit_properties=mark)
                # Else it may be long before one is written.
                table.create_checkpoint()
                table.cleanup_metadata()
            for day in Path(str(storage)).glob(f"{DAY_COLUMNS[name]}=*"):  # none of an object store
                with suppress(OSError):  # it has files
                    day.rmdir()

    def _newest(self) -> datetime | None:
        """The log's time, of the newest event; None where there is none."""
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
    """Remove rows of ``route_archive`` that no longer held at an instant; blocks.

    Of each key the row that held then stays, however old it is, unless it says that the key is gone; and the last row
    of each partition, which says from where on ``route_changes`` has more. Only days that were over are looked at.

    Args:
        tables: Where the tables are.
        before_ms: The instant, epoch milliseconds.
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
            commit_properties=_reaching_as_before(storage),
        )


def newest_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Of rows of ``route_archive``, the newest of each key."""
    ordered = rows.sort(_PLACE)
    of_kinds = [
        ordered.filter(pl.col("kind") == kind.value).unique(key, keep="last", maintain_order=True)
        for kind, key in KEY_COLUMNS.items()
    ]
    return pl.concat(of_kinds)


def _as_archived(rows: pl.DataFrame) -> pa.Table:
    """With the types of the table: Polars has no maps."""
    schema, table = HISTORY_SCHEMAS[ROUTE_ARCHIVE], rows.to_arrow()
    columns = [
        pa.array(table[field.name].to_pylist(), field.type) if pa.types.is_nested(field.type) else table[field.name]
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema.names).cast(schema)


def _reaching_as_before(storage: Storage) -> CommitProperties:
    """Of a commit after which a table reaches as far as it did."""
    return CommitProperties(custom_metadata=commit_metadata(read_mark(storage) or HistoryMark()))


def _small_files(storage: Storage, day_column: str, small_bytes: int) -> Counter[date]:
    """Day → how many files below a size it has."""
    actions = pa.table(open_delta(storage).get_add_actions(flatten=True))
    if not actions.num_rows:
        return Counter()
    pairs = zip(actions[f"partition.{day_column}"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    return Counter(day for day, size in pairs if size < small_bytes)
