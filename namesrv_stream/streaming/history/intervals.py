"""Rows that say what a key now is, as intervals in which it was so: one begins where the one before it ends."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.snapshot.history_mark import HistoryMark
from namesrv_stream.streaming.history.history_table import PLACE, HistoryTable
from namesrv_stream.streaming.history.row_keys import ROW_KEY, with_row_key
from namesrv_stream.tables import DAY_COLUMNS, HISTORY_SCHEMAS, TOPIC_ROUTE_HISTORY


def interval_rows(table: str, changes: DataFrame) -> DataFrame:
    """Changes as rows of ``route_history`` or ``topic_route_history`` that have no end yet.

    Args:
        table: Which of the two.
        changes: Columns of ``RouteChange``; for the second, of kind queue_data only.
    """
    begin = f.timestamp_millis("at_ms")
    rows = changes.withColumn("valid_from", begin).withColumn("from_day", f.to_date(begin))
    return rows.select(*(name for name in HISTORY_SCHEMAS[table].names if name != "valid_to"))


def open_rows(table: str, rows: DataFrame, columns: Sequence[str] = ()) -> DataFrame:
    """The rows of a table of intervals that have no end, with ``row_key``.

    Args:
        table: Its name.
        rows: Its rows.
        columns: Those wanted besides place, begin, day and key.
    """
    lasting = rows.where("valid_to IS NULL")
    if table == TOPIC_ROUTE_HISTORY:
        lasting = lasting.withColumn("kind", f.lit(str(ChangeKind.QUEUE_DATA)))
    return with_row_key(lasting).select(*PLACE, "valid_from", DAY_COLUMNS[table], ROW_KEY, *columns)


def tiled(lasting: DataFrame, new: DataFrame) -> DataFrame:
    """What becomes of intervals when new ones begin.

    Args:
        lasting: ``open_rows``.
        new: ``interval_rows`` with ``row_key``, all later than those.

    Returns:
        The new ones with their ends, but for those that last no millisecond, and of the old ones those that now end;
        ``is_old`` tells them apart. Of an old one only place, begin, end and day are there; one that lasts no
        millisecond has its end where it begins.
    """
    # All in one task: on the rows of a minute, the stages of a shuffle would take longer than their work.
    lasting, new = lasting.coalesce(1), new.coalesce(1)
    touched = lasting.join(new.select(ROW_KEY).distinct(), ROW_KEY, "left_semi")
    both = new.withColumn("is_old", f.lit(False)).unionByName(
        touched.withColumn("is_old", f.lit(True)), allowMissingColumns=True
    )
    # All rows of a key are of one partition.
    in_order = Window.partitionBy(ROW_KEY).orderBy("offset", "seq")
    ended = both.coalesce(1).withColumn("valid_to", f.lead("valid_from").over(in_order)).drop(ROW_KEY)
    lasts = f.col("valid_to").isNull() | (f.col("valid_from") < f.col("valid_to"))
    return ended.where((f.col("is_old") & f.col("valid_to").isNotNull()) | (~f.col("is_old") & lasts))


def write_intervals(table: HistoryTable, changes: DataFrame, mark: HistoryMark) -> int:
    """Bring a table of intervals up to date with changes; blocks.

    Args:
        table: ``route_history`` or ``topic_route_history``.
        changes: As of ``interval_rows``, all later than what the table has.
        mark: How far the table then reaches.

    Returns:
        How many intervals began or ended.
    """
    new = interval_rows(table.name, changes)
    kinds = new if "kind" in new.columns else new.withColumn("kind", f.lit(str(ChangeKind.QUEUE_DATA)))
    keyed = with_row_key(kinds).select(*new.columns, ROW_KEY)
    return table.upsert(tiled(open_rows(table.name, table.rows()), keyed), ("valid_to",), mark)
