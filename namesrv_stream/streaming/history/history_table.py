"""One history table for writing: each commit says how far the table reaches with it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from namesrv_stream.tables.delta.file_ranges import FileRanges
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.history_mark import HistoryMark, encode_mark, read_mark
from namesrv_stream.tables.schema.history_columns import DAY_COLUMNS, HISTORY_SCHEMAS, INTERVAL_COLUMNS
from namesrv_stream.tables.storage import Storage

#: What tells a row of a table of intervals from all others.
PLACE: Final = ("partition", "offset", "seq")
#: Of rows for ``upsert``: whether the table has the row.
IS_OLD: Final = "is_old"

_USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"


class HistoryTable:
    """A table and its mark; of one thread, and the only writer.

    Args:
        spark: The session.
        tables: Where the tables are.
        name: Which table.

    Attributes:
        mark: How far it reaches.
    """

    def __init__(self, spark: SparkSession, tables: Storage, name: str) -> None:
        self.name = name
        self.storage = tables / name
        self._spark = spark
        self._tables = tables
        self.mark = read_mark(self.storage) or HistoryMark()

    def stored(self) -> StoredTable:
        """What it has, for reading without Spark; blocks."""
        stored = StoredTable.open(self._tables, self.name, HISTORY_SCHEMAS[self.name])
        assert stored is not None, self.storage
        return stored

    def file_ranges(self) -> FileRanges:
        """Its files now, for reading ranges of offsets without Spark; blocks."""
        return FileRanges.open(self.storage, HISTORY_SCHEMAS[self.name])

    def append(self, rows: DataFrame | pa.Table, mark: HistoryMark) -> None:
        """Add rows; blocks.

        Args:
            rows: With all columns of the table, in any order; of ``pa.Table`` those that are absent are null.
            mark: How far the table reaches with them.
        """
        added = self._frame(rows, HISTORY_SCHEMAS[self.name]) if isinstance(rows, pa.Table) else rows
        with self.reaching(mark):
            ordered = added.select(*HISTORY_SCHEMAS[self.name].names)
            ordered.write.format("delta").mode("append").save(str(self.storage))

    def reach(self, mark: HistoryMark) -> None:
        """Say how far the table reaches, where no row is to be written; blocks."""
        self.append(HISTORY_SCHEMAS[self.name].empty_table(), mark)

    def upsert(self, rows: pa.Table, updated: Sequence[str], mark: HistoryMark) -> int:
        """Add rows to a table of intervals and change some that have no end; blocks.

        Args:
            rows: Columns of the table but that of the day, and ``is_old``; of an old row, known by ``PLACE``, those of
                the interval and the updated ones will do. One that has come to last no millisecond is removed.
            updated: Columns that an old row gets anew.
            mark: How far the table then reaches.

        Returns:
            Number of rows.
        """
        begin, end = INTERVAL_COLUMNS[self.name]
        day = DAY_COLUMNS[self.name]
        rows = rows.append_column(day, rows[begin].cast(pa.date32()))
        old = rows.filter(pc.field(IS_OLD))
        if not old.num_rows:
            self.append(rows, mark)
            return int(rows.num_rows)
        source = self._frame(rows, HISTORY_SCHEMAS[self.name].append(pa.field(IS_OLD, pa.bool_())))
        # Conditions on the target alone tell Delta which files to leave alone.
        place = " AND ".join(f"t.`{name}` = s.`{name}`" for name in PLACE)
        days = ", ".join(f"DATE'{value}'" for value in sorted(pc.unique(old[day]).to_pylist()))
        where = f"s.is_old AND {place} AND t.{end} IS NULL AND t.{day} IN ({days}) AND {_between('offset', old)}"
        merge = (
            DeltaTable.forPath(self._spark, str(self.storage))
            .alias("t")
            .merge(source.alias("s"), where)
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

    def _frame(self, rows: pa.Table, schema: pa.Schema) -> DataFrame:
        columns = [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        # Spark would believe that a column without nulls has none; it may, of an old row. Delta looks at each row.
        fields = [pa.field(field.name, field.type) for field in schema]
        return self._spark.createDataFrame(pa.Table.from_arrays(columns, schema=pa.schema(fields)))


def _between(column: str, rows: pa.Table) -> str:
    extremes = pc.min_max(rows[column]).as_py()
    return f"t.`{column}` BETWEEN {extremes['min']} AND {extremes['max']}"
