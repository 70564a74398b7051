"""Keeps the history tables small without an operator: joins files, removes rows past their retention, vacuums.

Each run of the history adds a file or two a table. Once an hour those of a day are joined where there are many, once a
day what is past its retention goes, and files that belong to no version, and the log gets a checkpoint, as it does each
100 commits, with which what it no longer needs is removed. Time is the log's: a machine that was off for a month does
not wake to empty tables.

delta-rs does it: to join a day of three million events takes it 2 s of a processor and 150 MB, Spark with a heap of
1 GiB and statements that it does not compile some 100 s.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties

from namesrv_stream.clock import SystemClock
from namesrv_stream.run_files import read_run_file, write_run_file
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.commit import LOG
from namesrv_stream.tables.history_mark import HistoryMark, commit_metadata, read_mark
from namesrv_stream.tables.schema.history_columns import (
    BROKER_EVENTS,
    BROKER_SESSIONS,
    DAY_COLUMNS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    INTERVAL_COLUMNS,
    ROUTE_HISTORY,
    TOPIC_ROUTE_HISTORY,
)
from namesrv_stream.tables.storage import Folder

_LOG = logging.getLogger(__name__)

_DAY_MS: Final = 86_400_000
#: Small files of a day that are joined; of one that is over, any two.
FILES_TO_JOIN: Final = 32
_STATE_FILE: Final = "history-upkeep.json"
_WRITER: Final = WriterProperties(compression="ZSTD")


class Upkeep:
    """Does what is due; of the thread that writes the tables.

    Args:
        settings: Ours.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
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
        for name, path in self._tables():
            for day, files in sorted(_small_files(path, whole // 2).items()):
                if files >= (FILES_TO_JOIN if newest is None or day >= newest.date() else 2):
                    DeltaTable(path).optimize.compact(
                        partition_filters=[(DAY_COLUMNS[name], "=", str(day))],
                        target_size=whole,
                        max_concurrent_tasks=1,
                        writer_properties=_WRITER,
                        commit_properties=_reaching_as_before(path),
                    )
                    _LOG.debug("joined %d files of %s, %s", files, name, day)

    def clean_up(self) -> None:
        """Remove rows past their retention and files that belong to no version; blocks."""
        newest = self._newest()
        for name, path in self._tables():
            table, mark = DeltaTable(path), _reaching_as_before(path)
            if newest is not None:
                condition = expired_condition(name, int(newest.timestamp() * 1000) - self._retention_ms(name))
                table.delete(condition, writer_properties=_WRITER, commit_properties=mark)
            table.vacuum(dry_run=False, full=True, commit_properties=mark)
            for day in path.glob(f"{DAY_COLUMNS[name]}=*"):
                with suppress(OSError):  # it has files
                    day.rmdir()
            # Else it may be long before one is written: Spark writes one with commit 100, delta-rs with commit 99.
            table.create_checkpoint()
            table.cleanup_metadata()
            _clean_log(path, SystemClock().now_ms() - self._settings.history.vacuum_retention_ms)

    def _tables(self) -> Iterator[tuple[str, Path]]:
        for name in HISTORY_SCHEMAS:
            yield name, (self._settings.data.tables_dir / name)

    def _newest(self) -> datetime | None:
        """The log's time, of the newest event; None where there is none."""
        folder = self._settings.data.tables_dir / BROKER_EVENTS
        actions = pa.table(DeltaTable(folder).get_add_actions(flatten=True))
        found = [at for at in actions["max.at"].to_pylist() if at] if "max.at" in actions.column_names else []
        return max(found).astimezone(UTC) if found else None

    def _retention_ms(self, table: str) -> int:
        history = self._settings.history
        retention: Mapping[str, int] = {
            BROKER_EVENTS: history.events_retention_ms,
            HEARTBEAT_MINUTES: history.minutes_retention_ms,
            BROKER_SESSIONS: history.sessions_retention_ms,
            ROUTE_HISTORY: history.routes_retention_ms,
            TOPIC_ROUTE_HISTORY: history.routes_retention_ms,
        }
        return retention[table]


def _clean_log(path: Path, before_ms: int) -> None:
    """Remove what other writers have put beside a table's log, and what a killed one has not finished; blocks.

    Delta removes entries and checkpoints only, Spark its sums of each commit too: where it cleans up itself.
    """
    for file in (path / LOG).iterdir():
        with suppress(OSError):  # it is gone, or no file
            if file.suffix in (".crc", ".tmp") and file.stat().st_mtime * 1000 < before_ms:
                file.unlink()


def _reaching_as_before(path: Path) -> CommitProperties:
    """Of a commit after which a table reaches as far as it did."""
    return CommitProperties(custom_metadata=commit_metadata(read_mark(Folder(path)) or HistoryMark()))


def expired_condition(table: str, before_ms: int) -> str:
    """Which rows go, in SQL: those of days that were over, and of intervals those that had ended.

    A key that is gone, and was before then, goes for good: its last interval would be kept forever.

    Args:
        table: Its name.
        before_ms: Epoch milliseconds.
    """
    at = datetime.fromtimestamp(before_ms / 1000, tz=UTC)
    day = f"{DAY_COLUMNS[table]} < DATE'{at.date()}'"
    if table not in INTERVAL_COLUMNS:
        return day
    begin, end = INTERVAL_COLUMNS[table]
    instant = f"'{at.isoformat()}'"
    ended = f"{end} < {instant}"
    if "gone" in HISTORY_SCHEMAS[table].names:
        ended = f"({ended} OR ({end} IS NULL AND gone AND {begin} < {instant}))"
    return f"{day} AND {ended}"


def _small_files(path: Path, small_bytes: int) -> Counter[date]:
    """Day → how many files below a size it has."""
    table = DeltaTable(path)
    name = f"partition.{DAY_COLUMNS[path.name]}"
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return Counter()
    pairs = zip(actions[name].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    return Counter(day for day, size in pairs if size < small_bytes)
