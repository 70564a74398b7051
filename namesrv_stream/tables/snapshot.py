"""Reads ``route_changes`` and ``route_state``, and builds the route table from them.

Rows of ``route_changes`` that ``route_state`` covers are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.fold.folded_log import Progress
from namesrv_stream.route.table import RouteTable
from namesrv_stream.table_errors import TableDamaged
from namesrv_stream.tables.change_rows import (
    CHANGES_SCHEMA,
    FOLD_STATE_KIND,
    QUEUE_DATA_SCHEMA,
    STATE_SCHEMA,
    as_read,
    decode_queue_data,
    from_offsets,
    in_log_order,
    is_queue_data,
    iter_changes,
)
from namesrv_stream.tables.delta.commit import LOG
from namesrv_stream.tables.delta.table_version import TableVersion, newest_readable, open_version
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE, SWAP_FILE
from namesrv_stream.tables.storage import Storage

_NESTED: Final = ("broker_addrs", "clusters", "filter_servers")


@dataclass(frozen=True, slots=True)
class FoldStateRow:
    """A partition's row of kind ``fold_state``.

    Attributes:
        next_offset: First offset that the rows of ``route_state`` do not cover.
        at_ms: Highest LogAppendTime before that offset, epoch milliseconds.
        content: The encoded state of the fold at that offset.
    """

    next_offset: int
    at_ms: int
    content: bytes


_NO_FOLD_STATE: Final = FoldStateRow(0, 0, b"")


@dataclass(frozen=True, slots=True)
class StateRows:
    """The rows of one version of ``route_state``.

    Attributes:
        live: All rows except fold states, columns of ``as_read(STATE_SCHEMA)``, in log order.
        fold_states: Partition → its fold state.
        version: Version of the table; -1 if there is no table.
        topic_id: Kafka's id of the topic from which the table was made; "" if there is no table.
        partitions: Number of partitions of that topic.
        begins: Partition → its first offset since the topic got this number of partitions; {} if it never changed.
    """

    live: pa.Table = field(default_factory=as_read(STATE_SCHEMA).empty_table)
    fold_states: Mapping[int, FoldStateRow] = field(default_factory=dict)
    version: int = -1
    topic_id: str = ""
    partitions: int = 0
    begins: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of both tables.

    Attributes:
        state: The rows of ``route_state``.
        changes: Rows of ``route_changes`` that ``state`` does not cover, columns of ``as_read(CHANGES_SCHEMA)``, in log
            order.
        version: Version of ``route_changes``; -1 if there is no table.
        topic_id: Kafka's id of the topic from which the tables were made; "" if there is no table.
        table_id: Delta's id of ``route_changes``, which changes if the table is recreated; "" if there is no table.
        progress: How far ``route_changes`` covers the log.
        damage: Why the newest version of a table could not be read, and an older one was; None if it could.
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
        """Partition → first offset that the rows do not cover."""
        states = self.state.fold_states
        return {
            p: max(states.get(p, _NO_FOLD_STATE).next_offset, place.next_offset) for p, place in self.progress.items()
        }

    @property
    def at_ms(self) -> dict[int, int]:
        """Partition → highest LogAppendTime in the rows, epoch milliseconds."""
        newest = self.changes.group_by("partition").aggregate([("at_ms", "max")]).to_pylist()
        of_states = {p: state.at_ms for p, state in self.state.fold_states.items()}
        return of_states | {r["partition"]: r["at_ms_max"] for r in newest}


def read_tables(tables: Storage) -> TableRows:
    """Read ``route_state``, and the rows of ``route_changes`` that it does not cover; blocks.

    If the newest version of a table is damaged, the newest readable version is used, which is correct at its offsets.

    Raises:
        TableSchemaMismatch: A table has an unexpected schema, or no version of it can be read.
        StoreUnreachable: The object store does not answer.
    """
    # In this order, because route_changes, opened later, then covers at least as much as route_state.
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
    """Read ``route_state`` at one version. Raises the errors of ``TableVersion.read``."""
    rows = table.read()
    is_state = pc.equal(rows["kind"], FOLD_STATE_KIND)
    states = {
        row["partition"]: FoldStateRow(row["offset"], row["at_ms"], row["state"])
        for row in rows.filter(is_state).to_pylist()
    }
    return StateRows(_without(rows, is_state), states, table.version, table.topic_id, table.partitions, table.begins)


def read_newest_state(tables: Storage) -> StateRows:
    """Read ``route_state`` at its newest version; blocks.

    Raises the errors of ``read_tables``, and ``TableDamaged`` if that version is damaged.
    """
    table = open_version(tables / ROUTE_STATE, STATE_SCHEMA)
    return StateRows() if table is None else read_state(table)


def read_rows(tables: Storage, kind: ChangeKind) -> list[RouteChange]:
    """Read all rows of one kind that ``route_changes`` still has, in log order; blocks.

    Fields that are lists or maps are None. Raises the errors of ``read_tables``, and ``TableDamaged`` if the newest
    version is damaged.
    """
    table = open_version(tables / ROUTE_CHANGES, CHANGES_SCHEMA)
    if table is None:
        return []
    columns = [name for name in RouteChange._fields if name not in _NESTED]
    rows = in_log_order(table.read().filter(pc.field("kind") == kind.value)).select(columns)
    found: list[dict[str, Any]] = rows.to_pylist()
    return [RouteChange(**row) for row in found]


def read_uncovered(table: TableVersion, state: StateRows) -> tuple[pa.Table, TableVersion]:
    """Read the rows of ``route_changes`` that ``state`` does not cover, in log order; return (rows, ``table``).

    Raises the errors of ``TableVersion.read``.
    """
    covered = {p: state.fold_states.get(p, _NO_FOLD_STATE) for p in range(table.partitions)}
    begin = {p: found.next_offset for p, found in covered.items()}
    since = {p: found.at_ms for p, found in covered.items()}
    rows = table.read(lambda file: file.may_have(begin) and file.may_have_since(since))
    return in_log_order(from_offsets(rows, begin)), table


def _without(rows: pa.Table, unwanted: Any) -> pa.Table:
    """Return the rows except the few for which ``unwanted`` is true. Nothing is copied."""
    begins = [0, *(position + 1 for position in pc.indices_nonzero(unwanted).to_pylist())]
    ends = [*(begin - 1 for begin in begins[1:]), rows.num_rows]
    return pa.concat_tables(rows[begin:end] for begin, end in zip(begins, ends, strict=True))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The route table at one version of ``route_changes``.

    Attributes:
        table: The route table, which the caller owns.
        next_offsets: Partition → first offset that ``table`` does not cover.
        version: Version of ``route_changes``; -1 if there is no table; ``table`` is then empty.
        progress: How far ``route_changes`` covers the log.
        topic_id: Kafka's id of the topic from which the tables were made; "" if there are none.
        table_id: Delta's id of ``route_changes``; "" if there is no table.
        at_ms: Partition → highest LogAppendTime in the rows, epoch milliseconds.
        damage: Why the newest version could not be read, and an older one was; "" if it could.
    """

    table: RouteTable
    next_offsets: Mapping[int, int]
    version: int
    progress: Progress = field(default_factory=dict)
    topic_id: str = ""
    table_id: str = ""
    at_ms: Mapping[int, int] = field(default_factory=dict)
    damage: str = ""


def load_snapshot(tables: Storage) -> Snapshot:
    """Build the route table from the newest version of the tables; blocks (2 s for 1.6 million live rows).

    Raises:
        TableSchemaMismatch: A table has an unexpected schema, or no version of it can be read.
        StoreUnreachable: The object store does not answer.
    """
    if tables.exists(SWAP_FILE):
        raise TableDamaged(str(tables), SWAP_FILE, "exists: a rebuild is replacing the tables")
    rows = read_tables(tables)
    return Snapshot(
        table=route_table(rows.state.live, rows.changes),
        next_offsets=rows.next_offsets,
        version=rows.version,
        progress=rows.progress,
        topic_id=rows.topic_id,
        table_id=rows.table_id,
        at_ms=rows.at_ms,
        damage=str(rows.damage or ""),
    )


def load_settings_table(tables: Storage) -> RouteTable:
    """Return a route table that has only the fold's settings. Raises the errors of ``load_snapshot``."""
    rows, is_setting = read_tables(tables), pc.field("kind") == ChangeKind.SETTING.value
    return route_table(rows.state.live.filter(is_setting), rows.changes.filter(is_setting))


def route_table(*parts: pa.Table) -> RouteTable:
    """Build a route table from rows.

    Args:
        parts: Rows in log order, the oldest part first; columns of ``as_read(CHANGES_SCHEMA)`` or
            ``as_read(STATE_SCHEMA)``.
    """
    table = RouteTable()
    queue_data, others = [QUEUE_DATA_SCHEMA.empty_table()], []
    for part in parts:
        is_wanted = is_queue_data(part)
        queue_data.append(part.select(QUEUE_DATA_SCHEMA.names).filter(is_wanted).cast(QUEUE_DATA_SCHEMA))
        others.append(iter_changes(part.filter(pc.invert(is_wanted))))
    reducer.apply(table, chain.from_iterable(others), decode_queue_data(pa.concat_tables(queue_data)))
    return table
