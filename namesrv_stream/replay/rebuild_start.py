"""Where a rebuild begins to fold, and what of the old tables it takes over because the log no longer tells it.

Per partition, the first of these that there is: the beginning of the log; the oldest kept ``route_state`` that the log
still goes on from; the tables alone, with every broker at age zero.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.errors import TableSchemaMismatch
from namesrv_stream.event_log.log_fold import FoldStart, start_from_state, start_of_log
from namesrv_stream.event_log.source import LogSource
from namesrv_stream.replay.old_tables import OldTables
from namesrv_stream.route.fold.derived_state import rebuilt_state
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.settings import Settings
from namesrv_stream.tables.route_writers import next_state
from namesrv_stream.tables.schema.change_rows import CHANGES_SCHEMA, ROW_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.snapshot import FoldStateRow, StateRows, route_table


@dataclass(frozen=True, slots=True)
class RebuildStart:
    """The start of one partition.

    Attributes:
        start: Of the fold.
        seed: What ``route_state`` says there; None at the beginning of the log.
        live: Live rows of ``route_state`` there, columns of ``STATE_SCHEMA``.
        history: Rows of ``route_changes`` before it, columns of ``ROW_SCHEMA``, taken over as they are.
        losses: What nobody knows any more, a sentence each.
    """

    partition: int
    start: FoldStart
    seed: FoldStateRow | None
    live: pa.Table
    history: pa.Table
    losses: tuple[str, ...]


def find_rebuild_starts(settings: Settings, log: LogSource, old: OldTables) -> list[RebuildStart]:
    """The starts of all partitions; blocks."""
    return [_find(partition, settings.kafka.partitions, log, old) for partition in range(settings.kafka.partitions)]


def _find(partition: int, partitions: int, log: LogSource, old: OldTables) -> RebuildStart:
    end, covered = log.end(partition), old.next_offset(partition)
    losses: tuple[str, ...] = ()
    if covered > end:
        losses = (f"partition {partition}: Kafka has lost the records {end} to {covered - 1}, which were folded",)
    starts = log.starts(partition, end)
    # What is before a kept state is taken over from the old rows: where there are none, the farther back the better.
    for earliest in starts if old.has_changes else sorted(starts):
        if not earliest and not log.begins:
            start = start_of_log(partition, partitions)
            return RebuildStart(partition, start, None, STATE_SCHEMA.empty_table(), ROW_SCHEMA.empty_table(), losses)
        kept = old.oldest_state(partition, earliest)
        if kept is not None and kept.fold_state.next_offset <= end:
            try:
                start = start_from_state(kept)
            except TableSchemaMismatch:
                continue  # of another version of the fold: nothing but the rows can be taken over
            history = old.history(partition, start.offset)
            return RebuildStart(partition, start, kept.fold_state, kept.live, history, losses)
    return _from_tables(partition, partitions, earliest, min(covered, end), log, old, losses)


def _from_tables(
    partition: int,
    partitions: int,
    earliest: int,
    known: int,
    log: LogSource,
    old: OldTables,
    losses: tuple[str, ...],
) -> RebuildStart:
    """From rows alone, which are known below offset ``known``: nobody knows how long ago who was heard."""
    if known < earliest:
        losses += (
            f"partition {partition}: the records {known} to {earliest - 1} were removed before they were folded",
        )
    kept = old.newest_state(partition, at_most=known)
    begins = log.begins.get(partition, 0)
    if kept is None and log.begins:
        losses += (f"partition {partition}: route_state is gone, which alone has what the first partitions said",)
    base = kept.fold_state if kept else FoldStateRow(begins, 0, b"")
    live = kept.live if kept else STATE_SCHEMA.empty_table()
    since = old.rows(partition, base.next_offset, known)
    since = CHANGES_SCHEMA.empty_table() if since is None else since
    table = route_table(live, since)
    at_ms = max(base.at_ms, *(pc.max(rows["at_ms"]).as_py() or 0 for rows in (live, since)))
    begin = max(known, earliest)
    state = rebuilt_state(partition, partitions, begin, at_ms, table)
    seed = FoldStateRow(begin, at_ms, encode_state(state))
    state_rows = StateRows(live, {partition: base} if kept else {})
    live, _ = next_state(state_rows, since, {partition: seed})
    start = FoldStart("the old tables, every broker at age zero", begin, state, table)
    return RebuildStart(partition, start, seed, live, old.history(partition, known), losses)
