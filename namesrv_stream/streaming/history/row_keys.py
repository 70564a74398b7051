"""What a row of ``route_changes``, or of a table made from it, is about: its kind and key columns in one text."""

from typing import Final

import polars as pl

from namesrv_stream.route.changes import KEY_COLUMNS, ChangeKind

ROW_KEY: Final = "row_key"

#: Kinds with a state worth its history. A registration says nothing that the others do not, and is the largest.
HISTORY_KINDS: Final = tuple(sorted(KEY_COLUMNS.keys() - {ChangeKind.REGISTRATION}))

_KINDS_WITH: Final = {
    column: sorted(kind for kind in HISTORY_KINDS if column in KEY_COLUMNS[kind])
    for column in dict.fromkeys(c for kind in HISTORY_KINDS for c in KEY_COLUMNS[kind])
}
#: Columns that ``with_row_key`` looks at.
KEY_PARTS: Final = ("kind", *_KINDS_WITH)


def with_row_key(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``row_key``: equal for two rows just if they are about the same, nulls included.

    Args:
        rows: With ``kind`` and the key columns of the kinds that it has.
    """
    parts = [pl.when(pl.col("kind").is_in(kinds)).then(_column(rows, n)).alias(n) for n, kinds in _KINDS_WITH.items()]
    # JSON: names may hold any character, and null is not the text "null".
    return rows.with_columns(pl.struct("kind", *parts).struct.json_encode().alias(ROW_KEY))


def _column(rows: pl.DataFrame, name: str) -> pl.Expr:
    return pl.col(name) if name in rows.columns else pl.lit(None, pl.String)
