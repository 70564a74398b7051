"""Rows of ``route_archive``: those of ``route_changes``, and those that stand for changes which were lost.

Nothing is lost in silence. Where rows of ``route_changes`` were removed before the history had them, or a rebuild made
new ones, the archive goes on from ``route_state``. A key whose newest row is of the lost part has that row; one whose
row differs without being of it has it as of the state; one that the state does not have is gone as of the state. The
last two say so by their cause, ``state_rebuilt``, and by a negative ``seq``.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from namesrv_stream.route.changes import KEY_COLUMNS, Cause, ChangeKind
from namesrv_stream.tables.schema.change_rows import ROW_SCHEMA

#: Kinds with a state worth its history. A registration says nothing that the others do not, and is the largest.
HISTORY_KINDS: Final = tuple(sorted(kind.value for kind in KEY_COLUMNS.keys() - {ChangeKind.REGISTRATION}))
_DETAIL: Final = "what happened before is not known: changes were removed or rebuilt before the history had them"
_PLACE: Final = ("partition", "offset", "seq", "at_ms", "gone", "cause", "detail")
_COLUMNS: Final = tuple(ROW_SCHEMA.names)
_CONTENT: Final = tuple(name for name in _COLUMNS if name not in _PLACE)
_KEY: Final = "row_key"


def archive_rows(changes: DataFrame) -> DataFrame:
    """Rows of ``route_archive`` for rows of ``route_changes``."""
    of_history = changes.where(f.col("kind").isin(*HISTORY_KINDS))
    return of_history.select(*_COLUMNS, f.to_date(f.timestamp_millis("at_ms")).alias("day"))


def rows_to_catch_up(archived: DataFrame, live: DataFrame, reach: DataFrame) -> DataFrame:
    """The rows that turn what the archive has into what ``route_state`` says.

    Args:
        archived: ``route_archive``.
        live: Rows of ``route_state``; of it, those of keys that are not gone.
        reach: Of each partition to catch up in: ``partition``, ``known`` (first offset that the archive has not seen),
            ``state_offset`` and ``state_at_ms`` (where ``route_state`` stands).

    Returns:
        Rows of ``route_archive``; each key at most once.
    """
    newest = Window.partitionBy(_KEY).orderBy(*(f.desc(name) for name in ("at_ms", "partition", "offset", "seq")))
    numbered = _keyed(archived).withColumn("age", f.row_number().over(newest))
    had = numbered.where((f.col("age") == 1) & ~f.col("gone")).drop("age")
    has = _keyed(live)
    both = f.broadcast(reach).join(
        had.select(_KEY, "partition", f.struct(*_COLUMNS).alias("had"), _said().alias("had_said")).join(
            has.select(_KEY, "partition", f.struct(*_COLUMNS).alias("has"), _said().alias("has_said")),
            [_KEY, "partition"],
            "full",
        ),
        "partition",
    )
    changed = both.where(~f.col("had_said").eqNullSafe(f.col("has_said")))
    is_gone, is_in_log = f.col("has").isNull(), f.col("has.offset") >= f.col("known")
    number = Window.partitionBy("partition", f.coalesce(is_in_log, f.lit(False))).orderBy(_KEY)
    told = {
        "offset": f.col("state_offset"),
        "seq": -f.row_number().over(number),
        "at_ms": f.col("state_at_ms"),
        "gone": is_gone,
        "cause": f.lit(Cause.STATE_REBUILT.value),
        "detail": f.lit(_DETAIL),
    }
    rows = changed.select(*(_chosen(name, told.get(name), is_gone, is_in_log).alias(name) for name in _COLUMNS))
    return archive_rows(rows)


def _chosen(name: str, at_state: Column | None, is_gone: Column, is_in_log: Column) -> Column:
    """A column of a row that is in the log as it is, else as of the state; of a key that is gone the key alone."""
    had, has = f.col(f"had.{name}"), f.col(f"has.{name}")
    if at_state is not None:
        return f.when(is_in_log, has).otherwise(at_state)
    if name in ("partition", "kind") or any(name in key for key in KEY_COLUMNS.values()):
        return f.coalesce(has, had)
    return f.when(~is_gone, has)


def _keyed(rows: DataFrame) -> DataFrame:
    """With ``row_key``: equal for two rows just if they are about the same."""
    keys = [
        f.when(f.col("kind") == kind.value, f.to_json(f.struct("kind", *columns)))
        for kind, columns in KEY_COLUMNS.items()
        if kind.value in HISTORY_KINDS
    ]
    return rows.where(f.col("kind").isin(*HISTORY_KINDS)).withColumn(_KEY, f.coalesce(*keys))


def _said() -> Column:
    """What a row says of its key; a map has its pairs in any order."""
    pairs = f.array_sort(f.map_entries("broker_addrs")).alias("broker_addrs")
    return f.struct(*(pairs if name == "broker_addrs" else f.col(name) for name in _CONTENT))
