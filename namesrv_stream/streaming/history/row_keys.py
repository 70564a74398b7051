"""What a row of ``route_changes``, or of a table made from it, is about: its kind and key columns in one text."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from namesrv_stream.route.changes import KEY_COLUMNS, ChangeKind

ROW_KEY: Final = "row_key"

#: Kinds with a state worth its history. A registration says nothing that the others do not, and is the largest.
HISTORY_KINDS: Final = tuple(sorted(KEY_COLUMNS.keys() - {ChangeKind.REGISTRATION}))

_KINDS_WITH: Final = {
    column: sorted(kind for kind in HISTORY_KINDS if column in KEY_COLUMNS[kind])
    for column in dict.fromkeys(c for kind in HISTORY_KINDS for c in KEY_COLUMNS[kind])
}


def with_row_key(rows: DataFrame) -> DataFrame:
    """Add ``row_key``: equal for two rows just if they are about the same, nulls included.

    Args:
        rows: With ``kind`` and the key columns of the kinds that it has.
    """
    return rows.withColumn(ROW_KEY, f.to_json(f.array(f.col("kind"), *(_part(rows, name) for name in _KINDS_WITH))))


def _part(rows: DataFrame, name: str) -> Column:
    if name not in rows.columns:
        return f.lit(None).cast("string")
    return f.when(f.col("kind").isin(_KINDS_WITH[name]), f.col(name).cast("string"))
