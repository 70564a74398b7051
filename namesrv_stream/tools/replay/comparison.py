"""The first difference between stored rows, tables or fold states and those of a replay."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from namesrv_stream.route.changes import KEY_COLUMNS, ChangeKind, RouteChange
from namesrv_stream.route.digest import Part, TableContent, TableDigest, part_rows

#: Columns that locate a row; the others are its content.
_POSITION: Final = ("partition", "offset", "seq")
_KEY_COLUMNS: Final = {kind.value: columns for kind, columns in KEY_COLUMNS.items()}
_EVENT_KEY: Final = ("broker_name", "cluster", "broker_addr", "server_id")  # of rows of a kind without state


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes:
        where: What differs: a row of ``route_changes``, the table at the end of the range, or the fold state in
            ``route_state``.
        partition: Kafka partition.
        offset: Offset of the row; for a table or a state the offset before which they are compared.
        seq: Sequence number of the row among those of its offset; None for a table or a state.
        kind: Kind of the row.
        key: Key columns of the row.
        columns: The columns that differ, if both sides have the row.
        stored: The columns that are set in the stored row; None if it is not stored.
        folded: The columns that are set in the row of the fold; None if the fold has none.
    """

    where: Literal["route_changes", "table", "fold_state"]
    partition: int
    offset: int
    seq: int | None
    kind: str
    key: Mapping[str, Any]
    columns: tuple[str, ...]
    stored: Mapping[str, Any] | None
    folded: Mapping[str, Any] | None


@dataclass(slots=True)
class RowComparison:
    """The result of a comparison of two sequences of rows.

    Attributes:
        difference: The first difference, at which the comparison ends; None if there is none.
        rows: Number of equal rows.
        rows_past_retention: Number of folded rows that are past their retention and no longer stored.
    """

    difference: Difference | None = None
    rows: int = 0
    rows_past_retention: int = 0


def compare_rows(stored: Iterator[RouteChange], folded: Iterable[RouteChange], kept_from_ms: int) -> RowComparison:
    """Compare the stored rows of a partition with the folded ones, both in log order.

    Args:
        folded: The folded rows; not read after the first difference.
        kept_from_ms: Rows with a lower ``at_ms`` (epoch milliseconds) may have been removed by their retention.
    """
    found, of_stored = RowComparison(), next(stored, None)
    for row in folded:
        if of_stored == row:
            found.rows += 1
            of_stored = next(stored, None)
        elif of_stored is not None and of_stored[:3] <= row[:3]:
            found.difference = _row_difference(of_stored, row if of_stored[:3] == row[:3] else None)
            return found
        elif row.at_ms < kept_from_ms:
            found.rows_past_retention += 1
        else:
            found.difference = _row_difference(None, row)
            return found
    if of_stored is not None:
        found.difference = _row_difference(of_stored, None)
    return found


def _row_difference(stored: RouteChange | None, folded: RouteChange | None) -> Difference:
    row = stored or folded
    assert row is not None
    names = _KEY_COLUMNS.get(row.kind, _EVENT_KEY)
    columns: tuple[str, ...] = ()
    if stored is not None and folded is not None:
        columns = tuple(n for n, s, f in zip(row._fields, stored, folded, strict=True) if s != f)
    return Difference(
        "route_changes",
        row.partition,
        row.offset,
        row.seq,
        row.kind,
        {name: getattr(row, name) for name in names if name not in _POSITION},
        columns,
        _set_columns(stored._asdict()) if stored else None,
        _set_columns(folded._asdict()) if folded else None,
    )


def _set_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _POSITION and value is not None}


def table_difference(
    partition: int,
    offset: int,
    stored: tuple[TableContent, TableDigest],
    folded: tuple[TableContent, TableDigest],
) -> Difference | None:
    """Return the first row, by part and key, in which two tables of one partition differ; None if they are equal."""
    if stored[1].partitions[partition] == folded[1].partitions[partition]:
        return None
    for part in sorted(stored[1].parts.keys() | folded[1].parts.keys()):
        if part.partition == partition and stored[1].parts.get(part) != folded[1].parts.get(part):
            return _part_difference(part, offset, stored[0], folded[0])
    raise AssertionError("digests of a partition differ, but none of its parts")


def _part_difference(part: Part, offset: int, stored: TableContent, folded: TableContent) -> Difference:
    def rows(content: TableContent) -> dict[tuple[Any, ...], dict[str, Any]]:
        found = {}
        for row in part_rows(content, part):
            key = tuple(row.columns.get(name) for name in KEY_COLUMNS[row.kind] if name not in _POSITION)
            found[(row.kind, *key)] = _set_columns(row.columns)
        return found

    of_stored, of_folded = rows(stored), rows(folded)
    for full_key in sorted(of_stored.keys() | of_folded.keys(), key=repr):
        before, after = of_stored.get(full_key), of_folded.get(full_key)
        if before != after:
            kind = ChangeKind(full_key[0])
            names = [name for name in KEY_COLUMNS[kind] if name not in _POSITION]
            key = dict(zip(names, full_key[1:], strict=True))
            columns = _differing(before, after)
            return Difference("table", part.partition, offset, None, kind, key, columns, before, after)
    # Only an empty part differs: a namespace without entries, or a group without brokers, exists on one side.
    return Difference("table", part.partition, offset, None, part.kind, {"name": part.name}, (), None, None)


def state_difference(partition: int, offset: int, stored: bytes, folded: bytes) -> Difference | None:
    """Return the difference between two encoded fold states, with every field that differs; None if they are equal.

    Of a list or a mapping, it contains only the first item that differs.
    """
    if stored == folded:
        return None
    of_stored, of_folded = _state_fields(stored), _state_fields(folded)
    columns = _differing(of_stored, of_folded)
    if not columns:
        return None
    pairs = {name: _first_items(of_stored.get(name), of_folded.get(name)) for name in columns}
    before, after = ({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
    return Difference("fold_state", partition, offset, None, "fold_state", {}, columns, before, after)


def _state_fields(content: bytes) -> dict[str, Any]:
    """Return the fields, with sorted lists: lists encode mappings, whose order is different in a rebuilt state."""
    fields: dict[str, Any] = orjson.loads(content)
    return {name: sorted(v, key=repr) if isinstance(v, list) else v for name, v in fields.items()}


def _first_items(stored: Any, folded: Any) -> tuple[Any, Any]:
    """Return the first items that differ between two collections; all of them would be too long to read."""
    if isinstance(stored, list) and isinstance(folded, list):
        common = min(len(stored), len(folded))
        at = next((i for i in range(common) if stored[i] != folded[i]), common)
        return (stored[at : at + 1] or [None])[0], (folded[at : at + 1] or [None])[0]
    if isinstance(stored, dict) and isinstance(folded, dict):
        name = _differing(stored, folded)[0]
        return {name: stored.get(name)}, {name: folded.get(name)}
    return stored, folded


def _differing(stored: Mapping[str, Any] | None, folded: Mapping[str, Any] | None) -> tuple[str, ...]:
    if stored is None or folded is None:
        return ()
    return tuple(sorted(n for n in stored.keys() | folded.keys() if stored.get(n) != folded.get(n)))
