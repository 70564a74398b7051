"""Reads both tables at their newest versions, without the history that ``route_state`` has made superfluous."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from namesrv_stream.errors import TableSchemaMismatch
from namesrv_stream.location import Location
from namesrv_stream.snapshot.table_files import open_delta, read_parquet, transaction_versions
from namesrv_stream.tables import (
    CHANGES_SCHEMA,
    FOLD_STATE_KIND,
    PARTITIONS_PROPERTY,
    ROUTE_CHANGES,
    ROUTE_STATE,
    STATE_SCHEMA,
    TOPIC_ID_PROPERTY,
    app_id,
    as_read,
    check_table,
    from_offsets,
    in_log_order,
    table_path,
)


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

#: What reading a table may raise where it, or a part of it, is damaged or absent; not where its store does not answer.
UNREADABLE: Final = (TableSchemaMismatch, DeltaError, OSError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class TableRows:
    """What the tables hold.

    Attributes:
        live: Rows of ``route_state`` but for the fold states, columns of ``STATE_SCHEMA`` as read, in log order.
        fold_states: partition → its fold state.
        changes: Rows of ``route_changes`` that ``live`` does not cover, columns of ``CHANGES_SCHEMA`` as read, in log
            order.
        next_offsets: partition → first offset that the rows do not cover.
        version: Of ``route_changes``; -1 where there is no table.
        topic_id: Of the topic the tables were made from; "" where there is no table.
        table_id: Delta's id of ``route_changes``: another one where it was made anew; "" where there is no table.
        at_ms: partition → highest LogAppendTime that the rows tell of, epoch milliseconds.
    """

    live: pa.Table = field(default_factory=as_read(STATE_SCHEMA).empty_table)
    fold_states: Mapping[int, FoldStateRow] = field(default_factory=dict)
    changes: pa.Table = field(default_factory=as_read(CHANGES_SCHEMA).empty_table)
    next_offsets: Mapping[int, int] = field(default_factory=dict)
    version: int = -1
    topic_id: str = ""
    table_id: str = ""
    at_ms: Mapping[int, int] = field(default_factory=dict)


def open_table(path: Location, schema: pa.Schema) -> DeltaTable | None:
    """The table at its newest version; None where there is none.

    Raises:
        TableSchemaMismatch: It is not as this version of the code expects.
    """
    try:
        table = open_delta(path)
    except TableNotFoundError:
        return None
    protocol = table.protocol()
    features = [*(protocol.reader_features or ()), *(protocol.writer_features or ())]
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    check_table(str(path), versions, features, pa.schema(table.schema()), schema)
    return table


def read_tables(tables_dir: Location, kind: str | None = None) -> TableRows:
    """Read ``route_state``, then what ``route_changes`` has beyond it; blocks.

    Args:
        tables_dir: Folder of both tables.
        kind: Only rows of this kind.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects.
    """
    # In this order: route_changes, opened later, has at least what route_state covers.
    state = open_table(table_path(tables_dir, ROUTE_STATE), STATE_SCHEMA)
    live, fold_states = read_state(state, tables_dir) if state else (as_read(STATE_SCHEMA).empty_table(), {})
    changes = open_table(table_path(tables_dir, ROUTE_CHANGES), CHANGES_SCHEMA)
    if changes is None:
        return TableRows()
    properties = changes.metadata().configuration
    topic_id = str(properties[TOPIC_ID_PROPERTY])
    covered = {p: fold_states.get(p, _NO_FOLD_STATE) for p in range(int(properties[PARTITIONS_PROPERTY]))}
    committed = transaction_versions(
        table_path(tables_dir, ROUTE_CHANGES), changes, {p: app_id(topic_id, p) for p in covered}
    )
    rows = _read_changes(changes, tables_dir, covered)
    newest = rows.group_by("partition").aggregate([("at_ms", "max")]).to_pylist()
    at_ms = {p: state.at_ms for p, state in fold_states.items()} | {r["partition"]: r["at_ms_max"] for r in newest}
    if kind is not None:
        live, rows = live.filter(pc.field("kind") == kind), rows.filter(pc.field("kind") == kind)
    return TableRows(
        live=in_log_order(live),
        fold_states=fold_states,
        changes=in_log_order(rows),
        next_offsets={p: max(covered[p].next_offset, committed[p]) for p in covered},
        version=changes.version(),
        topic_id=topic_id,
        table_id=str(changes.metadata().id),
        at_ms=at_ms,
    )


def read_fold_states(tables_dir: Location) -> dict[int, FoldStateRow]:
    """What the newest ``route_state`` covers: partition → its fold state; blocks.

    Raises:
        TableSchemaMismatch: The table is not as this version of the code expects.
    """
    state = open_table(table_path(tables_dir, ROUTE_STATE), STATE_SCHEMA)
    return read_state(state, tables_dir)[1] if state else {}


def read_state(table: DeltaTable, tables_dir: Location) -> tuple[pa.Table, dict[int, FoldStateRow]]:
    """Live rows and fold states of ``route_state`` at the version that is open; columns of ``STATE_SCHEMA`` as read."""
    actions = pa.table(table.get_add_actions(flatten=True))
    rows = read_files(table_path(tables_dir, ROUTE_STATE), actions.column("path").to_pylist(), STATE_SCHEMA)
    is_state = pc.equal(rows["kind"], FOLD_STATE_KIND)
    states = {
        row["partition"]: FoldStateRow(row["offset"], row["at_ms"], row["state"])
        for row in rows.filter(is_state).to_pylist()
    }
    return _without(rows, is_state), states


def _without(rows: pa.Table, unwanted: Any) -> pa.Table:
    """The rows but for a few; none is copied."""
    begins = [0, *(position + 1 for position in pc.indices_nonzero(unwanted).to_pylist())]
    ends = [*(begin - 1 for begin in begins[1:]), rows.num_rows]
    return pa.concat_tables(rows[begin:end] for begin, end in zip(begins, ends, strict=True))


def _read_changes(table: DeltaTable, tables_dir: Location, covered: Mapping[int, FoldStateRow]) -> pa.Table:
    """Rows at or above the covered offset of their partition; files that can have none are not read."""
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    # The oldest first: then the rows of most tables are in order already.
    actions.sort(key=lambda action: (action.get("min.partition") or 0, action.get("min.offset") or 0))
    paths = [a["path"] for a in actions if _may_have(a, covered)]
    rows = read_files(table_path(tables_dir, ROUTE_CHANGES), paths, CHANGES_SCHEMA)
    return from_offsets(rows, {partition: state.next_offset for partition, state in covered.items()})


def _may_have(action: Mapping[str, Any], covered: Mapping[int, FoldStateRow]) -> bool:
    """Whether a file may have rows that are not covered, by its statistics.

    Offsets alone would not do: a file holds rows of several partitions, of which one may be millions of records ahead
    of another. ``at_ms`` never falls within a partition, and all are near the same moment.
    """
    lowest, highest = action.get("min.partition"), action.get("max.partition")
    offset, at_ms = action.get("max.offset"), action.get("max.at_ms")
    if lowest is None or highest is None or offset is None or at_ms is None:
        return True
    return any(
        offset >= state.next_offset and at_ms >= state.at_ms
        for partition, state in covered.items()
        if lowest <= partition <= highest
    )


def read_files(folder: Location, paths: list[str], schema: pa.Schema) -> pa.Table:
    """Rows of some of a table's files.

    Args:
        folder: Of the table.
        paths: As Delta writes them: URL-encoded, relative to ``folder``.
        schema: Of the table.

    Returns:
        Its columns, as ``as_read`` has them.
    """
    wanted = as_read(schema)
    dictionaries = [field.name for field in wanted if pa.types.is_dictionary(field.type)]
    tables = [read_parquet(folder / unquote(path), dictionaries).cast(wanted) for path in paths]
    return pa.concat_tables(tables) if tables else wanted.empty_table()
