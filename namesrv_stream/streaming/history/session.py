"""The SparkSession of the history process: one core, a small heap, and Delta's own writer."""

from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.placement import submitted_config
from namesrv_stream.streaming.session import build_session

#: What reading and writing Delta tables needs.
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Unset, each look at a table's log is a job of 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "1",
    # INT96, Spark's default, has no statistics and is unknown to others.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # Rows go to the file of their day as they come; else each task sorts them by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    # Of each commit a file of some kilobytes with the sums of the table, which no clean-up but Spark's own removes.
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    # A commit without rows still says how far the table reaches.
    "spark.databricks.delta.skipRecordingEmptyCommits": "false",
    # The source of each MERGE of ours is rows in memory, the same at each look.
    "spark.databricks.delta.merge.materializeSource": "none",
}
#: Files of a log are written as data files are (``without_checksums``), not by Hadoop's other interface to disks. A
#: writer that is killed may leave a broken ``_last_checkpoint``: Spark then lists the log, until the next checkpoint.
LOG_STORE: Final = {"spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore"}
#: Of whoever submits: Delta takes no other beside it.
_OTHER_LOG_STORE: Final = "spark.delta.logStore.class"
#: The rows of a run are few, and each statement is another.
SMALL_RUNS: Final = {
    # To compile a statement takes several times as long as to interpret it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A broadcast is a job of its own.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
_HISTORY: Final = {
    "spark.app.name": "namesrv-stream history",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    # A row group waits in memory until it is written: a quarter of Parquet's default for a quarter of the heap.
    "spark.hadoop.parquet.block.size": str(16 << 20),
}


def build_history_session(settings: Settings) -> SparkSession:
    """Start the JVM, or join the one that ``spark-submit`` started; blocks for some seconds.

    Raises:
        PrerequisiteMissing: The jars are not there.
    """
    history = settings.history
    own = {
        "spark.master": history.master,
        "spark.driver.memory": history.driver_memory,
    }
    log_store = {} if _OTHER_LOG_STORE in submitted_config() else LOG_STORE
    spark = build_session(settings, DELTA | log_store | SMALL_RUNS | _HISTORY | own, history_scratch_dir(settings))
    without_checksums(spark)
    return spark


def without_checksums(spark: SparkSession) -> None:
    """Write no check sum file beside each file: Parquet has its own, and upkeep would have to remove them."""
    context = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs.FileSystem  # type: ignore[union-attr]  # noqa: SLF001
    hadoop.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)  # noqa: SLF001


def forget_tables(spark: SparkSession) -> None:
    """What Spark remembers of a folder may be of a table that is no longer there."""
    spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # noqa: SLF001


def history_scratch_dir(settings: Settings) -> Path:
    """Where this process's Spark keeps what need not survive; the job's empties its own when it starts."""
    return settings.data.dir / "scratch-history"
