"""What ``route_changes`` has of the last day; blocks, on a thread."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import polars as pl

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.model import LeaseKey, LiveKey
from namesrv_stream.server.view.recent_events import StoredEvents, TimelineEvent
from namesrv_stream.tables.delta.stored_table import StoredTable, reading
from namesrv_stream.tables.schema.change_rows import CHANGES_SCHEMA
from namesrv_stream.tables.schema.layout import PARTITIONS_PROPERTY, ROUTE_CHANGES, TOPIC_ID_PROPERTY, removed_app_id
from namesrv_stream.tables.storage import Storage

_KEY: Final = ("broker_name", "cluster", "broker_addr")
_PLACE: Final = ("at_ms", "partition", "offset", "seq")
#: Rows of one record about topics are one; these say which belong together.
_TOGETHER: Final = ("partition", "offset", "kind", "cause", "gone", "broker_name")
#: Newest events that are not about brokers' coming and going.
_MOST: Final = 2_000
#: Columns that are not read.
_UNREAD: Final = ("broker_addrs", "clusters", "filter_servers", "registration_hash")
_COLUMNS: Final = tuple(name for name in RouteChange._fields if name not in _UNREAD)
_ROW: Final = tuple(pl.lit(None).alias(n) if n in _UNREAD else pl.col(n) for n in RouteChange._fields)
#: Rows that become objects at a time: well below a millisecond.
_AT_ONCE: Final = 64


def read_events(tables: Storage, next_offsets: Mapping[int, int], since_ms: int, kinds: Iterable[str]) -> StoredEvents:
    """What happened from an instant on, below these offsets.

    Raises:
        TableSchemaMismatch: The table is damaged, or not as this version of the code expects.
    """
    table = StoredTable.open(tables, ROUTE_CHANGES, CHANGES_SCHEMA)
    if table is None or not next_offsets:
        return StoredEvents(frozenset(), (), False)
    partition, offset = pl.col("partition"), pl.col("offset")
    below = pl.any_horizontal((partition == p) & (offset < o) for p, o in sorted(next_offsets.items()))
    is_before, is_live = pl.col("at_ms") < since_ms, pl.col("kind") == ChangeKind.BROKER_LIVE.value
    is_other = pl.col("kind").is_in([kind for kind in kinds if kind != ChangeKind.BROKER_LIVE.value])
    with reading(table.storage):
        before = table.scan(below, is_before, is_live)
        newest = before.sort(_PLACE).group_by(_KEY).agg(pl.col("gone").last()).collect()
        lives = table.scan(below, ~is_before, is_live).select(_COLUMNS).collect()
        more = _together(table.scan(below, ~is_before, is_other)).collect()
    live = frozenset(
        LeaseKey(name, LiveKey(cluster, addr))
        for name, cluster, addr in newest.filter(~pl.col("gone")).select(_KEY).iter_rows(buffer_size=_AT_ONCE)
    )
    alone = lives.with_columns(count=pl.lit(1))
    rows = pl.concat([alone, more.tail(_MOST).select(alone.columns)], how="vertical_relaxed").sort(_PLACE)
    return StoredEvents(live, _events(rows.select(*_ROW, "count")), _is_cut(table))


def _together(rows: pl.LazyFrame) -> pl.LazyFrame:
    """One row for those of one record about topics, in log order, with how many they are."""
    is_of_topic = pl.col("kind") == ChangeKind.QUEUE_DATA.value
    return (
        rows.select(_COLUMNS)
        .sort(_PLACE)
        .with_columns(alone=pl.when(is_of_topic).then(-1).otherwise(pl.col("seq")))
        .group_by(*_TOGETHER, "alone", maintain_order=True)
        .agg(pl.exclude(*_TOGETHER, "alone").first(), count=pl.len())
    )


def _events(rows: pl.DataFrame) -> Iterator[TimelineEvent]:
    """Made as they are asked for: whoever takes them in does so in steps, and a thread would take the interpreter."""
    for *values, count in rows.iter_rows(buffer_size=_AT_ONCE):
        yield TimelineEvent(RouteChange._make(values), count)


def _is_cut(table: StoredTable) -> bool:
    topic_id = table.properties.get(TOPIC_ID_PROPERTY, "")
    partitions = range(int(table.properties.get(PARTITIONS_PROPERTY, 0)))
    return any(table.transaction_version(removed_app_id(topic_id, p)) for p in partitions)
