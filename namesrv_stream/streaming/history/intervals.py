"""Rows that say what a key now is, as intervals in which it was so: one begins where the one before it ends."""

from typing import Final

import polars as pl
import pyarrow as pa

from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.streaming.history.history_table import IS_OLD, PLACE, HistoryTable
from namesrv_stream.streaming.history.row_keys import KEY_PARTS, ROW_KEY, with_row_key
from namesrv_stream.tables.delta.predicates import is_null
from namesrv_stream.tables.history_mark import HistoryMark
from namesrv_stream.tables.schema.history_columns import HISTORY_SCHEMAS

_NUMBER: Final = "number"


def open_rows(table: HistoryTable) -> pl.DataFrame:
    """The rows of a table of intervals that have no end: place, begin, and ``row_key``; blocks."""
    names = [name for name in (*PLACE, "valid_from", *KEY_PARTS) if name in HISTORY_SCHEMAS[table.name].names]
    return keyed(table.stored().rows(is_null("valid_to"), columns=list(dict.fromkeys(names))))


def tiled(lasting: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """What becomes of intervals when new ones begin.

    Args:
        lasting: ``open_rows``.
        new: The same of the new ones, all later than those, and ``number``.

    Returns:
        The new ones with their ends, but for those that last no millisecond, and of the old ones those that now end;
        ``is_old`` tells them apart. An old one that lasts no millisecond has its end where it begins.
    """
    touched = lasting.join(new.select(ROW_KEY).unique(), on=ROW_KEY, how="semi")
    both = pl.concat(
        [touched.with_columns(pl.lit(True).alias(IS_OLD)), new.with_columns(pl.lit(False).alias(IS_OLD))],
        how="diagonal",
    )
    # All rows of a key are of one partition, or the later ones are of another, where the topic was given more.
    end = pl.col("valid_from").shift(-1).over(ROW_KEY)
    ended = both.sort("valid_from", "offset", "seq").with_columns(valid_to=end)
    lasts = pl.col("valid_to").is_null() | (pl.col("valid_from") < pl.col("valid_to"))
    return ended.filter((pl.col(IS_OLD) & pl.col("valid_to").is_not_null()) | (~pl.col(IS_OLD) & lasts))


def interval_rows(lasting: pl.DataFrame, changes: pa.Table) -> pa.Table:
    """Intervals that begin with changes, and those that end.

    Args:
        lasting: ``open_rows``.
        changes: Columns of ``RouteChange``, all later than those.

    Returns:
        Those of ``tiled`` with ``is_old``, and of the new ones the columns of ``RouteChange``.
    """
    begins = changes["at_ms"].cast(pa.timestamp("ms")).cast(pa.timestamp("us", tz="UTC"))
    columns = list(dict.fromkeys((*PLACE, *KEY_PARTS)))
    new = pl.DataFrame(changes.select(columns).append_column("valid_from", begins))
    places = tiled(lasting, keyed(new).with_row_index(_NUMBER))
    # What the new ones say comes from the changes by their numbers; of an old one its place and its end are enough.
    said = changes.drop_columns(list(PLACE)).take(places[_NUMBER].to_arrow())
    ends = places.drop(_NUMBER, ROW_KEY)
    return pa.Table.from_arrays([*ends.to_arrow().columns, *said.columns], [*ends.columns, *said.column_names])


def write_intervals(table: HistoryTable, changes: pa.Table, mark: HistoryMark) -> int:
    """Bring a table of intervals up to date with changes; blocks.

    Args:
        table: ``route_history`` or ``topic_route_history``.
        changes: As of ``interval_rows``; for the second table, of kind queue_data only.
        mark: How far the table then reaches.

    Returns:
        How many intervals began or ended.
    """
    return table.upsert(interval_rows(open_rows(table), changes), ("valid_to",), mark)


def keyed(rows: pl.DataFrame) -> pl.DataFrame:
    """Place, begin, and ``row_key``."""
    kinds = rows if "kind" in rows.columns else rows.with_columns(kind=pl.lit(str(ChangeKind.QUEUE_DATA)))
    return with_row_key(kinds).select(*PLACE, "valid_from", ROW_KEY)
