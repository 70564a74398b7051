"""The fold of one partition outside Spark: where it can begin, and how it goes on."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from namesrv_stream.errors import NoStartPoint, TableSchemaMismatch
from namesrv_stream.event_log.source import LogSource
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.route.fold.state import FoldState, decode_state
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.snapshot import route_table
from namesrv_stream.tables.stored_changes import KeptState, KeptStates

_PROGRESS_S: Final = 2.0

#: Told (partition, records read, records in all), each two seconds of a read that takes longer.
OnProgress = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class FoldStart:
    """Where a fold begins; what it holds is the fold's to change.

    Attributes:
        origin: For people.
        offset: The first one to fold.
        state: The fold's state there.
        table: All that the rows before it say.
    """

    origin: str
    offset: int
    state: FoldState
    table: RouteTable


def start_of_log(partition: int, partitions: int) -> FoldStart:
    """Before the first record."""
    return FoldStart("the beginning of the log", 0, FoldState(partition, partitions), RouteTable())


def start_from_state(kept: KeptState) -> FoldStart:
    """Where a kept ``route_state`` was made.

    Raises:
        TableSchemaMismatch: It is of another version of the fold.
    """
    try:
        state = decode_state(kept.fold_state.content)
    except ValueError as error:
        raise TableSchemaMismatch("route_state", f"version {kept.version}: {error}") from None
    return FoldStart(f"route_state, version {kept.version}", state.next_offset, state, route_table(kept.live))


def find_start(
    log: LogSource, partition: int, end: int, kept_states: KeptStates, begin: int | None = None
) -> FoldStart:
    """The best start for a fold to ``end`` that is looked at from ``begin`` on.

    Without ``begin``, the earliest one. The beginning of the log is one only while there is offset 0, and where the
    topic always had as many partitions. Nothing is folded over a gap. What needs the archive comes after what Kafka
    alone can give, where ``log`` prefers Kafka.

    Args:
        log: The log.
        partition: Kafka partition.
        end: The offset after the last to fold.
        kept_states: Versions of ``route_state``.
        begin: Offset; the start may be before it.

    Raises:
        NoStartPoint: There is none.
        TableSchemaMismatch: The only one is of another version of the fold.
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
        state: Of the fold, after the last record.
        records: Records folded.
        dead_letters: Items, or whole records, that could not be folded.
        place: How far it has come.
    """

    def __init__(self, start: FoldStart) -> None:
        self.state = start.state
        self.records = 0
        self.dead_letters = 0
        self.place = Place(start.offset)
        self._groups = GroupDict(dict(start.table.groups))
        self._table = start.table

    def fold(self, records: Iterable[Record]) -> list[RouteChange]:
        """Fold records in the order of their offsets; returns their rows."""
        output = FoldOutput()
        last: Record | None = None
        for last in records:
            fold(self.state, self._groups, last, output)
            self.records += 1
        if last is not None:
            self.place = Place(self.state.next_offset, fingerprint(last.at_ms, last.value))
        self.dead_letters += len(output.dead_letters)
        # Of KV, settings and servers the fold keeps no values.
        reducer.apply(self._table, (c for c in output.changes if c.kind not in reducer.GROUP_KINDS))
        return output.changes

    def to(
        self, log: LogSource, end: int, on_progress: OnProgress, stop_at: int | None = None
    ) -> Iterator[list[RouteChange]]:
        """Fold the log on to ``end``; yields the rows of some thousand records at a time, and blocks.

        Args:
            log: The log, which must have all records up to there.
            end: The offset after the last to fold.
            on_progress: Told of long folds.
            stop_at: An offset before which one of the steps is to end.

        Raises:
            KafkaUnreachable: Kafka went away.
            TableSchemaMismatch: A row of the archive is gone, or a file is damaged.
        """
        stops = sorted({stop for stop in (stop_at, end) if stop is not None and self.state.next_offset < stop <= end})
        for stop in stops:
            for records in read_log(log, self.state.partition, self.state.next_offset, stop, on_progress):
                yield self.fold(records)

    def table(self) -> RouteTable:
        """What the fold says now: its own groups, not those that its rows make."""
        groups = self._groups.groups
        for name in self._table.groups.keys() - groups.keys():
            self._table.replace_group(BrokerGroup(name))
        for group in groups.values():
            self._table.replace_group(group)
        return self._table


def read_log(log: LogSource, partition: int, begin: int, end: int, on_progress: OnProgress) -> Iterator[list[Record]]:
    """Records with ``begin <= offset < end``, some thousand at a time; blocks, and raises as ``LogFold.to``."""
    told_s = time.monotonic()
    for records in log.batches(partition, begin, end):
        yield records
        if time.monotonic() - told_s >= _PROGRESS_S:
            told_s = time.monotonic()
            on_progress(partition, records[-1].offset + 1 - begin, end - begin)
