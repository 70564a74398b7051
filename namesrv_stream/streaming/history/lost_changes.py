"""Where changes were removed before the history had them, or were made anew: goes on from ``route_state``.

Nothing is lost in silence. A key whose newest row is known begins an interval at that row's own time; one whose row
is not of the lost part, and differs, at the time of the state; one that the state does not have is gone from that time
on. The last two say so by their cause, ``state_rebuilt``, and by a negative ``seq``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from namesrv_stream.route.changes import Cause
from namesrv_stream.streaming.history.row_keys import ROW_KEY, with_row_key
from namesrv_stream.tables.columns import ROW_SCHEMA
from namesrv_stream.tables.ddl import sql_type

_DETAIL: Final = "what happened before is not known: changes were removed, or made anew, before the history had them"
_PLACE: Final = ("partition", "offset", "seq", "at_ms", "cause", "detail")


@dataclass(frozen=True, slots=True)
class StateTime:
    """Where ``route_state`` stands in a partition.

    Attributes:
        next_offset: First offset that it does not cover.
        at_ms: Highest LogAppendTime before it.
    """

    next_offset: int
    at_ms: int


def rows_to_catch_up(
    lasting: DataFrame,
    live: DataFrame,
    content: Sequence[str],
    known: Mapping[int, int],
    state: Mapping[int, StateTime],
) -> DataFrame:
    """The changes that turn what a table has into what the state says.

    Args:
        lasting: Its rows without end, as of the key columns, ``kind``, ``gone`` and ``content``.
        live: Rows of ``route_state``, columns of ``RouteChange``, of the same kinds.
        content: Columns in which a row says what its key is.
        known: partition → first offset that the table has not seen.
        state: The same partitions, which are those to catch up in → where the state stands.

    Returns:
        Columns of ``RouteChange``; each key at most once.
    """
    chosen = f.col("partition").isin(sorted(state))
    has = with_row_key(lasting.where(chosen)).withColumn("content", _content(lasting, content))
    new = with_row_key(live.where(chosen)).withColumn("content", _content(live, content))
    has_state = has.where("NOT gone").select(ROW_KEY, f.col("content").alias("had"))
    changed = new.join(has_state, ROW_KEY, "left").where("NOT (had <=> content)")
    is_seen = f.col("offset") < _of_partition(known)
    missing = has.where("NOT gone").join(new.select(ROW_KEY), ROW_KEY, "left_anti")
    gone = missing.select(*(_or_null(missing, name, content) for name in ROW_SCHEMA.names)).withColumn(
        "gone", f.lit(True)
    )
    unknown = changed.where(is_seen).select(*ROW_SCHEMA.names).unionByName(gone)
    numbered = f.row_number().over(Window.partitionBy("partition").orderBy("kind", "broker_name", "topic", "key"))
    at_state = unknown.select(
        *(name for name in ROW_SCHEMA.names if name not in _PLACE or name == "partition"),
        _of_partition({p: s.next_offset for p, s in state.items()}).alias("offset"),
        (-numbered).alias("seq"),
        _of_partition({p: s.at_ms for p, s in state.items()}).alias("at_ms"),
        f.lit(str(Cause.STATE_REBUILT)).alias("cause"),
        f.lit(_DETAIL).alias("detail"),
    )
    return changed.where(~is_seen).select(*ROW_SCHEMA.names).unionByName(at_state)


def _content(rows: DataFrame, content: Collection[str]) -> Column:
    """Text that differs where the content does; maps have no order and no equality in SQL."""
    kinds = dict(rows.dtypes)
    parts = [
        f.array_sort(f.map_entries(name)).alias(name) if kinds[name].startswith("map") else f.col(name)
        for name in content
    ]
    return f.to_json(f.struct(f.lit(True).alias("is"), *parts), {"ignoreNullFields": "false"})


def _or_null(rows: DataFrame, name: str, content: Collection[str]) -> Column:
    """A column of the key, of those that are gone."""
    if name in rows.columns and name not in content:
        return f.col(name)
    return f.lit(None).cast(sql_type(ROW_SCHEMA.field(name).type)).alias(name)


def _of_partition(values: Mapping[int, int]) -> Column:
    known = f.create_map(*(f.lit(x) for pair in sorted(values.items()) for x in pair))
    return f.try_element_at(known, f.col("partition")).cast("long")
