"""The tables made from ``route_changes``: each goes on from its own mark, in steps, and catches up after a loss."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.streaming.history.history_table import HistoryTable
from namesrv_stream.streaming.history.lost_changes import StateTime, rows_to_catch_up
from namesrv_stream.streaming.history.row_keys import HISTORY_KINDS, KEY_PARTS
from namesrv_stream.tables.changes_source import ChangesSource
from namesrv_stream.tables.delta.predicates import is_null
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.history_mark import HistoryMark
from namesrv_stream.tables.route_tables import read_newest_state
from namesrv_stream.tables.schema.columns import ROW_SCHEMA
from namesrv_stream.tables.schema.history_columns import BROKER_SESSIONS, ROUTE_HISTORY, TOPIC_ROUTE_HISTORY
from namesrv_stream.tables.storage import Storage

_LOG = logging.getLogger(__name__)

#: Table → kinds of the rows that it is made from.
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    ROUTE_HISTORY: HISTORY_KINDS,
    TOPIC_ROUTE_HISTORY: (ChangeKind.QUEUE_DATA,),
    BROKER_SESSIONS: (ChangeKind.BROKER_LIVE,),
}
_PLACE: Final = ("partition", "offset", "seq", "at_ms", "kind", "gone", "cause", "detail")
_QUEUES: Final = ("read_queue_nums", "write_queue_nums", "perm", "topic_sys_flag")


@dataclass(frozen=True, slots=True)
class Step:
    """Changes that a table has not seen.

    Attributes:
        begin: partition → first offset.
        end: partition → the offset after the last.
        changes: Columns of ``RouteChange``.
        mark: How far the table reaches with them.
    """

    begin: Mapping[int, int]
    end: Mapping[int, int]
    changes: pa.Table
    mark: HistoryMark


def next_step(
    name: str,
    mark: HistoryMark,
    source: ChangesSource,
    begin: Mapping[int, int],
    end: Mapping[int, int],
    limit: int,
) -> Step:
    """Read what comes after ``begin``; blocks.

    Args:
        name: Of the table whose step it is.
        mark: How far that reaches.
        source: ``route_changes``.
        begin: partition → first offset that the table has not seen.
        end: partition → the offset after the last to read. Where a catch-up went beyond it, nothing is read.
        limit: Rows at most.
    """
    end = {p: max(first, end[p]) for p, first in begin.items()}
    rows, reached = source.rows(KINDS[name], begin, end, mark.at_ms, limit)
    last = rows.group_by("partition").aggregate([("at_ms", "max")]).to_pylist()
    at_ms = {**mark.at_ms, **{r["partition"]: r["at_ms_max"] for r in last}}
    return Step(begin, reached, rows, HistoryMark(source.topic_id, source.changes_id, reached, at_ms))


def unseen_partitions(mark: HistoryMark, source: ChangesSource) -> list[int]:
    """Partitions of which changes were removed before a table saw them, or were made anew by a rebuild."""
    if mark.changes_id not in ("", source.changes_id):
        return sorted(source.committed)
    return [p for p, offset in source.removed_below.items() if offset > mark.next_offset(p)]


def catching_up(
    tables: Storage,
    table: HistoryTable,
    source: ChangesSource,
    partitions: Collection[int],
    at_most: Mapping[int, int] | None = None,
) -> Step | None:
    """The step over what cannot be read any more, to where ``route_state`` stands; blocks.

    Args:
        tables: Where the tables are.
        table: Whose step it is.
        source: ``route_changes``.
        partitions: In which to catch up.
        at_most: partition → offset beyond which the state must not be; where absent, it may be anywhere.

    Returns:
        None where the state does not reach far enough yet, or reaches too far; the next run will find it otherwise.
    """
    found = read_newest_state(tables)
    live, fold_states = found.live, found.fold_states
    begin = {p: table.mark.next_offset(p) for p in source.committed}
    state = {
        p: StateTime(s.next_offset, s.at_ms)
        for p, s in fold_states.items()
        if p in partitions
        and s.next_offset >= max(begin[p], source.removed_below[p])
        and (at_most is None or s.next_offset <= at_most.get(p, 0))
    }
    if state.keys() != set(partitions):
        _LOG.info("%s waits for a route_state that covers what it has missed, and no more than is read", table.name)
        return None
    for partition in sorted(partitions):
        text = (
            "%s: changes of partition %d from offset %d on were removed, or made anew: goes on from route_state at %d"
        )
        _LOG.warning(text, table.name, partition, begin[partition], state[partition].next_offset)
    own = live.filter(pc.field("kind").isin(list(KINDS[table.name]))).select(ROW_SCHEMA.names)
    lasting, content = _LASTING[table.name](table.stored())
    changes = rows_to_catch_up(lasting, own.cast(ROW_SCHEMA), content, begin, state)
    end = {p: state[p].next_offset if p in state else offset for p, offset in begin.items()}
    at_ms = {**table.mark.at_ms, **{p: s.at_ms for p, s in state.items()}}
    return Step(begin, end, changes, HistoryMark(source.topic_id, source.changes_id, end, at_ms))


def _lasting_routes(table: StoredTable) -> tuple[pa.Table, tuple[str, ...]]:
    content = tuple(name for name in ROW_SCHEMA.names if name not in KEY_PARTS and name not in _PLACE)
    columns = list(dict.fromkeys(("partition", "gone", *KEY_PARTS, *content)))
    return table.rows(is_null("valid_to"), columns=columns).to_arrow(), content


def _lasting_topics(table: StoredTable) -> tuple[pa.Table, tuple[str, ...]]:
    columns = ("partition", "gone", "topic", "broker_name", "cluster", *_QUEUES)
    rows = table.rows(is_null("valid_to"), columns=columns)
    return rows.with_columns(kind=pl.lit(str(ChangeKind.QUEUE_DATA))).to_arrow(), _QUEUES


def _lasting_sessions(table: StoredTable) -> tuple[pa.Table, tuple[str, ...]]:
    rows = table.rows(is_null("down_at"), columns=("partition", "cluster", "broker_name", "broker_addr"))
    return rows.with_columns(kind=pl.lit(str(ChangeKind.BROKER_LIVE)), gone=pl.lit(False)).to_arrow(), ()


_Lasting = Callable[[StoredTable], tuple[pa.Table, tuple[str, ...]]]
_LASTING: Final[Mapping[str, _Lasting]] = {
    ROUTE_HISTORY: _lasting_routes,
    TOPIC_ROUTE_HISTORY: _lasting_topics,
    BROKER_SESSIONS: _lasting_sessions,
}
