"""Folds ranges of the log again and compares: row for row, the fold's state, and the table at the end."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from namesrv_stream.event_log.pieces import Piece
from namesrv_stream.event_log.source import LogSource
from namesrv_stream.replay.comparison import Difference, RowComparison, state_difference, table_difference
from namesrv_stream.replay.partition_fold import FoldStart, PartitionFold
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.digest import content_of, digest_of, total_of
from namesrv_stream.route.fold import Record
from namesrv_stream.route.fold_state import encode_state
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.loader import route_table
from namesrv_stream.tables.schema.rows import iter_changes
from namesrv_stream.tables.stored_changes import KeptState, KeptStates, StoredChanges

_PROGRESS_S: Final = 2.0

#: Told (partition, records folded, records in all), each two seconds of a fold that takes longer.
OnProgress = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class StoredTables:
    """What is compared with the log.

    Attributes:
        changes: ``route_changes`` at one version.
        states: The versions of ``route_state``.
        kept_from_ms: Rows with a lower ``at_ms`` may have been removed by their retention, epoch milliseconds.
    """

    changes: StoredChanges
    states: KeptStates
    kept_from_ms: int


@dataclass(frozen=True, slots=True)
class PartitionReplay:
    """What came of one partition.

    Attributes:
        origin: Where the fold began, for people.
        folded_from: Its first offset.
        compared_from: First offset whose rows are compared.
        end: First offset beyond the range.
        read_from: From which store which of the records were read.
        records: Folded.
        rows: Found equal.
        rows_past_retention: Not stored any more, as they should be.
        dead_letters: Items that could not be folded.
        is_state_compared: Whether a fold state in ``route_state`` lies in the range.
        stored_digest: Of the stored table at the end; None where a row or state differs, or where it cannot be made.
        folded_digest: Of the fold's table at the end; as above.
        difference: The first one.
    """

    partition: int
    origin: str
    folded_from: int
    compared_from: int
    end: int
    read_from: tuple[Piece, ...]
    records: int
    rows: int
    rows_past_retention: int
    dead_letters: int
    is_state_compared: bool
    stored_digest: str | None
    folded_digest: str | None
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of it.

    Attributes:
        partitions: Of each, in order.
        notes: What is to be known of the log: which records are missing and why, which store could not be read.
    """

    partitions: tuple[PartitionReplay, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return self.difference is None

    @property
    def difference(self) -> Difference | None:
        """The first one: of the lowest partition that has any."""
        return next((p.difference for p in self.partitions if p.difference is not None), None)

    @property
    def digest(self) -> str | None:
        """Of the table at the end, of all partitions; None where they are not equal, or not all could be digested."""
        digests = {p.partition: p.folded_digest for p in self.partitions}
        known = {partition: digest for partition, digest in digests.items() if digest is not None}
        return total_of(known) if self.is_equal and len(known) == len(digests) else None


def replay_partition(
    log: LogSource,
    start: FoldStart,
    stored: StoredTables,
    compared_from: int,
    end: int,
    on_progress: OnProgress = lambda partition, done, total: None,
) -> PartitionReplay:
    """Fold a partition from ``start`` to ``end`` and compare its rows from ``compared_from`` on; blocks.

    Raises:
        KafkaUnreachable: Kafka went away.
        TableSchemaMismatch: A row of the archive is gone, or a file is damaged.
    """
    partition, partitions, folded_from = start.state.partition, start.state.partitions, start.offset
    fold = PartitionFold(start)
    rows = RowComparison(iter_changes(stored.changes.rows(partition, compared_from, end)), stored.kept_from_ms)
    kept = stored.states.newest(partition, at_most=end)
    state_at = kept.fold_state.next_offset if kept is not None else -1
    difference: Difference | None = None
    is_state_compared = False
    for records in _steps(log, partition, folded_from, end, state_at, on_progress):
        rows.compare(row for row in fold.fold(records) if row.offset >= compared_from)
        difference = rows.difference
        if kept is not None and fold.state.next_offset == state_at and difference is None:
            is_state_compared = True
            difference = state_difference(partition, state_at, kept.fold_state.content, encode_state(fold.state))
        if difference is not None:
            break
    else:
        rows.finish()
        difference = rows.difference
    stored_digest = folded_digest = None
    # Without any state, rows that are gone by their retention are missing in the stored table too.
    if difference is None and (kept is not None or not rows.rows_past_retention):
        ours, theirs = _stored_table(stored.changes, kept, partition, end), fold.table()
        contents = [(content_of(table, partitions), digest_of(table, partitions)) for table in (ours, theirs)]
        stored_digest, folded_digest = (digest.partitions[partition] for _, digest in contents)
        difference = table_difference(partition, end, contents[0], contents[1])
    return PartitionReplay(
        partition,
        start.origin,
        folded_from,
        compared_from,
        end,
        log.read_from(partition, folded_from, end),
        fold.records,
        rows.rows,
        rows.rows_past_retention,
        fold.dead_letters,
        is_state_compared,
        stored_digest,
        folded_digest,
        difference,
    )


def fold_changes(log: LogSource, fold: PartitionFold, end: int, on_progress: OnProgress) -> Iterator[list[RouteChange]]:
    """Fold on to ``end``, yielding the rows of some thousand records at a time; blocks.

    Raises:
        KafkaUnreachable: Kafka went away.
    """
    for records in _steps(log, fold.state.partition, fold.state.next_offset, end, -1, on_progress):
        yield fold.fold(records)


def _steps(
    log: LogSource, partition: int, begin: int, end: int, stop_at: int, on_progress: OnProgress
) -> Iterator[list[Record]]:
    """Batches of the log, one of which ends just before offset ``stop_at``."""
    told_s = time.monotonic()
    for records in log.batches(partition, begin, end):
        before = [record for record in records if record.offset < stop_at]
        behind = records[len(before) :]
        yield from (part for part in (before, behind) if part)
        if time.monotonic() - told_s >= _PROGRESS_S:
            told_s = time.monotonic()
            on_progress(partition, records[-1].offset + 1 - begin, end - begin)


def _stored_table(changes: StoredChanges, kept: KeptState | None, partition: int, end: int) -> RouteTable:
    """As a server that starts would have it at ``end``: the newest state before it and the rows since."""
    if kept is None:
        return route_table(changes.rows(partition, 0, end))
    since = changes.rows(partition, kept.fold_state.next_offset, end)
    return route_table(kept.live, since)


def kept_from_ms(changes: StoredChanges, retention_ms: int) -> int:
    """Before this instant, epoch milliseconds, the clean-up may have removed rows."""
    return changes.newest_at_ms - retention_ms
