"""``rebuild``: computes both tables from the log, verifies them, and puts them in the place of the old ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.processes import job_lock
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import RebuildRefused
from namesrv_stream.tables.change_rows import (
    CHANGES_SCHEMA,
    ROW_SCHEMA,
    STATE_SCHEMA,
    encode_changes,
    iter_changes,
)
from namesrv_stream.tables.delta.open_table import UNREADABLE
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.repair import REBUILT, create_table, settle_swap, swap_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow
from namesrv_stream.tables.storage import Storage, one_line, tables_of
from namesrv_stream.tables.stored_changes import KeptStates, StoredChanges
from namesrv_stream.tools.replay.comparison import Difference, compare_rows
from namesrv_stream.tools.replay.log_archive import OpenLog, log_opener
from namesrv_stream.tools.replay.log_fold import LogFold, OnProgress, start_from_state, start_of_log
from namesrv_stream.tools.replay.log_source import LogSource, read_from_text
from namesrv_stream.tools.replay.rebuild_start import OldTables, RebuildStart, find_rebuild_starts
from namesrv_stream.tools.replay.replay import Replay, StoredTables, replay_partition
from namesrv_stream.tools.replay.replay_report import Rebuild, difference_line

_REMEDY: Final = "stop it; Kafka must keep running (`namesrv-stream kafka`), name servers may"
_BATCH_ID: Final = 0  # no micro-batch wrote the rows
_FILE_ROWS: Final = 100_000  # more files would slow down readers of the table


@dataclass(frozen=True, slots=True)
class Consent:
    """What the operator has accepted.

    Attributes:
        loss: Whether the new tables may lack what cannot be read any more: records of the log, rows of the old tables.
        differences: Whether rows of the new tables may differ from the old ones.
    """

    loss: bool
    differences: bool


def rebuild(
    settings: Settings,
    consent: Consent,
    print_line: Callable[[str], None],
    on_progress: OnProgress,
    open_log: OpenLog | None = None,
) -> Rebuild:
    """Rebuild the tables; blocks. Existing files stay untouched until the new tables are verified.

    Args:
        consent: What the operator has accepted.
        print_line: Called with a line for every step.
        on_progress: Called during long folds.
        open_log: Opens the log; by default from Kafka, and from the archive what Kafka has deleted.

    Raises:
        RebuildRefused: The rebuild would lose or change more than ``consent`` allows, or the verification failed.
        NamesrvStreamError: The rebuild is not possible; the text has the reason.
    """
    tables = tables_of(settings)
    with job_lock(settings.data.lock_dir, _REMEDY):
        if settle_swap(tables):
            print_line("completed an earlier rebuild, which was killed while it replaced the tables")
        try:
            outcome = _make(settings, consent, print_line, on_progress, open_log or log_opener(needs_kafka=True))
        except BaseException as error:
            tables.remove_all(REBUILT)
            if isinstance(error, UNREADABLE) and not isinstance(error, NamesrvStreamError):
                reason = f"the tables cannot be rebuilt: {one_line(error)}; nothing was changed"
                raise RebuildRefused(reason) from error
            raise
        suffix = datetime.fromtimestamp(SystemClock().now_ms() / 1000, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
        kept = tuple(f"{tables}/{name}" for name in swap_tables(tables, suffix))
        return replace(outcome, kept=kept)


def _make(
    settings: Settings,
    consent: Consent,
    print_line: Callable[[str], None],
    on_progress: OnProgress,
    open_log: OpenLog,
) -> Rebuild:
    """Write the new tables and verify them."""
    new = tables_of(settings) / REBUILT
    print_line("reading the log's offsets and the old tables")
    with open_log(settings) as log:
        for note in (*log.notes, *log.gap_texts()):
            print_line(note)
        old = OldTables.open(settings, log.topic_id, print_line)
        log = replace(log, begins=old.begins)
        starts = find_rebuild_starts(settings, log, old)
        losses = (*old.losses, *(loss for start in starts for loss in start.losses))
        if losses and not consent.loss:
            raise RebuildRefused(f"{'; '.join(losses)}; nothing was changed; use --accept-loss to continue")
        _write(new, starts, log, print_line, on_progress)
        made = _open(new)
        difference = _first_difference(made, old, starts, log)
        if difference is not None and not consent.differences:
            raise RebuildRefused(
                f"the log and the old tables differ: {difference_line(difference)}; if you expect that (a rule has"
                " changed, a row was damaged), use --accept-differences to continue; nothing was changed"
            )
        print_line("verifying the new tables")
        proof = _verify(made, starts, log, on_progress)
    return Rebuild({s.partition: s.start.origin for s in starts}, losses, proof, difference, ())


def _write(
    new: Storage, starts: list[RebuildStart], log: LogSource, print_line: Callable[[str], None], on_progress: OnProgress
) -> None:
    create_table(new / ROUTE_CHANGES, CHANGES_SCHEMA, log.topic_id, len(starts), log.begins)
    create_table(new / ROUTE_STATE, STATE_SCHEMA, log.topic_id, len(starts), log.begins)
    state_writer, writer = StateWriter(new), ChangesWriter(new, 0)
    seeds = {s.partition: s.seed for s in starts if s.seed is not None}
    if seeds:
        state_writer.replace(pa.concat_tables([s.live.cast(STATE_SCHEMA) for s in starts]), seeds)
    states: dict[int, FoldStateRow] = {}
    for start in starts:
        partition, end = start.partition, log.end(start.partition)
        records = read_from_text(log.read_from(partition, start.start.offset, end)) or "nothing"
        print_line(f"partition {partition}: from {start.start.origin}, folding {records}")
        fold, parts = LogFold(start.start), [ROW_SCHEMA.empty_table()]
        writer.write(start.history, {partition: fold.place}, _BATCH_ID)
        for changes in fold.to(log, end, on_progress):
            parts.append(pa.Table.from_batches([encode_changes(changes)]))
            if sum(part.num_rows for part in parts) >= _FILE_ROWS:
                writer.write(pa.concat_tables(parts), {partition: fold.place}, _BATCH_ID)
                del parts[1:]
        writer.write(pa.concat_tables(parts), {partition: fold.place}, _BATCH_ID)
        states[partition] = FoldStateRow(fold.state.next_offset, fold.state.at_ms, encode_state(fold.state))
    state_writer.cover(states)


def _first_difference(
    made: StoredTables, old: OldTables, starts: list[RebuildStart], log: LogSource
) -> Difference | None:
    """Return the first row that differs from the old tables, among the rows that both have from the log."""
    for start in starts:
        begin, end = start.start.offset, min(old.next_offset(start.partition), log.end(start.partition))
        before = old.rows(start.partition, begin, end)
        if before is not None:
            rows = iter_changes(made.changes.rows(start.partition, begin, end))
            difference = compare_rows(iter_changes(before), rows, old.kept_from_ms).difference
            if difference is not None:
                return difference
    return None


def _verify(made: StoredTables, starts: list[RebuildStart], log: LogSource, on_progress: OnProgress) -> Replay:
    """Read back the new tables and compare them with a replay.

    Raises:
        RebuildRefused: The new tables differ from the replay.
    """
    parts = []
    for rebuilt in starts:
        partition, begin = rebuilt.partition, rebuilt.start.offset
        seeded = made.states.newest(partition, at_most=begin) if rebuilt.seed is not None else None
        start = start_of_log(partition, len(starts)) if seeded is None else start_from_state(seeded)
        parts.append(replay_partition(log, start, made, begin, log.end(partition), on_progress))
    proof = Replay(tuple(parts))
    if proof.difference is not None:
        line = difference_line(proof.difference)
        raise RebuildRefused(f"the new tables differ from the log when they are read back: {line}; nothing was changed")
    return proof


def _open(tables: Storage) -> StoredTables:
    changes = StoredChanges.open(tables)
    assert changes is not None
    return StoredTables(changes, KeptStates(tables), 0)
