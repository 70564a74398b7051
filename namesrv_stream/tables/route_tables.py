"""Reads ``route_changes`` and ``route_state``, without rows of the former that the latter supersedes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.errors import TableDamaged
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.fold.folded_log import Progress
from namesrv_stream.tables.delta.commit import LOG
from namesrv_stream.tables.delta.table_version import TableVersion, newest_readable, open_version
from namesrv_stream.tables.schema.columns import CHANGES_SCHEMA, STATE_SCHEMA, as_read
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.schema.rows import FOLD_STATE_KIND, from_offsets, in_log_order
from namesrv_stream.tables.storage import Storage

_NESTED: Final = ("broker_addrs", "clusters", "filter_servers")


@dataclass(frozen=True, slots=True)
class FoldStateRow:
    """A partition's row of kind ``fold_state``.

    Attributes:
        next_offset: First offset that the rows of ``route_state`` do not cover.
        at_ms: Highest LogAppendTime before it, epoch milliseconds.
        content: The fold's state there, encoded.
    """

    next_offset: int
    at_ms: int
    content: bytes


_NO_FOLD_STATE: Final = FoldStateRow(0, 0, b"")


@dataclass(frozen=True, slots=True)
class StateRows:
    """What one version of ``route_state`` holds.

    Attributes:
        live: Its rows but for the fold states, columns of ``STATE_SCHEMA`` as read, in log order.
        fold_states: partition → its fold state.
        version: Of the table; -1 where there is none.
        topic_id: Of the topic from which it was made; "" where there is no table.
        partitions: Of that topic.
        begins: partition → first offset written for so many; {} where there always were so many.
    """

    live: pa.Table = field(default_factory=as_read(STATE_SCHEMA).empty_table)
    fold_states: Mapping[int, FoldStateRow] = field(default_factory=dict)
    version: int = -1
    topic_id: str = ""
    partitions: int = 0
    begins: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableRows:
    """What both tables hold.

    Attributes:
        state: ``route_state``.
        changes: Rows of ``route_changes`` that it does not cover, columns of ``CHANGES_SCHEMA`` as read, in log order.
        version: Of ``route_changes``; -1 where there is no table.
        topic_id: Of the topic from which the tables were made; "" where there is no table.
        table_id: Delta's id of ``route_changes``: another one where it was recreated; "" where there is no table.
        progress: How far ``route_changes`` covers the log.
        damage: Why this is not the newest version of the tables; None if it is.
    """

    state: StateRows = field(default_factory=StateRows)
    changes: pa.Table = field(default_factory=as_read(CHANGES_SCHEMA).empty_table)
    version: int = -1
    topic_id: str = ""
    table_id: str = ""
    progress: Progress = field(default_factory=dict)
    damage: TableDamaged | None = None

    @property
    def next_offsets(self) -> dict[int, int]:
        """partition → first offset that the rows do not cover."""
        states = self.state.fold_states
        return {
            p: max(states.get(p, _NO_FOLD_STATE).next_offset, place.next_offset) for p, place in self.progress.items()
        }

    @property
    def at_ms(self) -> dict[int, int]:
        """partition → highest LogAppendTime that the rows tell of, epoch milliseconds."""
        newest = self.changes.group_by("partition").aggregate([("at_ms", "max")]).to_pylist()
        of_states = {p: state.at_ms for p, state in self.state.fold_states.items()}
        return of_states | {r["partition"]: r["at_ms_max"] for r in newest}


def read_tables(tables: Storage) -> TableRows:
    """Read ``route_state``, then what ``route_changes`` has beyond it; blocks.

    Where the newest version of a table is damaged, the newest that can be read is taken instead: what it says was true
    at its offsets.

    Args:
        tables: Where both tables are.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects, or no version of it can be read.
        StoreUnreachable: The object store does not answer.
    """
    # In this order: route_changes, opened later, has at least what route_state covers.
    state, state_damage = newest_readable(tables / ROUTE_STATE, STATE_SCHEMA, read_state)
    found = state or StateRows()
    rows, damage = newest_readable(tables / ROUTE_CHANGES, CHANGES_SCHEMA, lambda table: read_uncovered(table, found))
    if rows is None:
        return TableRows()
    changes, table = rows
    if state is None and any(place.next_offset for place in table.progress.values()):
        raise TableDamaged(str(tables / ROUTE_STATE), LOG, "is missing")
    without_state = table.progress.keys() - found.fold_states.keys()
    if without_state and any(table.removed_below()[partition] for partition in without_state):
        raise TableDamaged(str(tables / ROUTE_STATE), LOG, "has no state that covers the rows that were removed by age")
    return TableRows(
        found, changes, table.version, table.topic_id, table.table_id, table.progress, damage or state_damage
    )


def read_state(table: TableVersion) -> StateRows:
    """``route_state`` at one version; raises as ``TableVersion.read``."""
    rows = table.read()
    is_state = pc.equal(rows["kind"], FOLD_STATE_KIND)
    states = {
        row["partition"]: FoldStateRow(row["offset"], row["at_ms"], row["state"])
        for row in rows.filter(is_state).to_pylist()
    }
    return StateRows(_without(rows, is_state), states, table.version, table.topic_id, table.partitions, table.begins)


def read_newest_state(tables: Storage) -> StateRows:
    """``route_state`` at its newest version; blocks. Raises as ``read_tables``, also where that version is damaged."""
    table = open_version(tables / ROUTE_STATE, STATE_SCHEMA)
    return StateRows() if table is None else read_state(table)


def read_rows(tables: Storage, kind: ChangeKind) -> list[RouteChange]:
    """All rows of one kind that ``route_changes`` still has, in log order; blocks.

    Columns of lists and maps are left out. Raises as ``read_tables``, also where the newest version is damaged.
    """
    table = open_version(tables / ROUTE_CHANGES, CHANGES_SCHEMA)
    if table is None:
        return []
    columns = [name for name in RouteChange._fields if name not in _NESTED]
    rows = in_log_order(table.read().filter(pc.field("kind") == kind.value)).select(columns)
    found: list[dict[str, Any]] = rows.to_pylist()
    return [RouteChange(**row) for row in found]


def read_uncovered(table: TableVersion, state: StateRows) -> tuple[pa.Table, TableVersion]:
    """Rows of ``route_changes`` that ``state`` does not cover, in log order; raises as ``TableVersion.read``."""
    covered = {p: state.fold_states.get(p, _NO_FOLD_STATE) for p in range(table.partitions)}
    begin = {p: found.next_offset for p, found in covered.items()}
    since = {p: found.at_ms for p, found in covered.items()}
    rows = table.read(lambda file: file.may_have(begin) and file.may_have_since(since))
    return in_log_order(from_offsets(rows, begin)), table


def _without(rows: pa.Table, unwanted: Any) -> pa.Table:
    """The rows but for a few; none is copied."""
    begins = [0, *(position + 1 for position in pc.indices_nonzero(unwanted).to_pylist())]
    ends = [*(begin - 1 for begin in begins[1:]), rows.num_rows]
    return pa.concat_tables(rows[begin:end] for begin, end in zip(begins, ends, strict=True))
