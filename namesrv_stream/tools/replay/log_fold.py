"""Reads the log and folds it, one partition at a time."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.route.fold.state import FoldState, decode_state
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.table import RouteTable
from namesrv_stream.table_errors import NoStartPoint, TableSchemaMismatch
from namesrv_stream.tables.snapshot import route_table
from namesrv_stream.tables.stored_changes import KeptState, KeptStates
from namesrv_stream.tools.replay.log_source import LogSource

#: Rows in memory at once: 100 MB. Those of one record may be more.
_ROWS: Final = 200_000

#: Called with (partition, records read, records in total): before the first record, and often.
OnProgress = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class FoldStart:
    """The start of a fold. The fold modifies the state and the table in place.

    Attributes:
        origin: Human-readable description of the start.
        offset: First offset to fold.
        state: State of the fold before that offset.
        table: Route table of the rows before it.
    """

    origin: str
    offset: int
    state: FoldState
    table: RouteTable


def start_of_log(partition: int, partitions: int) -> FoldStart:
    """Return the start at offset 0, with an empty state."""
    return FoldStart("the beginning of the log", 0, FoldState(partition, partitions), RouteTable())


def start_from_state(kept: KeptState) -> FoldStart:
    """Return the start with the fold state of a stored version of ``route_state``.

    Raises:
        TableSchemaMismatch: Another version of the fold wrote it.
    """
    try:
        state = decode_state(kept.fold_state.content)
    except ValueError as error:
        raise TableSchemaMismatch("route_state", f"version {kept.version}: {error}") from None
    return FoldStart(f"route_state, version {kept.version}", state.next_offset, state, route_table(kept.live))


def find_start(
    log: LogSource, partition: int, end: int, kept_states: KeptStates, begin: int | None = None
) -> FoldStart:
    """Return the best start for a fold to ``end`` whose rows are needed from ``begin`` on.

    Without ``begin``, the earliest start is the best. The beginning of the log qualifies only if offset 0 still exists,
    and if the topic has always had the same number of partitions. No fold crosses a gap. If ``log`` prefers Kafka,
    starts that need the archive come last.

    Args:
        end: The offset after the last one to fold.
        kept_states: Stored versions of ``route_state``.
        begin: First offset whose rows are needed; the start may be before it.

    Raises:
        NoStartPoint: There is no such start.
        TableSchemaMismatch: The only start is a state of another version of the fold.
    """
    for earliest in log.starts(partition, end):
        if begin is None:
            kept = kept_states.oldest(partition, at_least=earliest) if earliest or log.begins else None
        else:
            kept = kept_states.newest(partition, at_most=begin)
        if kept is not None and earliest <= kept.fold_state.next_offset <= end:
            return start_from_state(kept)
        if not earliest and not log.begins:
            return start_of_log(partition, len(log.pieces))
    oldest = kept_states.oldest(partition, at_least=earliest)
    possible = oldest.fold_state.next_offset if oldest else None
    wanted = end if begin is None and possible is not None else begin
    raise NoStartPoint(partition, wanted, earliest, possible, log.gap_before(partition, earliest))


class LogFold:
    """A fold under way.

    Attributes:
        state: State of the fold after the last record.
        records: Number of folded records.
        dead_letters: Number of items or whole records that could not be folded.
        place: How far the partition is folded: the next offset, and the fingerprint of the record before it.
    """

    def __init__(self, start: FoldStart) -> None:
        self.state = start.state
        self.records = 0
        self.dead_letters = 0
        self.place = Place(start.offset)
        self._groups = GroupDict(dict(start.table.groups))
        self._table = start.table

    def fold(self, records: Iterable[Record]) -> list[RouteChange]:
        """Fold records in the order of their offsets, and return their rows."""
        return [row for rows in self._pieces(records) for row in rows]

    def _pieces(self, records: Iterable[Record]) -> Iterator[list[RouteChange]]:
        """Fold records, and yield their rows, about ``_ROWS`` at a time."""
        output, last = FoldOutput(), None
        for last in records:
            fold(self.state, self._groups, last, output)
            self.records += 1
            if len(output.changes) >= _ROWS:
                yield self._folded(last, output)
                output = FoldOutput()
        if last is not None:
            yield self._folded(last, output)

    def _folded(self, last: Record, output: FoldOutput) -> list[RouteChange]:
        self.place = Place(self.state.next_offset, fingerprint(last.at_ms, last.value))
        self.dead_letters += len(output.dead_letters)
        # The state of the fold does not contain the values of KV, settings and servers.
        reducer.apply(self._table, (c for c in output.changes if c.kind not in reducer.GROUP_KINDS))
        return output.changes

    def to(
        self, log: LogSource, end: int, on_progress: OnProgress, stop_at: int | None = None
    ) -> Iterator[list[RouteChange]]:
        """Fold the log up to ``end``, and yield the rows in pieces; blocks.

        Args:
            log: The log, which must contain all records up to there.
            end: The offset after the last one to fold.
            on_progress: Called during long folds.
            stop_at: An offset at which a step must end, so that the caller can read the state there.

        Raises:
            KafkaUnreachable: Kafka does not answer any more.
            TableSchemaMismatch: A row of the archive is missing, or a file is damaged.
        """
        stops = sorted({stop for stop in (stop_at, end) if stop is not None and self.state.next_offset < stop <= end})
        for stop in stops:
            for records in read_log(log, self.state.partition, self.state.next_offset, stop, on_progress):
                yield from self._pieces(records)

    def table(self) -> RouteTable:
        """Return the route table; its broker groups are those of the fold's state, not those made of the rows."""
        groups = self._groups.groups
        for name in self._table.groups.keys() - groups.keys():
            self._table.replace_group(BrokerGroup(name))
        for group in groups.values():
            self._table.replace_group(group)
        return self._table


def read_log(log: LogSource, partition: int, begin: int, end: int, on_progress: OnProgress) -> Iterator[list[Record]]:
    """Yield the records ``begin <= offset < end``, some thousand at a time; blocks, and raises as ``LogFold.to``."""
    on_progress(partition, 0, end - begin)
    for records in log.batches(partition, begin, end):
        yield records
        on_progress(partition, records[-1].offset + 1 - begin, end - begin)
