"""Where changes were removed before the history had them, or were made anew: goes on from ``route_state``.

Nothing is lost in silence. A key whose newest row is known begins an interval at that row's own time; one whose row
is not of the lost part, and differs, at the time of the state; one that the state does not have is gone from that time
on. The last two say so by their cause, ``state_rebuilt``, and by a negative ``seq``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.route.changes import Cause
from namesrv_stream.streaming.history.row_keys import KEY_PARTS, ROW_KEY, with_row_key
from namesrv_stream.tables.schema.columns import ROW_SCHEMA

_DETAIL: Final = "what happened before is not known: changes were removed, or made anew, before the history had them"
#: By which rows that are not of the log are numbered.
_ORDER: Final = ("kind", "broker_name", "topic", "key")


@dataclass(frozen=True, slots=True)
class StateTime:
    """Where ``route_state`` stands in a partition.

    Attributes:
        next_offset: First offset that it does not cover.
        at_ms: Highest LogAppendTime before it.
    """

    next_offset: int
    at_ms: int


def rows_to_catch_up(
    lasting: pa.Table,
    live: pa.Table,
    content: Sequence[str],
    known: Mapping[int, int],
    state: Mapping[int, StateTime],
) -> pa.Table:
    """The changes that turn what a table has into what the state says.

    Args:
        lasting: Its rows without end: ``partition``, the key columns, ``kind``, ``gone`` and ``content``.
        live: Rows of ``route_state``, columns of ``RouteChange``, of the same kinds.
        content: Columns in which a row says what its key is.
        known: partition → first offset that the table has not seen.
        state: The same partitions, which are those to catch up in → where the state stands.

    Returns:
        Columns of ``RouteChange``; each key at most once.
    """
    lasting = lasting.filter(pc.field("partition").isin(list(state)) & ~pc.field("gone"))
    live = live.filter(pc.field("partition").isin(list(state)))
    had, has = _keys(lasting), _keys(live)
    said = dict(zip(had, _said(lasting, content), strict=True))
    changed = [i for i, (key, now) in enumerate(zip(has, _said(live, content), strict=True)) if said.get(key) != now]
    places = zip(live["partition"].to_pylist(), live["offset"].to_pylist(), strict=True)
    is_seen = [offset < known[partition] for partition, offset in places]
    in_log = _taken(live, [i for i in changed if not is_seen[i]])
    unknown = _taken(live, [i for i in changed if is_seen[i]]).to_pylist()
    lives_on = set(has)
    gone = _taken(lasting, [i for i, key in enumerate(had) if key not in lives_on])
    rows = _at_state([*unknown, *map(_gone, gone.to_pylist())], state)
    return pa.concat_tables([in_log.select(ROW_SCHEMA.names).cast(ROW_SCHEMA), pa.Table.from_pylist(rows, ROW_SCHEMA)])


def _taken(rows: pa.Table, numbers: list[int]) -> pa.Table:
    return rows.take(pa.array(numbers, pa.int64()))  # of none, Arrow has to be told the type


def _keys(rows: pa.Table) -> list[str]:
    parts = [name for name in KEY_PARTS if name in rows.column_names]
    return with_row_key(pl.DataFrame(rows.select(parts)))[ROW_KEY].to_list()


def _said(rows: pa.Table, content: Iterable[str]) -> list[tuple[Any, ...]]:
    columns = [rows[name].to_pylist() for name in content]
    if "broker_addrs" in content:  # a map: pairs in any order
        columns.append([sorted(_pairs(addrs)) for addrs in columns.pop(list(content).index("broker_addrs"))])
    return list(zip([True] * rows.num_rows, *columns, strict=True))


def _pairs(addrs: Iterable[Any] | None) -> list[tuple[int, str]]:
    """A map as Arrow or Polars has it."""
    return [tuple(pair.values()) if isinstance(pair, dict) else pair for pair in addrs or ()]


def _gone(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in KEY_PARTS if name in row} | {"gone": True}


def _at_state(rows: Iterable[dict[str, Any]], state: Mapping[int, StateTime]) -> list[dict[str, Any]]:
    """Rows that are not of the log, at the time of the state."""
    numbers = {partition: count(-1, -1) for partition in state}
    ordered = sorted(rows, key=lambda row: [(row.get(name) is not None, row.get(name) or "") for name in _ORDER])
    return [
        row
        | {"seq": next(numbers[row["partition"]]), "cause": str(Cause.STATE_REBUILT), "detail": _DETAIL}
        | {"offset": state[row["partition"]].next_offset, "at_ms": state[row["partition"]].at_ms}
        for row in ordered
    ]
