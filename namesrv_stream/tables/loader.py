"""The route table as the Delta tables have it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.errors import TableDamaged
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.fold.folded_log import Progress
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.route_tables import read_tables
from namesrv_stream.tables.schema.rows import QUEUE_DATA_SCHEMA, decode_queue_data, is_queue_data, iter_changes
from namesrv_stream.tables.storage import Storage
from namesrv_stream.tables.swap import PLAN


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one version of ``route_changes``.

    Attributes:
        table: The caller's to keep and change.
        next_offsets: partition → first offset that ``table`` does not cover.
        version: Of ``route_changes``; -1 where there is no table, and ``table`` is empty.
        progress: How far ``route_changes`` covers the log.
        topic_id: Kafka's id of the topic from which the tables were made; "" where there is none.
        table_id: Delta's id of the table, the same for all who read it; "" where there is none.
        at_ms: partition → highest LogAppendTime that the rows tell of, epoch milliseconds.
        damage: Why this is not the newest version; "" if it is.
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
    """Build the route table from the newest tables; blocks (1.6 million live rows: 2 s).

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects, or no version of it can be read.
        StoreUnreachable: The object store does not answer.
    """
    if tables.exists(PLAN):
        raise TableDamaged(str(tables), PLAN, "says that a rebuild is putting tables into their place")
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
    """As ``load_snapshot``, of the fold's settings only."""
    rows, is_setting = read_tables(tables), pc.field("kind") == ChangeKind.SETTING.value
    return route_table(rows.state.live.filter(is_setting), rows.changes.filter(is_setting))


def route_table(*parts: pa.Table) -> RouteTable:
    """The table that rows make up.

    Args:
        parts: Rows in log order, columns of ``CHANGES_SCHEMA`` or ``STATE_SCHEMA`` as read; the older part first.
    """
    table = RouteTable()
    queue_data, others = [QUEUE_DATA_SCHEMA.empty_table()], []
    for part in parts:
        is_wanted = is_queue_data(part)
        queue_data.append(part.select(QUEUE_DATA_SCHEMA.names).filter(is_wanted).cast(QUEUE_DATA_SCHEMA))
        others.append(iter_changes(part.filter(pc.invert(is_wanted))))
    reducer.apply(table, chain.from_iterable(others), decode_queue_data(pa.concat_tables(queue_data)))
    return table
