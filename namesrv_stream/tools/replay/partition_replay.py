"""The replay of one partition: compares rows, the state of the fold, and the table at the end."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.digest import content_of, digest_of, total_of
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.tables.change_rows import iter_changes
from namesrv_stream.tables.snapshot import route_table
from namesrv_stream.tables.stored_changes import KeptStates, StoredChanges
from namesrv_stream.tools.replay.comparison import Difference, compare_rows, state_difference, table_difference
from namesrv_stream.tools.replay.log_fold import FoldStart, LogFold, OnProgress
from namesrv_stream.tools.replay.log_source import LogSource, Piece

_NO_DIGESTS: Final[tuple[str | None, str | None]] = (None, None)


@dataclass(frozen=True, slots=True)
class StoredTables:
    """The stored tables to compare with the log.

    Attributes:
        changes: ``route_changes`` at one version.
        states: The stored versions of ``route_state``.
        kept_from_ms: Rows with a lower ``at_ms`` (epoch milliseconds) may have been removed by their retention.
    """

    changes: StoredChanges
    states: KeptStates
    kept_from_ms: int


@dataclass(frozen=True, slots=True)
class PartitionReplay:
    """The result for one partition.

    Attributes:
        origin: The start of the fold, as text.
        folded_from: First folded offset.
        compared_from: First offset whose rows are compared.
        end: First offset after the range.
        read_from: The pieces of the log that were read.
        records: Number of folded records.
        rows: Number of equal rows.
        rows_past_retention: Number of rows that are past their retention and no longer stored.
        dead_letters: Number of items that could not be folded.
        is_state_compared: Whether the range contains a fold state of ``route_state``.
        stored_digest: Digest of the stored table at the end; None after a difference, or if the table is unknown.
        folded_digest: Digest of the fold's table at the end; None in the same cases.
        difference: The first difference.
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
    """The result of a replay.

    Attributes:
        partitions: The result of every partition, in order.
        notes: Remarks on the log: which records are missing and why, which store could not be read.
    """

    partitions: tuple[PartitionReplay, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return self.difference is None

    @property
    def difference(self) -> Difference | None:
        """The first difference of the lowest partition that has any."""
        return next((p.difference for p in self.partitions if p.difference is not None), None)

    @property
    def digest(self) -> str | None:
        """Digest of the table at the end, of all partitions; None if one differs or has no digest."""
        known = {p.partition: p.folded_digest for p in self.partitions if p.folded_digest is not None}
        return total_of(known) if self.is_equal and len(known) == len(self.partitions) else None


def replay_partition(
    log: LogSource, start: FoldStart, stored: StoredTables, compared_from: int, end: int, on_progress: OnProgress
) -> PartitionReplay:
    """Fold a partition from ``start`` to ``end`` and compare its rows from ``compared_from`` on.

    It blocks, and raises as ``LogFold.to``.
    """
    partition, partitions = start.state.partition, start.state.partitions
    fold, kept = LogFold(start), stored.states.newest(partition, at_most=end)
    state_at = -1 if kept is None else kept.fold_state.next_offset
    folded_state: bytes | None = None

    def folded() -> Iterator[RouteChange]:
        nonlocal folded_state
        for rows in fold.to(log, end, on_progress, stop_at=state_at):
            if fold.state.next_offset == state_at:
                folded_state = encode_state(fold.state)
            yield from (row for row in rows if row.offset >= compared_from)

    rows = stored.changes.rows(partition, compared_from, end)
    compared = compare_rows(iter_changes(rows), folded(), stored.kept_from_ms)
    difference, digests = compared.difference, _NO_DIGESTS
    if difference is None and kept is not None and folded_state is not None:
        difference = state_difference(partition, state_at, kept.fold_state.content, folded_state)
    # Without any state, the stored table also lacks the rows that retention has removed.
    if difference is None and (kept is not None or not compared.rows_past_retention):
        # As a starting server has it: the newest state before the end, and the rows since then.
        since = stored.changes.rows(partition, max(state_at, 0), end)
        tables = route_table(since) if kept is None else route_table(kept.live, since), fold.table()
        ours, theirs = ((content_of(table, partitions), digest_of(table, partitions)) for table in tables)
        digests = ours[1].partitions[partition], theirs[1].partitions[partition]
        difference = table_difference(partition, end, ours, theirs)
    return PartitionReplay(
        partition,
        start.origin,
        start.offset,
        compared_from,
        end,
        log.read_from(partition, start.offset, end),
        fold.records,
        compared.rows,
        compared.rows_past_retention,
        fold.dead_letters,
        folded_state is not None,
        *digests,
        difference,
    )
