"""``route_state`` made from its predecessor and the changes since: the newest row of each key that is not gone.

Whole columns at a time, without a Python loop over rows.
"""

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.route.changes import KEY_COLUMNS
from namesrv_stream.snapshot.table_reader import FoldStateRow
from namesrv_stream.tables import FOLD_STATE_KIND, STATE_SCHEMA, in_log_order


def next_state(
    live: pa.Table, fold_states: dict[int, FoldStateRow], changes: pa.Table, new_states: dict[int, FoldStateRow]
) -> tuple[pa.Table, dict[int, FoldStateRow]]:
    """Move ``route_state`` on to new fold states.

    Args:
        live: Live rows of the previous one, columns of ``STATE_SCHEMA``, perhaps as read.
        fold_states: partition → its fold state then.
        changes: All rows of ``route_changes`` at or above those, columns of ``CHANGES_SCHEMA``, perhaps as read.
        new_states: partition → fold state to cover; older ones than ``fold_states`` are ignored.

    Returns:
        Live rows and fold states of the next one.
    """
    states = dict(fold_states)
    for partition, state in new_states.items():
        if partition not in states or state.next_offset > states[partition].next_offset:
            states[partition] = state
    covered = pc.scalar(False)
    for partition, state in states.items():
        covered = covered | ((pc.field("partition") == partition) & (pc.field("offset") < state.next_offset))
    since = in_log_order(changes.filter(covered))
    no_state = pa.nulls(since.num_rows, pa.binary())
    since = since.append_column(STATE_SCHEMA.field("state"), no_state).cast(STATE_SCHEMA)
    return in_log_order(newest_live_rows(pa.concat_tables([live.cast(STATE_SCHEMA), since]))), states


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


def with_fold_states(live: pa.Table, states: dict[int, FoldStateRow]) -> pa.Table:
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
