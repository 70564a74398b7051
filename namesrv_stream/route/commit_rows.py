"""The rows of one commit: in slices of whole records, and by what they change."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.reducer import GROUP_KINDS


class CommitRows:
    """Each list keeps the order of the rows.

    Attributes:
        of_group: By broker name.
        of_settings: By partition.
        others: Those of neither.
    """

    def __init__(self, changes: Iterable[RouteChange]) -> None:
        self.of_group: dict[str, list[RouteChange]] = {}
        self.of_settings: dict[int, list[RouteChange]] = {}
        self.others: list[RouteChange] = []
        for row in changes:
            if row.kind in GROUP_KINDS:
                self.of_group.setdefault(row.broker_name or "", []).append(row)
            elif row.kind == ChangeKind.SETTING:
                self.of_settings.setdefault(row.partition, []).append(row)
            else:
                self.others.append(row)


def slices_of(
    changes: Sequence[RouteChange], next_offsets: Mapping[int, int], max_rows: int
) -> Iterator[tuple[Sequence[RouteChange], Mapping[int, int]]]:
    """Cut a commit between records of the log, so that each slice is a commit that the job could have made.

    Args:
        changes: Rows of the commit.
        next_offsets: Kafka partition to the first offset that the commit does not cover.
        max_rows: A slice has so many rows, and the rest of its last record.

    Yields:
        Rows, and the offsets that the view reaches with them; those of the commit with its last slice.
    """
    if len(changes) > max_rows:
        changes = sorted(changes, key=lambda row: (row.partition, row.offset, row.seq))
    begin = 0
    while len(changes) - begin > max_rows:
        end = begin + max_rows
        last = changes[end - 1]
        while end < len(changes) and (changes[end].partition, changes[end].offset) == (last.partition, last.offset):
            end += 1
        if end == len(changes):
            break
        part = changes[begin:end]
        yield part, {row.partition: row.offset + 1 for row in part}
        begin = end
    yield changes[begin:], next_offsets
