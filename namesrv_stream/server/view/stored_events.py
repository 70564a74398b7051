"""Reads the events of the last day from ``route_changes``. It blocks, so a thread calls it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.history.database import Database
from namesrv_stream.route.model import LeaseKey, LiveKey
from namesrv_stream.server.view.recent_events import StoredEvents, TimelineEvent
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.schema.change_rows import CHANGES_SCHEMA, iter_changes
from namesrv_stream.tables.schema.layout import PARTITIONS_PROPERTY, ROUTE_CHANGES, TOPIC_ID_PROPERTY, removed_app_id
from namesrv_stream.tables.storage import Storage

#: Maximum number of events that are not about starts and ends of brokers; the newest are kept.
_MOST: Final = 2_000
#: Rows that are converted to objects at a time; this takes well below a millisecond.
_AT_ONCE: Final = 64


def read_events(tables: Storage, next_offsets: Mapping[int, int], since_ms: int, kinds: Iterable[str]) -> StoredEvents:
    """Return the events since an instant and below these offsets.

    Raises:
        TableSchemaMismatch: The table is damaged, or has a different schema from what this version expects.
    """
    table = StoredTable.open(tables, ROUTE_CHANGES, CHANGES_SCHEMA)
    if table is None or not next_offsets:
        return StoredEvents(frozenset(), (), False)
    partition, offset = pc.field("partition"), pc.field("offset")
    below = reduce(or_, ((partition == p) & (offset < end) for p, end in sorted(next_offsets.items())))
    database = Database([table])
    database.register("changes", table.dataset(below))
    live = (
        LeaseKey(row["broker_name"], LiveKey(row["cluster"], row["broker_addr"]))
        for row in database.rows("live_before", since_ms=since_ms)
    )
    events = database.ask("timeline", since_ms=since_ms, kinds=sorted(kinds), most=_MOST)
    topic_id = table.properties.get(TOPIC_ID_PROPERTY, "")
    partitions = range(int(table.properties.get(PARTITIONS_PROPERTY, 0)))
    is_cut = any(table.transaction_version(removed_app_id(topic_id, p)) for p in partitions)
    return StoredEvents(frozenset(live), _events(events), is_cut)


def _events(rows: pa.Table) -> Iterator[TimelineEvent]:
    """Yield events on demand, because the caller adds them in steps; a thread would occupy the interpreter."""
    for some in rows.to_batches(max_chunksize=_AT_ONCE):
        yield from map(TimelineEvent, iter_changes(some), some["rows"].to_pylist())
