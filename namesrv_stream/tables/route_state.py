"""``route_state``: made from its predecessor and the changes since, the newest row of each key that is not gone.

Whole columns at a time, without a Python loop over rows.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.route.changes import KEY_COLUMNS
from namesrv_stream.tables.delta.table_writer import Change, TableWriter, grown
from namesrv_stream.tables.route_tables import FoldStateRow, StateRows, read_tables
from namesrv_stream.tables.schema.columns import STATE_SCHEMA
from namesrv_stream.tables.schema.layout import ROUTE_STATE
from namesrv_stream.tables.schema.rows import FOLD_STATE_KIND, in_log_order
from namesrv_stream.tables.storage import Storage


class StateWriter:
    """The one writer of ``route_state``.

    Args:
        tables: Where the tables are.
    """

    def __init__(self, tables: Storage) -> None:
        """Open the table; raises as ``TableWriter``."""
        self._tables = tables
        self.table = TableWriter(tables / ROUTE_STATE, STATE_SCHEMA)

    def cover(self, new_states: Mapping[int, FoldStateRow]) -> None:
        """Rewrite the table so that it covers these fold states; blocks.

        Args:
            new_states: partition → fold state; ``route_changes`` covers its offset already.

        Raises:
            TablesTakenOver: Another job has rewritten it meanwhile.
            TableSchemaMismatch: A table is damaged, or not as this version of the code expects.
            StoreUnreachable: The object store does not answer.
        """
        rows = read_tables(self._tables)
        if rows.damage is not None:
            raise rows.damage
        self.replace(*next_state(rows.state, rows.changes, new_states))

    def replace(
        self, live: pa.Table, states: Mapping[int, FoldStateRow], begins: Mapping[int, int] | None = None
    ) -> None:
        """Make these all rows of the table; blocks.

        Args:
            live: Live rows, columns of ``STATE_SCHEMA``.
            states: partition → fold state at the offset that ``live`` covers.
            begins: As of ``Change``.
        """
        old = self.table.files()
        file = self.table.write_rows(with_fold_states(live, states))
        # A file with the same rows has the same name.
        removed = tuple(known for known in old if known.path != file.path)
        added = (file,) if len(removed) == len(old) else ()
        if added or removed or begins:
            self.table.commit(grown(self.table, Change("WRITE", added, removed), begins or {}))


def next_state(
    state: StateRows, changes: pa.Table, new_states: Mapping[int, FoldStateRow]
) -> tuple[pa.Table, dict[int, FoldStateRow]]:
    """Move ``route_state`` on to new fold states.

    Args:
        state: The previous one.
        changes: All rows of ``route_changes`` at or above its fold states, columns of ``CHANGES_SCHEMA``, perhaps as
            read.
        new_states: partition → fold state to cover; older ones than the previous are ignored.

    Returns:
        Live rows and fold states of the next one.
    """
    states = dict(state.fold_states)
    for partition, new in new_states.items():
        if partition not in states or new.next_offset > states[partition].next_offset:
            states[partition] = new
    covered = pc.scalar(False)
    for partition, new in states.items():
        covered = covered | ((pc.field("partition") == partition) & (pc.field("offset") < new.next_offset))
    since = in_log_order(changes.filter(covered))
    no_state = pa.nulls(since.num_rows, pa.binary())
    since = since.append_column(STATE_SCHEMA.field("state"), no_state).cast(STATE_SCHEMA)
    return in_log_order(newest_live_rows(pa.concat_tables([state.live.cast(STATE_SCHEMA), since]))), states


def newest_live_rows(rows: pa.Table) -> pa.Table:
    """The last row of each key, where that is not gone.

    Args:
        rows: Columns of ``STATE_SCHEMA``; of one key, the newer row is further down.
    """
    parts = [STATE_SCHEMA.empty_table()]
    for kind, key in KEY_COLUMNS.items():
        of_kind = rows.filter(pc.equal(rows["kind"], kind.value))
        positions = pa.array(range(of_kind.num_rows), pa.int64())
        newest = of_kind.select(key).append_column("position", positions).group_by(key).aggregate([("position", "max")])
        last = of_kind.take(newest["position_max"])
        parts.append(last.filter(pc.invert(last["gone"])))
    return pa.concat_tables(parts)


def with_fold_states(live: pa.Table, states: Mapping[int, FoldStateRow]) -> pa.Table:
    """All rows of ``route_state``."""
    rows = [
        {
            "partition": partition,
            "offset": state.next_offset,
            "seq": 0,
            "at_ms": state.at_ms,
            "kind": FOLD_STATE_KIND,
            "gone": False,
            "cause": "compacted",
            "batch_id": 0,
            "state": state.content,
        }
        for partition, state in sorted(states.items())
    ]
    return pa.concat_tables([live.cast(STATE_SCHEMA), pa.Table.from_pylist(rows, schema=STATE_SCHEMA)])
