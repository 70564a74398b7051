"""The rows of one commit, by what they change."""

from collections.abc import Iterable, Iterator
from typing import Final

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.reducer import GROUP_KINDS

#: Rows that one step sorts: a few milliseconds.
_ROWS_A_STEP: Final = 20_000


class CommitRows:
    """Sorted in steps by ``sort``; each list keeps their order.

    Attributes:
        of_group: By broker name.
        of_settings: By partition.
        others: Those of neither.
    """

    def __init__(self) -> None:
        self.of_group: dict[str, list[RouteChange]] = {}
        self.of_settings: dict[int, list[RouteChange]] = {}
        self.others: list[RouteChange] = []

    def sort(self, changes: Iterable[RouteChange]) -> Iterator[None]:
        """Take rows in."""
        for number, row in enumerate(changes, 1):
            if row.kind in GROUP_KINDS:
                self.of_group.setdefault(row.broker_name or "", []).append(row)
            elif row.kind == ChangeKind.SETTING:
                self.of_settings.setdefault(row.partition, []).append(row)
            else:
                self.others.append(row)
            if number % _ROWS_A_STEP == 0:
                yield
