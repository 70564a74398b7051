"""The fold of one partition outside Spark, from any state in which it can begin."""

from collections.abc import Iterable
from dataclasses import dataclass

from namesrv_stream.errors import NoStartPoint, TableSchemaMismatch
from namesrv_stream.event_log.source import LogSource
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold import FoldOutput, GroupDict, Record, fold
from namesrv_stream.route.fold_state import FoldState, decode_state
from namesrv_stream.route.folded_log import fingerprint
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.loader import route_table
from namesrv_stream.tables.stored_changes import KeptState, KeptStates


@dataclass(frozen=True, slots=True)
class FoldStart:
    """Where a fold begins; what it holds is the fold's to change.

    Attributes:
        origin: For people.
        offset: The first one to fold.
        state: The fold's state there.
        table: All that the rows below that offset say.
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
    table = route_table(kept.live)
    return FoldStart(f"route_state, version {kept.version}", state.next_offset, state, table)


def find_start(
    log: LogSource, partition: int, end: int, kept_states: KeptStates, begin: int | None = None
) -> FoldStart:
    """The best start for a fold to ``end`` that is looked at from ``begin`` on.

    Without ``begin``, the earliest one. The beginning of the log is one only while there is offset 0, and nothing is
    folded over a gap. What needs the archive comes after what Kafka alone can give, where ``log`` prefers Kafka.

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
            kept = kept_states.oldest(partition, at_least=earliest) if earliest else None
        else:
            kept = kept_states.newest(partition, at_most=begin)
        if kept is not None and earliest <= kept.fold_state.next_offset <= end:
            return start_from_state(kept)
        if not earliest:
            return start_of_log(partition, len(log.pieces))
    oldest = kept_states.oldest(partition, at_least=earliest)
    possible = oldest.fold_state.next_offset if oldest else None
    wanted = end if begin is None and possible is not None else begin
    raise NoStartPoint(partition, wanted, earliest, possible, log.gap_before(partition, earliest))


class PartitionFold:
    """A fold under way.

    Attributes:
        state: Of the fold, after the last record.
        records: Records folded.
        dead_letters: Items, or whole records, that could not be folded.
        fingerprint: Of the last record; 0 before the first.
    """

    def __init__(self, start: FoldStart) -> None:
        self.state = start.state
        self.records = 0
        self.dead_letters = 0
        self.fingerprint = 0
        self._groups = GroupDict(dict(start.table.groups))
        self._table = start.table
        self._output = FoldOutput()

    def fold(self, records: Iterable[Record]) -> list[RouteChange]:
        """Fold records in the order of their offsets; returns their rows."""
        output, last = self._output, None
        for record in records:
            fold(self.state, self._groups, record, output)
            self.records += 1
            last = record
        if last is not None:
            self.fingerprint = fingerprint(last.at_ms, last.value)
        self.dead_letters += len(output.dead_letters)
        changes, output.changes = output.changes, []
        output.dead_letters.clear()
        # Of KV, settings and servers the fold keeps no values.
        reducer.apply(self._table, (c for c in changes if c.kind not in reducer.GROUP_KINDS))
        return changes

    def table(self) -> RouteTable:
        """What the fold says now: its own groups, not those that its rows make."""
        groups = self._groups.groups
        for name in self._table.groups.keys() - groups.keys():
            self._table.replace_group(BrokerGroup(name))
        for group in groups.values():
            self._table.replace_group(group)
        return self._table
