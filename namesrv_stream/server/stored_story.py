"""What ``route_changes`` has of the last day, for the story; blocks, on a thread."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

from namesrv_stream.history.conditions import all_of, any_of, at_least, at_most, equals, one_of
from namesrv_stream.history.stored_table import StoredTable, reading
from namesrv_stream.location import Location
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import LiveKey
from namesrv_stream.server.story import Happening, Past
from namesrv_stream.tables import CHANGES_SCHEMA, PARTITIONS_PROPERTY, ROUTE_CHANGES, TOPIC_ID_PROPERTY, removed_app_id

_KEY: Final = ("broker_name", "cluster", "broker_addr")
_PLACE: Final = ("at_ms", "partition", "offset", "seq")
#: Rows of one record about topics are one; these say which belong together.
_TOGETHER: Final = ("partition", "offset", "kind", "cause", "gone", "broker_name")
#: Newest happenings that are not about brokers' coming and going.
_MOST: Final = 2_000
_COLUMNS: Final = tuple(
    n for n in RouteChange._fields if n not in ("broker_addrs", "clusters", "filter_servers", "registration_hash")
)


def read_story(tables_dir: Location, next_offsets: Mapping[int, int], since_ms: int, kinds: Iterable[str]) -> Past:
    """What happened from an instant on, below these offsets.

    Raises:
        TableSchemaMismatch: The table is damaged, or not as this version of the code expects.
    """
    table = StoredTable.open(tables_dir, ROUTE_CHANGES, CHANGES_SCHEMA)
    if table is None or not next_offsets:
        return Past(frozenset(), [], False)
    below = any_of(*(all_of(equals("partition", p), at_most("offset", o - 1)) for p, o in sorted(next_offsets.items())))
    live_kind = ChangeKind.BROKER_LIVE.value
    others = [kind for kind in kinds if kind != live_kind]
    with reading(table.path):
        before = table.scan(below, at_most("at_ms", since_ms - 1), equals("kind", live_kind))
        newest = before.sort(_PLACE).group_by(_KEY).agg(pl.col("gone").last()).collect()
        lives = table.scan(below, at_least("at_ms", since_ms), equals("kind", live_kind)).select(_COLUMNS).collect()
        more = _together(table.scan(below, at_least("at_ms", since_ms), one_of("kind", others))).collect()
    live = frozenset(
        LeaseKey(row["broker_name"], LiveKey(row["cluster"], row["broker_addr"]))
        for row in newest.filter(~pl.col("gone")).to_dicts()
    )
    rows = [Happening(_change(row)) for row in lives.to_dicts()]
    rows += [Happening(_change(row), row["count"]) for row in more.tail(_MOST).to_dicts()]
    rows.sort(key=lambda found: (found.change.at_ms, *found.change[:3]))
    return Past(live, rows, _is_cut(table))


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


def _change(row: Mapping[str, Any]) -> RouteChange:
    return RouteChange(**{name: row[name] for name in _COLUMNS})


def _is_cut(table: StoredTable) -> bool:
    topic_id = table.properties.get(TOPIC_ID_PROPERTY, "")
    partitions = range(int(table.properties.get(PARTITIONS_PROPERTY, 0)))
    return any(table.transaction_version(removed_app_id(topic_id, p)) for p in partitions)
