"""Keeps the job's tables small, on a thread of the job, while batches run.

``route_state`` is rewritten whenever a batch outputs fold states. Then small files of ``route_changes`` are compacted.
Followers ignore this, because the rows do not change. The log of ``route_changes`` gets a checkpoint every 100
versions. Once an hour, old log entries, files that belong to no version, and rows past their retention are removed.
Rows are removed only if ``route_state`` covers them. Rows that the history process has not read yet are kept longer,
but not without limit. The commits of this thread and of the batches go through the same writer, so they never conflict.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import BytesIO
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from namesrv_stream.errors import NamesrvStreamError, StoreUnreachable
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import TableSchemaMismatch, TablesTakenOver
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA
from namesrv_stream.tables.delta.commit import Change, commit_name
from namesrv_stream.tables.delta.data_file import DataFile, read_content, read_rows, write_content
from namesrv_stream.tables.delta.open_table import open_delta
from namesrv_stream.tables.delta.table_writer import TableWriter
from namesrv_stream.tables.history_files import HistoryMark, read_mark
from namesrv_stream.tables.layout import ROUTE_ARCHIVE, removed_app_id
from namesrv_stream.tables.route_writers import StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow, read_newest_state
from namesrv_stream.tables.storage import Storage, tables_of

logger = logging.getLogger(__name__)

#: Opening the table costs 10 ms, and half a millisecond more for each commit since its last checkpoint. Every file
#: makes reads slower as well. So small files are compacted as soon as there are this many.
FILES_TO_JOIN: Final = 64
#: Only files below this size are compacted then; the hourly clean-up compacts larger ones. Replaced files stay on disk
#: for a day, so a growing file must not be rewritten with every few commits.
JOINED_BYTES: Final = 1 << 20
_HOURLY_BYTES: Final = 16 << 20
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


def join_small_files(table: TableWriter, files: int, joined_bytes: int) -> None:
    """Compact the files below ``joined_bytes``, if there are at least ``files`` of them; blocks.

    Raises the errors of ``TableWriter.commit`` and ``read_content``.
    """
    small = [f for f in table.files() if f.size < joined_bytes and None not in f.lowest + f.highest]
    if len(small) < files:
        return
    small.sort(key=lambda file: file.lowest[:2])
    groups = [group for group in _groups(small, joined_bytes) if len(group) > 1]
    joined = tuple(_join(table.storage, group) for group in groups)
    if joined:
        table.commit(Change("OPTIMIZE", joined, tuple(file for group in groups for file in group)))


def clean_up(settings: Settings, changes: TableWriter, state: TableWriter) -> None:
    """Remove rows past their retention, write checkpoints and vacuum both tables; blocks."""
    streaming = settings.streaming
    # The state is read first: later versions of it cover at least the same rows.
    covered = read_newest_state(tables_of(settings)).fold_states
    join_small_files(changes, 2, _HOURLY_BYTES)
    files = changes.files()
    newest_ms = max((file.newest_at_ms for file in files), default=0)
    oldest_ms = min((file.oldest_at_ms for file in files), default=0)
    cutoff_ms = newest_ms - streaming.changes_retention_ms
    # Followers reload the tables after a removal, so it happens once a day only. While the history is behind by more
    # than the retention, it may happen every hour.
    if covered and oldest_ms < cutoff_ms - _DAY_MS:
        # Rows that route_state does not cover are kept at any age, because no other table has their content.
        ends = {partition: found.next_offset for partition, found in covered.items()}
        seen = seen_by_history(settings, ends)
        remove_rows(changes, cutoff_ms, seen)
        if seen != ends:  # the history is behind; rows wait for it for a limited time
            remove_rows(changes, cutoff_ms - settings.history.changes_wait_ms, ends)
    for table in (changes, state):
        table.checkpoint()
        _vacuum(table.storage, -(-streaming.vacuum_retention_ms // _HOUR_MS))


def seen_by_history(settings: Settings, ends: Mapping[int, int]) -> dict[int, int]:
    """Return each offset of ``ends``, or the offset that the history process has reached if that is lower.

    Without a history process, ``ends`` is returned unchanged.

    Args:
        ends: Partition → offset.
    """
    if not settings.has_history:
        return dict(ends)
    try:
        mark = read_mark(tables_of(settings) / ROUTE_ARCHIVE) or HistoryMark()
    except TableSchemaMismatch as error:
        logger.warning("history mark unreadable reason=%s", error)
        mark = HistoryMark()
    return {partition: min(offset, mark.next_offset(partition)) for partition, offset in ends.items()}


def remove_rows(table: TableWriter, cutoff_ms: int, ends: Mapping[int, int]) -> None:
    """Remove rows that are older than ``cutoff_ms`` and below the offset of their partition in ``ends``.

    The commit records the removed offsets, so that the history process recognizes the gap.
    """
    offset, partition = pc.field("offset"), pc.field("partition")
    expired = pc.scalar(False)
    for number, end in ends.items():
        expired = expired | ((partition == number) & (offset < end))
    expired = expired & (pc.field("at_ms") < cutoff_ms)
    kept, removed = list[DataFile](), list[DataFile]()
    removed_below: dict[int, int] = {}
    for file in table.files():
        if file.oldest_at_ms >= cutoff_ms:
            continue
        rows = read_rows(table.storage, file.path)
        gone = rows.filter(expired)
        if not gone.num_rows:
            continue
        for row in gone.group_by("partition").aggregate([("offset", "max")]).to_pylist():
            removed_below[row["partition"]] = max(removed_below.get(row["partition"], 0), row["offset_max"] + 1)
        removed.append(file)
        rest = rows.filter(~expired)
        if rest.num_rows:
            kept.append(table.write_rows(rest.cast(CHANGES_SCHEMA)))
    if removed:
        transactions = {removed_app_id(table.topic_id, p): first for p, first in removed_below.items()}
        table.commit(Change("DELETE", tuple(kept), tuple(removed), transactions=transactions))


def _groups(files: list[DataFile], max_bytes: int) -> Iterator[list[DataFile]]:
    """Yield groups of adjacent files, each of at most ``max_bytes`` unless it is only one file."""
    group: list[DataFile] = []
    size = 0
    for file in files:
        if group and size + file.size > max_bytes:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    yield group


def _join(storage: Storage, files: list[DataFile]) -> DataFile:
    """Write one file that contains the rows of several files. Only a few thousand rows are in memory at a time."""
    content = BytesIO()
    with pq.ParquetWriter(content, CHANGES_SCHEMA, compression="zstd", store_schema=False) as writer:
        for file in files:
            source = pq.ParquetFile(pa.BufferReader(read_content(storage, file.path)))
            for batch in source.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(CHANGES_SCHEMA))
    lowest = tuple(min(values) for values in zip(*(file.lowest for file in files), strict=True))
    highest = tuple(max(values) for values in zip(*(file.highest for file in files), strict=True))
    rows = sum(file.rows or 0 for file in files)
    listed = DataFile("", 0, max(file.modified_ms for file in files), rows, lowest, highest)
    return write_content(storage, content.getvalue(), listed)


def _vacuum(storage: Storage, retention_hours: int) -> None:
    """Remove old log entries, and data files that no version within the retention refers to."""
    table: DeltaTable = open_delta(storage)
    before = table.version()
    with storage.reaching():
        table.vacuum(retention_hours=retention_hours, dry_run=False, full=True)
        table.cleanup_metadata()
    storage.sync(commit_name(version) for version in range(before, table.version() + 1))


_CHECKPOINT_VERSIONS: Final = 100  # delta.checkpointInterval
_CLEAN_UP_INTERVAL_S: Final = 3_600.0
_FIRST_CLEAN_UP_S: Final = 300.0  # so that a job that never runs for an hour cleans up, too
_ROUND_S: Final = 10.0  # about a hundred commits of a busy job


class Compactor:
    """The thread that maintains the tables.

    Args:
        changes: The writer of ``route_changes``.
        state: The writer of ``route_state``.
        on_refused: Called if the tables cannot be written any more. The job must then end; its next start repairs them.
    """

    def __init__(
        self,
        settings: Settings,
        changes: TableWriter,
        state: StateWriter,
        on_refused: Callable[[NamesrvStreamError], None],
    ) -> None:
        self._settings = settings
        self._table = changes
        self._state = state
        self._on_refused = on_refused
        self._submitted = threading.Condition()
        self._new_states: dict[int, FoldStateRow] = {}
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._checkpointed = -1
        self._cleaned_s = time.monotonic() + _FIRST_CLEAN_UP_S - _CLEAN_UP_INTERVAL_S

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, states: Mapping[int, FoldStateRow]) -> None:
        """Schedule a rewrite of ``route_state`` that covers these states; does not block."""
        with self._submitted:
            self._new_states |= states
            self._submitted.notify()

    def _run(self) -> None:
        while True:
            with self._submitted:
                self._submitted.wait_for(lambda: self._new_states, _ROUND_S)
                states, self._new_states = self._new_states, {}
            if states:
                self._attempt("route_state", partial(self._state.cover, states))
            self._attempt("small files", partial(join_small_files, self._table, FILES_TO_JOIN, JOINED_BYTES))
            self._attempt("checkpoint", self._checkpoint)
            if time.monotonic() - self._cleaned_s >= _CLEAN_UP_INTERVAL_S:
                self._cleaned_s = time.monotonic()
                self._attempt("clean-up", partial(clean_up, self._settings, self._table, self._state.table))

    def _attempt(self, task: str, work: Callable[[], None]) -> None:
        """Run one task. A failure is logged: the job can continue, and the next round tries again."""
        began_s = time.monotonic()
        try:
            with self._table.storage.reaching():
                work()
        except StoreUnreachable as error:
            logger.warning("table maintenance failed task=%s reason=%s", task, error)
        except (TableSchemaMismatch, TablesTakenOver) as error:
            self._on_refused(error)
        except Exception:
            logger.exception("table maintenance failed task=%s", task)
        else:
            logger.debug("table maintenance done task=%s took_ms=%d", task, (time.monotonic() - began_s) * 1000)

    def _checkpoint(self) -> None:
        version = self._table.version
        if version - self._checkpointed >= _CHECKPOINT_VERSIONS:
            self._table.checkpoint()
            self._checkpointed = version
