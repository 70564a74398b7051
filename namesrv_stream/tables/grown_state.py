"""``route_state`` of a topic that is given more partitions: each row goes to where its name now belongs."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.fold.state import FoldState, encode_state
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.tables.route_tables import FoldStateRow
from namesrv_stream.tables.schema.columns import STATE_SCHEMA
from namesrv_stream.tables.schema.rows import in_log_order

#: Rows that every partition has by itself.
_OF_PARTITION = (ChangeKind.SETTING.value, ChangeKind.SERVER.value)


def grown_rows(live: pa.Table, before: int, partitions: int) -> pa.Table:
    """The live rows of as many partitions; a new one has the settings and servers of the first.

    Args:
        live: Columns of ``STATE_SCHEMA``, perhaps as read.
        before: How many partitions they are of.
        partitions: The new number of partitions.
    """
    live = live.cast(STATE_SCHEMA)
    is_of_partition = pc.is_in(live["kind"], pa.array(_OF_PARTITION))
    own, moved = live.filter(is_of_partition), live.filter(pc.invert(is_of_partition))
    first = own.filter(pc.equal(own["partition"], 0))
    copies = [_in_partition(first, pa.repeat(partition, first.num_rows)) for partition in range(before, partitions)]
    names = pc.coalesce(moved["broker_name"], moved["namespace"]).combine_chunks().dictionary_encode()
    places = pa.array([partition_of(name, partitions) for name in names.dictionary.to_pylist()], pa.int32())
    return in_log_order(pa.concat_tables([own, *copies, _in_partition(moved, places.take(names.indices))]))


def state_rows(states: Sequence[FoldState]) -> dict[int, FoldStateRow]:
    """partition → its row of kind ``fold_state``."""
    return {s.partition: FoldStateRow(s.next_offset, s.at_ms, encode_state(s)) for s in states}


def _in_partition(rows: pa.Table, partitions: pa.Array) -> pa.Table:
    field = STATE_SCHEMA.field("partition")
    return rows.set_column(STATE_SCHEMA.get_field_index("partition"), field, partitions.cast(field.type))
