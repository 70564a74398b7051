"""Keeps both tables small, on a thread of the job beside the batches.

``route_state`` is rewritten whenever a batch brings fold states. Then small files of ``route_changes`` are joined
(its rows do not change, so followers pay no attention), its log gets a checkpoint each 100 versions, and once an hour
what is older than a day goes: log entries, files that belong to no version, rows beyond their retention that
``route_state`` covers and the history has. A commit here and one of a batch may meet; delta-rs, and the batch's writer
where it is the later one, puts its own on top of the other, for neither reads what the other writes.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.transaction import Transaction

from namesrv_stream.errors import StoreUnreachable, TableSchemaMismatch
from namesrv_stream.settings import Settings
from namesrv_stream.snapshot.history_mark import HistoryMark, read_mark
from namesrv_stream.snapshot.table_files import open_delta, reaching
from namesrv_stream.snapshot.table_reader import FoldStateRow, read_fold_states, read_tables
from namesrv_stream.streaming.state_rows import next_state, with_fold_states
from namesrv_stream.tables import (
    BROKER_SESSIONS,
    ROUTE_CHANGES,
    ROUTE_HISTORY,
    ROUTE_STATE,
    TOPIC_ID_PROPERTY,
    TOPIC_ROUTE_HISTORY,
    removed_app_id,
    table_path,
)

_LOG = logging.getLogger(__name__)

_CHECKPOINT_VERSIONS: Final = 100  # delta.checkpointInterval
#: To open the table costs 10 ms and half a millisecond for each commit since its last checkpoint, and each file's rows
#: cost those who read them some more: joined early …
FILES_TO_JOIN: Final = 64
# … into files that are left alone until the hourly clean-up joins those: what was joined stays on disk for a day,
# so a growing file must not be written anew with every few commits.
_JOINED_BYTES: Final = 1 << 20
_HOURLY_BYTES: Final = 16 << 20
_CLEAN_UP_INTERVAL_S: Final = 3_600.0
_FIRST_CLEAN_UP_S: Final = 300.0  # a job that never runs for an hour cleans up too
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def write_route_state(settings: Settings, new_states: dict[int, FoldStateRow]) -> None:
    """Rewrite ``route_state`` to cover these fold states; blocks.

    Args:
        settings: Of which ``data.tables_location`` matters.
        new_states: partition → fold state; the changes below its offset are in ``route_changes`` already.
    """
    # Opened before it is read: where another job rewrites it meanwhile, what is made of the older one is refused.
    table = open_delta(table_path(settings.data.tables_location, ROUTE_STATE))
    rows = read_tables(settings.data.tables_location)
    overwrite_route_state(table, *next_state(rows.live, dict(rows.fold_states), rows.changes, new_states))


def overwrite_route_state(table: DeltaTable, live: pa.Table, states: dict[int, FoldStateRow]) -> None:
    """Make these all rows of ``route_state``; blocks.

    Args:
        table: It, open.
        live: Live rows, columns of ``STATE_SCHEMA``.
        states: partition → fold state at the offset that ``live`` covers.
    """
    # One attempt: where both are the first, delta-rs would put it behind another job's and keep the rows of both.
    once = CommitProperties(max_commit_retries=0)
    write_deltalake(table, with_fold_states(live, states), mode="overwrite", commit_properties=once)


class Compactor:
    """The thread.

    Args:
        settings: Ours.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._states: dict[int, FoldStateRow] = {}
        self._is_asked_to_join = False
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._checkpointed = -1
        self._cleaned_s = time.monotonic() + _FIRST_CLEAN_UP_S - _CLEAN_UP_INTERVAL_S

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is under way and end the thread."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join()

    def submit(self, states: dict[int, FoldStateRow]) -> None:
        """Have ``route_state`` cover these, soon; does not block."""
        with self._changed:
            self._states |= states
            self._changed.notify()

    def join_files(self) -> None:
        """Have the small files of ``route_changes`` joined, soon; does not block."""
        with self._changed:
            self._is_asked_to_join = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._states or self._is_asked_to_join or self._is_stopping)
                if self._is_stopping:
                    return
                states, self._states, self._is_asked_to_join = self._states, {}, False
            if states:
                self._attempt("route_state", partial(write_route_state, self._settings, states))
            self._attempt("small files", partial(join_small_files, self._settings, FILES_TO_JOIN, _JOINED_BYTES))
            self._attempt("checkpoint", self._checkpoint)
            if time.monotonic() - self._cleaned_s >= _CLEAN_UP_INTERVAL_S:
                self._cleaned_s = time.monotonic()
                self._attempt("clean-up", partial(clean_up, self._settings))

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        """Do it; a failure is logged, for the job goes on without and the next round tries again."""
        began_s = time.monotonic()
        try:
            with reaching(self._settings.data.tables_location):
                work()
        except StoreUnreachable as error:
            _LOG.warning("compaction failed: %s: %s", what, error)
        except Exception:
            _LOG.exception("compaction failed: %s", what)
        else:
            _LOG.debug("compaction: %s took %d ms", what, (time.monotonic() - began_s) * 1000)

    def _checkpoint(self) -> None:
        table = open_delta(table_path(self._settings.data.tables_location, ROUTE_CHANGES))
        if table.version() - self._checkpointed >= _CHECKPOINT_VERSIONS:
            table.create_checkpoint()
            self._checkpointed = table.version()


def join_small_files(settings: Settings, files: int, joined_bytes: int) -> None:
    """Join the files of ``route_changes`` below ``joined_bytes`` where there are at least ``files``; blocks."""
    table = open_delta(table_path(settings.data.tables_location, ROUTE_CHANGES))
    sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"]
    if (pc.sum(pc.less(sizes, joined_bytes)).as_py() or 0) >= files:
        table.optimize.compact(target_size=joined_bytes, max_concurrent_tasks=1, post_commithook_properties=_NO_HOOKS)


def clean_up(settings: Settings) -> None:
    """Remove what is past its retention from both tables; blocks."""
    streaming = settings.streaming
    # First of all the state: what it covers now, it and those after it cover for good.
    covered = read_fold_states(settings.data.tables_location)
    join_small_files(settings, 2, _HOURLY_BYTES)
    changes = open_delta(table_path(settings.data.tables_location, ROUTE_CHANGES))
    newest_at_ms, oldest_at_ms = _extent_ms(changes)
    cutoff_ms = newest_at_ms - streaming.changes_retention_ms
    if covered and oldest_at_ms < cutoff_ms - _DAY_MS:  # followers load again after it, so once a day is enough
        # A row that no route_state covers is the only place of what it says, however old it is.
        ends = {partition: state.next_offset for partition, state in covered.items()}
        seen = seen_by_history(settings, ends)
        if seen == ends:
            _remove(changes, cutoff_ms, ends)
        else:  # the history has not all of it yet, and is waited for, but not for ever
            _remove(changes, cutoff_ms, seen)
            _remove(changes, cutoff_ms - settings.history.changes_wait_ms, ends)
    for name in (ROUTE_CHANGES, ROUTE_STATE):
        table = open_delta(table_path(settings.data.tables_location, name))
        table.vacuum(retention_hours=-(-streaming.vacuum_retention_ms // _HOUR_MS), dry_run=False, full=True)
        table.create_checkpoint()
        table.cleanup_metadata()


def seen_by_history(settings: Settings, ends: Mapping[int, int]) -> dict[int, int]:
    """``ends``, or less where the history has not got so far; as they are where there is to be no history.

    Args:
        settings: Ours.
        ends: partition → offset.
    """
    if not settings.has_history:
        return dict(ends)
    seen = dict(ends)
    for name in (ROUTE_HISTORY, TOPIC_ROUTE_HISTORY, BROKER_SESSIONS):
        try:
            mark = read_mark(table_path(settings.data.tables_location, name)) or HistoryMark()
        except TableSchemaMismatch as error:
            _LOG.warning("%s", error)
            mark = HistoryMark()
        seen = {partition: min(offset, mark.next_offset(partition)) for partition, offset in seen.items()}
    return seen


def _remove(changes: DeltaTable, cutoff_ms: int, ends: Mapping[int, int]) -> None:
    """Remove rows below an ``at_ms`` and, in their partition, an offset; the commit says which, for the history."""
    offset, partition = pc.field("offset"), pc.field("partition")
    wanted = pc.scalar(False)
    for number, end in ends.items():
        wanted = wanted | ((partition == number) & (offset < end))
    wanted = wanted & (pc.field("at_ms") < cutoff_ms)
    found = changes.to_pyarrow_dataset().to_table(columns=["partition", "offset"], filter=wanted)
    if not found.num_rows:
        return
    topic_id = str(changes.metadata().configuration[TOPIC_ID_PROPERTY])
    last = found.group_by("partition").aggregate([("offset", "max")]).to_pylist()
    removed = [Transaction(removed_app_id(topic_id, r["partition"]), r["offset_max"] + 1) for r in last]
    below = " OR ".join(f'(partition = {p} AND "offset" < {end})' for p, end in ends.items())
    changes.delete(
        f"at_ms < {cutoff_ms} AND ({below})",
        commit_properties=CommitProperties(app_transactions=removed),
        post_commithook_properties=_NO_HOOKS,
    )


def _extent_ms(table: DeltaTable) -> tuple[int, int]:
    """(highest, lowest) at_ms in the table by its files' statistics; zeros where it is empty."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return 0, 0
    return int(pc.max(actions["max.at_ms"]).as_py() or 0), int(pc.min(actions["min.at_ms"]).as_py() or 0)
