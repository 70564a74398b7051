"""Rows of ``route_archive``: those of ``route_changes``, and replacements for changes that were lost.

No loss is silent. If rows of ``route_changes`` were removed before the history had read them, or a rebuild has written
new ones, the archive takes the rows that exist and continues from ``route_state``. If the newest row of a key is in the
lost part, the archive gets that row. If the row of a key differs otherwise, the archive gets it at the offset of the
state. A key that the state does not have is deleted at the offset of the state. The last two kinds of rows have the
cause ``state_rebuilt`` and a negative ``seq``.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from namesrv_stream.route.changes import KEY_COLUMNS, Cause, ChangeKind
from namesrv_stream.tables.schema.change_rows import ROW_SCHEMA

#: Kinds of rows in the archive. Registrations are left out: they are the largest, and other kinds have their content.
HISTORY_KINDS: Final = tuple(sorted(kind.value for kind in KEY_COLUMNS.keys() - {ChangeKind.REGISTRATION}))
_DETAIL: Final = "what happened before is not known: changes were removed or rebuilt before the history had them"
_PLACE: Final = ("partition", "offset", "seq", "at_ms", "gone", "cause", "detail")
_COLUMNS: Final = tuple(ROW_SCHEMA.names)
_CONTENT: Final = tuple(name for name in _COLUMNS if name not in _PLACE)
_KEY: Final = "row_key"


def archive_rows(changes: DataFrame) -> DataFrame:
    """Return the rows of ``route_archive`` for rows of ``route_changes``."""
    of_history = changes.where(f.col("kind").isin(*HISTORY_KINDS))
    return of_history.select(*_COLUMNS, f.to_date(f.timestamp_millis("at_ms")).alias("day"))


def rows_to_catch_up(archived: DataFrame, changes: DataFrame, live: DataFrame, reach: DataFrame) -> DataFrame:
    """Return the rows that bring the archive to the content of ``route_state``.

    Args:
        archived: Rows of ``route_archive``.
        changes: Rows of ``route_archive`` for the rows that ``route_changes`` has beyond it, up to the state.
        live: Live rows of ``route_state``.
        reach: One row per partition to catch up: ``partition``, ``known`` (first offset that the archive has not read),
            ``state_offset`` and ``state_at_ms`` (offset and time of ``route_state``).

    Returns:
        Rows of ``route_archive``: ``changes``, and at most one more per key.
    """
    newest = Window.partitionBy(_KEY).orderBy(*(f.desc(name) for name in ("at_ms", "partition", "offset", "seq")))
    numbered = _keyed(archived.unionByName(changes)).withColumn("age", f.row_number().over(newest))
    had = numbered.where((f.col("age") == 1) & ~f.col("gone")).select(
        _KEY, f.struct(*_COLUMNS).alias("had"), _content().alias("had_content")
    )
    has = _keyed(live).select(_KEY, f.struct(*_COLUMNS).alias("has"), _content().alias("has_content"))
    # A repartition moves keys to other partitions.
    both = had.join(has, _KEY, "full").withColumn("partition", f.coalesce("has.partition", "had.partition"))
    changed = both.where(~f.col("had_content").eqNullSafe(f.col("has_content"))).join(f.broadcast(reach), "partition")
    is_gone, is_in_log = f.col("has").isNull(), f.col("has.offset").between(f.col("known"), f.col("state_offset") - 1)
    number = Window.partitionBy("partition", f.coalesce(is_in_log, f.lit(False))).orderBy(_KEY)
    at_state = {
        "offset": f.col("state_offset"),
        "seq": -f.row_number().over(number),
        "at_ms": f.col("state_at_ms"),
        "gone": is_gone,
        "cause": f.lit(Cause.STATE_REBUILT.value),
        "detail": f.lit(_DETAIL),
    }
    rows = changed.select(*(_chosen(name, at_state.get(name), is_gone, is_in_log).alias(name) for name in _COLUMNS))
    return changes.unionByName(archive_rows(rows))


def _chosen(name: str, at_state: Column | None, is_gone: Column, is_in_log: Column) -> Column:
    """Return a column: from the log if the row is in it, otherwise at the state. Deleted keys have key columns only."""
    had, has = f.col(f"had.{name}"), f.col(f"has.{name}")
    if at_state is not None:
        return f.when(is_in_log, has).otherwise(at_state)
    if name in ("partition", "kind") or any(name in key for key in KEY_COLUMNS.values()):
        return f.coalesce(has, had)
    return f.when(~is_gone, has)


def _keyed(rows: DataFrame) -> DataFrame:
    """Return the rows with ``row_key``, which is equal for rows about the same key."""
    keys = [
        f.when(f.col("kind") == kind.value, f.to_json(f.struct("kind", *columns)))
        for kind, columns in KEY_COLUMNS.items()
        if kind.value in HISTORY_KINDS
    ]
    return rows.where(f.col("kind").isin(*HISTORY_KINDS)).withColumn(_KEY, f.coalesce(*keys))


def _content() -> Column:
    """Return the content of a row without its place. The pairs of a map are sorted, because maps have no order."""
    pairs = f.array_sort(f.map_entries("broker_addrs")).alias("broker_addrs")
    return f.struct(*(pairs if name == "broker_addrs" else f.col(name) for name in _CONTENT))
