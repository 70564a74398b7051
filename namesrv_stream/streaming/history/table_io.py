"""History tables as DataFrames. Spark's tasks read and write the data files, in a folder or an object store.

The tasks use the code of ``tables`` for this, not Spark's own access to Delta and storage. So Spark needs no jars for
them, and tables in an object store are accessed in the same way as by all other processes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.history_files import FILE_SCHEMA, HistoryMark, read_batches, write_files
from namesrv_stream.tables.history_tables import HistoryTable
from namesrv_stream.tables.layout import HISTORY_SCHEMAS
from namesrv_stream.tables.storage import Storage


def read_rows(
    spark: SparkSession, table: Storage, files: Collection[DataFile], schema: pa.Schema, columns: Iterable[str]
) -> DataFrame:
    """Return the rows of data files.

    Args:
        files: The files to read, which are distributed to tasks.
        schema: Columns of the table. Columns that a file does not have are null.
        columns: The columns to read, without partition columns, which the files do not contain.
    """
    wanted = pa.schema([schema.field(name) for name in columns]).remove_metadata()
    nullable = pa.schema([field.with_nullable(True) for field in wanted])
    if not files:
        return spark.createDataFrame(nullable.empty_table())  # from Arrow: a list starts another Python daemon

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch["path"].to_pylist():
                yield from read_batches(table, path, nullable)

    paths = spark.createDataFrame(pa.table({"path": [file.path for file in files]}))
    tasks = min(len(files), spark.sparkContext.defaultParallelism)
    return paths.repartition(tasks).mapInArrow(read, from_arrow_schema(nullable))


def append(table: HistoryTable, rows: DataFrame, mark: HistoryMark, tasks: int) -> int:
    """Append rows in one commit; blocks.

    Args:
        rows: Rows with all columns of the table, in any order.
        mark: How far the table covers the log with these rows.
        tasks: Maximum number of tasks that write, and therefore of new files per day.

    Returns:
        The number of appended rows.

    Raises:
        TablesTakenOver: Another process has written the table meanwhile.
    """
    tables, name = table.tables, table.name

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_files(tables, name, batches)

    ordered = rows.select(*HISTORY_SCHEMAS[name].names).coalesce(tasks)
    files = ordered.mapInArrow(write, from_arrow_schema(FILE_SCHEMA)).toArrow()
    return table.commit(files, mark)


def within(rows: DataFrame, begin: Mapping[int, int], end: Mapping[int, int]) -> DataFrame:
    """Return the rows in ranges of offsets.

    Args:
        rows: Rows with the columns partition and offset.
        begin: Partition → first offset.
        end: Partition → the offset after the last one.
    """
    wanted = f.lit(False)
    for partition, first in begin.items():
        in_range = (f.col("offset") >= first) & (f.col("offset") < end[partition])
        wanted = wanted | ((f.col("partition") == partition) & in_range)
    return rows.where(wanted)
