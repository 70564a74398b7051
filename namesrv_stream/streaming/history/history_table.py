"""One history table for writing: each commit says how far the table reaches with it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from namesrv_stream.snapshot.history_mark import HistoryMark, encode_mark, read_mark
from namesrv_stream.tables import DAY_COLUMNS, HISTORY_SCHEMAS, INTERVAL_COLUMNS, table_path

#: What tells a row of a table of intervals from all others.
PLACE: Final = ("partition", "offset", "seq")

_USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"


class HistoryTable:
    """A table and its mark; of one thread, and the only writer.

    Args:
        spark: The session.
        tables_dir: Folder of the tables.
        name: Which table.

    Attributes:
        mark: How far it reaches.
    """

    def __init__(self, spark: SparkSession, tables_dir: Path, name: str) -> None:
        self.name = name
        self.path = table_path(tables_dir, name)
        self._spark = spark
        self.mark = read_mark(self.path) or HistoryMark()

    def rows(self) -> DataFrame:
        """All rows."""
        return self._spark.read.format("delta").load(str(self.path))

    def append(self, rows: DataFrame, mark: HistoryMark) -> None:
        """Add rows; blocks.

        Args:
            rows: With all columns of the table, in any order.
            mark: How far the table reaches with them.
        """
        with self.reaching(mark):
            ordered = rows.select(*HISTORY_SCHEMAS[self.name].names)
            ordered.write.format("delta").mode("append").save(str(self.path))

    def reach(self, mark: HistoryMark) -> None:
        """Say how far the table reaches, where no row is to be written; blocks."""
        self.append(self._spark.createDataFrame(HISTORY_SCHEMAS[self.name].empty_table()), mark)

    def upsert(self, source: DataFrame, updated: Sequence[str], mark: HistoryMark) -> int:
        """Add rows to a table of intervals and change some that have no end; blocks.

        Args:
            source: Columns of the table, and ``is_old``: whether the table has the row, known by ``PLACE``. One of
                those that has come to last no millisecond is removed.
            updated: Columns that an old row gets anew.
            mark: How far the table then reaches.

        Returns:
            Number of rows in ``source``.
        """
        begin, end = INTERVAL_COLUMNS[self.name]
        day = DAY_COLUMNS[self.name]
        # Through Arrow and back: a MERGE reads its source twice, and must find the same.
        rows = source.toArrow()
        again = self._spark.createDataFrame(rows)
        old_days = pc.unique(rows[day].filter(rows["is_old"])).to_pylist()
        if not old_days:
            self.append(again, mark)
            return int(rows.num_rows)
        # Conditions on the target alone tell Delta which files to leave alone.
        place = " AND ".join(f"t.`{name}` = s.`{name}`" for name in PLACE)
        days = ", ".join(f"DATE'{value}'" for value in sorted(old_days))
        merge = (
            DeltaTable.forPath(self._spark, str(self.path))
            .alias("t")
            .merge(again.alias("s"), f"s.is_old AND {place} AND t.{end} IS NULL AND t.{day} IN ({days})")
            .whenMatchedDelete(f"s.{end} = s.{begin}")
            .whenMatchedUpdate(set={name: f"s.{name}" for name in updated})
            .whenNotMatchedInsert("NOT s.is_old", {n: f"s.`{n}`" for n in HISTORY_SCHEMAS[self.name].names})
        )
        with self.reaching(mark):
            merge.execute()
        return int(rows.num_rows)

    @contextmanager
    def reaching(self, mark: HistoryMark) -> Iterator[None]:
        """Commits made within say this mark."""
        self._spark.conf.set(_USER_METADATA, encode_mark(mark))
        try:
            yield
        finally:
            self._spark.conf.unset(_USER_METADATA)
        self.mark = mark
