"""Replays the log and compares the result with the tables: rows, the state of the fold, and the table at the end."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import instant
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.digest import content_of, digest_of, total_of
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import LogTruncated, TableSchemaMismatch
from namesrv_stream.tables.change_rows import iter_changes
from namesrv_stream.tables.layout import ROUTE_CHANGES
from namesrv_stream.tables.snapshot import route_table
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptStates, StoredChanges
from namesrv_stream.tools.replay.comparison import Difference, compare_rows, state_difference, table_difference
from namesrv_stream.tools.replay.log_archive import OpenLog, log_opener
from namesrv_stream.tools.replay.log_fold import FoldStart, LogFold, OnProgress, find_start
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
        folded_digest: Digest of the fold's table at the end; None when ``stored_digest`` is.
        difference: The first difference; None if there is none.
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
        of_stored, of_folded = ((content_of(table, partitions), digest_of(table, partitions)) for table in tables)
        digests = of_stored[1].partitions[partition], of_folded[1].partitions[partition]
        difference = table_difference(partition, end, of_stored, of_folded)
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


_SOURCE: Final = "command line"
_NO_TABLE: Final = (
    "does not exist: name another directory with --conf or --data-dir; if the table was lost, `namesrv-stream rebuild`"
    " rebuilds it from the log"
)


@dataclass(frozen=True, slots=True)
class GivenOffsets:
    """Offsets from the command line.

    Attributes:
        flag: The flag that gave them.
        everywhere: Offset for every partition that ``of_partition`` does not have; None if none was given.
        of_partition: Partition → offset.
    """

    flag: str
    everywhere: int | None
    of_partition: Mapping[int, int]

    def get(self, partition: int) -> int | None:
        return self.of_partition.get(partition, self.everywhere)

    def check(self, partitions: int) -> None:
        """Refuse offsets of partitions that the topic does not have.

        Raises:
            ConfigError: An offset belongs to a partition that does not exist.
        """
        for partition in sorted(self.of_partition):
            if partition >= partitions:
                raise ConfigError(
                    _SOURCE, self.flag, f"there is no partition {partition}: the partitions are 0 to {partitions - 1}"
                )


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """The range to replay.

    Attributes:
        begin: First offsets to compare; by default as early as the log can be folded.
        end: First offsets after the range; by default the end of the tables.
        end_ms: If given, the range ends at the latest before the first record with this LogAppendTime (epoch
            milliseconds) or a later one.
    """

    begin: GivenOffsets
    end: GivenOffsets
    end_ms: int | None


def replay(settings: Settings, wanted: ReplayRange, on_progress: OnProgress, open_log: OpenLog | None = None) -> Replay:
    """Fold the range again and compare it with the tables, which the job may keep writing; blocks.

    Args:
        wanted: The range to replay.
        on_progress: Called during long folds.
        open_log: Opens the log; by default from Kafka, and from the archive what Kafka has deleted.

    Raises:
        NamesrvStreamError: The replay is not possible; the text has the reason.
    """
    stored = _stored_tables(settings)
    changes = stored.changes
    with (open_log or log_opener())(
        settings
    ) as log:  # opened after the tables, so that it contains all that they cover
        _check_same_topic(settings, changes, log.topic_id)
        log = replace(log, begins=changes.begins)
        for offsets in (wanted.begin, wanted.end):
            offsets.check(settings.kafka.partitions)
        ends = {p: _end(log, p, wanted, changes.next_offsets[p]) for p in sorted(changes.next_offsets)}
        time_notes = [] if wanted.end_ms is None else _time_notes(wanted.end_ms, log, ends)
        parts = [_replay_partition(log, p, end, wanted, stored, on_progress) for p, end in ends.items()]
        return Replay(tuple(parts), (*log.notes, *log.gap_texts(), *time_notes))


def _stored_tables(settings: Settings) -> StoredTables:
    tables = tables_of(settings)
    changes, states = StoredChanges.open(tables), KeptStates(tables)
    if changes is None:
        raise TableSchemaMismatch(str(tables / ROUTE_CHANGES), _NO_TABLE)
    if states.damage is not None:
        raise states.damage
    return StoredTables(changes, states, changes.kept_from_ms(settings.streaming.changes_retention_ms))


def _check_same_topic(settings: Settings, changes: StoredChanges, topic_id: str) -> None:
    """Refuse tables of another log.

    Raises:
        ConfigError: The tables belong to another topic, or to another number of partitions than configured.
    """
    topic = settings.kafka.broker_events_topic
    if changes.topic_id != topic_id or len(changes.next_offsets) != settings.kafka.partitions:
        made_from = f"topic id {changes.topic_id} with {len(changes.next_offsets)} partitions"
        reason = f"the tables belong to {made_from}, topic {topic} has id {topic_id} and"
        raise ConfigError("settings", "kafka.broker_events_topic", f"{reason} {settings.kafka.partitions}")


def _end(log: LogSource, partition: int, wanted: ReplayRange, covered: int) -> int:
    """Return the end of the range: the given one, otherwise the end of the tables, or of the archive without Kafka."""
    end, flag = wanted.end.get(partition), wanted.end.flag
    if end is None:
        end = covered if log.has_kafka else min(covered, log.end(partition))
    elif end > covered:
        reason = f"is {end}, but the tables end at {covered} in partition {partition}"
        raise ConfigError("command line", flag, reason)
    at_time = None if wanted.end_ms is None else log.offset_at(partition, wanted.end_ms)
    end = end if at_time is None else min(end, at_time)
    if end > log.end(partition):
        if not log.has_kafka:
            reason = f"is {end}, but broker_events ends at {log.end(partition)} in partition {partition}"
            raise ConfigError("command line", flag, f"{reason}, and Kafka does not answer")
        raise LogTruncated(partition, end, log.begin(partition), log.end(partition))
    return end


def _time_notes(end_ms: int, log: LogSource, ends: Mapping[int, int]) -> list[str]:
    """Return a remark if the given time is after the end of the data.

    Raises:
        ConfigError: All records are later, so there would be nothing to compare.
    """
    if all(end <= log.begin(p) for p, end in ends.items()) and any(log.end(p) for p in ends):
        reason = f"the log has no record from before {instant(end_ms, with_ms=True)}"
        raise ConfigError("command line", "--to-time", reason)
    at_time = [(log.offset_at(partition, end_ms), end) for partition, end in ends.items()]
    if any(offset is not None and offset <= end for offset, end in at_time):
        return []
    return [f"--to-time {instant(end_ms)} is after the end of the data: all of it was replayed"]


def _replay_partition(
    log: LogSource, partition: int, end: int, wanted: ReplayRange, stored: StoredTables, on_progress: OnProgress
) -> PartitionReplay:
    begin = wanted.begin.get(partition)
    if begin is not None and begin > end:
        reason = f"the range begins at {begin} in partition {partition}, after its end at {end}"
        raise ConfigError("command line", wanted.begin.flag, reason)
    start = find_start(log, partition, end, stored.states, begin)
    return replay_partition(log, start, stored, start.offset if begin is None else begin, end, on_progress)
