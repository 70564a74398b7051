"""The expected content of the tables: the offline fold of the whole log."""

from collections.abc import Iterator, Mapping

from namesrv_stream.route.changes import KEY_COLUMNS, ChangeKind, RouteChange
from namesrv_stream.route.digest import content_of, digest_of
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tools.replay.comparison import Difference, state_difference, table_difference
from namesrv_stream.tools.replay.log_fold import LogFold, start_of_log
from tests.power_cut.made_up_log import PARTITIONS, RecordsOf


class Truth:
    """The fold of a log.

    Args:
        log: The whole log.

    Attributes:
        rows: All rows, in log order.
    """

    def __init__(self, log: RecordsOf) -> None:
        self._log = log
        self.rows: list[RouteChange] = [row for partition in log for row in _folded(log, partition, None)[1]]

    def ends(self) -> dict[int, int]:
        """Return partition → offset after its last record."""
        return {partition: len(records) for partition, records in self._log.items()}

    def table_difference(self, table: RouteTable, offsets: Mapping[int, int]) -> Difference | None:
        """Return the first difference between a table and the fold at these offsets."""
        ours = (content_of(table, PARTITIONS), digest_of(table, PARTITIONS))
        for partition in self._log:
            offset = offsets.get(partition, 0)
            folded = _folded(self._log, partition, offset)[0].table()
            theirs = (content_of(folded, PARTITIONS), digest_of(folded, PARTITIONS))
            if difference := table_difference(partition, offset, ours, theirs):
                return difference
        return None

    def state_difference(self, partition: int, offset: int, state: bytes) -> Difference | None:
        """Return the first difference between a fold state and that of the fold at an offset."""
        return state_difference(partition, offset, state, encode_state(_folded(self._log, partition, offset)[0].state))

    def live_rows(self, offsets: Mapping[int, int]) -> list[RouteChange]:
        """Return the newest row of each live key, below these offsets."""
        newest: dict[tuple[object, ...], RouteChange] = {}
        for row in self.rows:
            if row.offset < offsets.get(row.partition, 0) and row.kind in _KEYED:
                newest[(row.kind, *(getattr(row, name) for name in KEY_COLUMNS[ChangeKind(row.kind)]))] = row
        return sorted((row for row in newest.values() if not row.gone), key=_position)


_KEYED = frozenset(str(kind.value) for kind in KEY_COLUMNS)


def _position(row: RouteChange) -> tuple[int, int, int]:
    return row.partition, row.offset, row.seq


def _folded(log: RecordsOf, partition: int, end: int | None) -> tuple[LogFold, list[RouteChange]]:
    fold = LogFold(start_of_log(partition, PARTITIONS))
    return fold, fold.fold(log[partition][:end])


def differing_rows(stored: list[RouteChange], folded: list[RouteChange]) -> Iterator[tuple[str, RouteChange]]:
    """Return rows that are missing, duplicate, invented or different; both lists are in log order."""
    by_position = {_position(row): row for row in folded}
    seen: set[tuple[int, int, int]] = set()
    for row in stored:
        position = _position(row)
        if position in seen:
            yield "row is there twice", row
        elif position not in by_position:
            yield "row is not from the log", row
        elif row != by_position[position]:
            yield "row differs", row
        seen.add(position)
    for position, row in by_position.items():
        if position not in seen:
            yield "row is missing", row
