"""The history process: one per folder of tables, safe to kill at any time."""

import logging
import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import (
    ConfigError,
    KafkaUnreachable,
    NamesrvStreamError,
    PrerequisiteMissing,
    StoreUnreachable,
)
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.logs import progress, report_error
from namesrv_stream.long_work import LongWork
from namesrv_stream.processes import announce_start, locked, lower_priority, write_run_file
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.history.history_writer import History
from namesrv_stream.streaming.spark_jvm import failure_reason, is_gone, kill_jvm, reason_of_end
from namesrv_stream.streaming.spark_session import build_session, read_log
from namesrv_stream.table_errors import TablesTakenOver
from namesrv_stream.tables.history_upkeep import Upkeep
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import StoredChanges

#: Writes a batch: its records, and partition → the offset after the last one.
WriteBatch = Callable[[DataFrame, Mapping[int, int]], object]


def start_history_query(
    spark: SparkSession, settings: Settings, begin: Mapping[int, int], write: WriteBatch, *, once: bool
) -> StreamingQuery:
    """Start to read the events topic, and return at once. ``write`` is called on a Python thread.

    The checkpoint is temporary, because the tables determine where to begin.

    Args:
        begin: Partition → first offset, which Kafka must have.
        once: Whether to end with the last record that Kafka has now. Otherwise there is a batch every
            ``history.interval_ms``.
    """
    checkpoint = (history_scratch_dir(settings) / f"checkpoint-{uuid.uuid4()}").absolute()
    topic = settings.kafka.broker_events_topic

    def on_batch(records: DataFrame, batch_id: int) -> None:
        write(records, {**begin, **batch_end(checkpoint, batch_id, topic)})

    writer = (
        read_records(spark, settings, begin)
        .writeStream.foreachBatch(on_batch)
        .queryName("history")
        .option("checkpointLocation", str(checkpoint))
    )
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.history.interval_ms} milliseconds").start()


def read_records(spark: SparkSession, settings: Settings, begin: Mapping[int, int]) -> DataFrame:
    """Return the records of the events topic from given offsets on, as a stream.

    The columns are partition (int), offset (bigint), at (timestamp, LogAppendTime), value (binary).
    """
    records = read_log(spark, settings, begin, settings.history.max_records, {})
    return records.select("partition", "offset", f.col("timestamp").alias("at"), "value")


def batch_end(checkpoint: Path, batch_id: int, topic: str) -> dict[int, int]:
    """Return partition → the offset after the last record of a batch, which Spark writes to a file before the batch."""
    *_, offsets = (checkpoint / "offsets" / str(batch_id)).read_bytes().splitlines()
    return {int(partition): int(end) for partition, end in orjson.loads(offsets)[topic].items()}


_HISTORY: Final = {
    "spark.app.name": "namesrv-stream history",
    # A registration with many topics takes hundreds of kilobytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
}


def build_history_session(settings: Settings) -> SparkSession:
    """Start the JVM, or join the one that ``spark-submit`` started; blocks for some seconds.

    Raises:
        PrerequisiteMissing: Spark's jars are missing.
    """
    own = {"spark.master": settings.history.master, "spark.driver.memory": settings.history.driver_memory}
    return build_session(settings, _HISTORY | own, history_scratch_dir(settings))


def history_scratch_dir(settings: Settings) -> Path:
    """Return the folder of this Spark program's temporary files. The job has another folder, which it empties."""
    return settings.data.dir / "scratch-history"


logger = logging.getLogger(__name__)

RUN_FILE: Final = "history-job.json"
_POLL_S: Final = 1.0  # interval of checks for the job's first commit
_NICENESS: Final = 10


def run_history(settings: Settings, *, once: bool = False) -> int:
    """Write the history tables until SIGTERM or SIGINT, or once; blocks.

    Args:
        once: Whether to end after one run.

    Returns:
        0 after a run with ``once``; otherwise the exit code of the failure, which is reported. A signal ends the
        process directly, with exit code 0.

    Raises:
        ConfigError: Another history process runs on these tables.
    """
    lower_priority(os.getpid(), _NICENESS)  # the job's batches have priority
    with locked(settings.data.lock_dir / "history.lock", "data.tables", "another history-job runs here"):
        announce_start(settings.data.run_dir / RUN_FILE)
        process = _HistoryProcess(settings)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, process.on_signal)
        return process.run(once)


class _HistoryProcess:
    """One run of the process. A thread does the work, so that signals need not wait for an answer of the JVM."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spark: SparkSession | None = None
        self._is_behind = False

    def run(self, once: bool) -> int:
        shutil.rmtree(history_scratch_dir(self._settings), ignore_errors=True)
        outcome: list[int | Exception] = []
        ended = threading.Event()

        def work() -> None:
            try:
                outcome.append(self._work(once))
            except Exception as error:
                outcome.append(error)
            finally:
                ended.set()

        threading.Thread(target=work, name="history", daemon=True).start()
        ended.wait()
        (result,) = outcome
        code = self._report(result) if isinstance(result, Exception) else result
        self._tidy_up()  # after the report, because this silences stderr
        return code

    def _report(self, error: Exception) -> int:
        if isinstance(error, NamesrvStreamError):
            report_error(str(error))
            return error.exit_code
        logger.error("history failed", exc_info=error)
        report_error(f"the history failed: {reason_of_end(self._spark) or failure_reason(error)}")
        return 1

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """End the process at once. Commits are atomic, and the next start continues from the last one."""
        if self._is_behind:
            progress("interrupted while catching up: the next start continues from the last commit")
        self._tidy_up()
        os._exit(0)

    def _tidy_up(self) -> None:
        kill_jvm(self._spark)
        shutil.rmtree(history_scratch_dir(self._settings), ignore_errors=True)

    def _work(self, once: bool) -> int:
        if once and StoredChanges.open(tables_of(self._settings)) is None:
            reason = "there is no route_changes yet: the job has not run here"
            raise ConfigError("settings", "data.tables", f"{tables_of(self._settings)}: {reason}")
        while StoredChanges.open(tables_of(self._settings)) is None:
            time.sleep(_POLL_S)
        self._spark = build_history_session(self._settings)
        while True:
            if once:
                self._write(self._spark, once=True)
                return 0
            self._attempt(self._spark)
            time.sleep(self._settings.history.interval_ms / 1000)

    def _attempt(self, spark: SparkSession) -> None:
        """Write until a failure. Failures that may be temporary are logged, and not raised.

        Raises:
            NamesrvStreamError: The failure is permanent.
            Exception: The JVM has ended.
        """
        try:
            self._write(spark, once=False)
        except (KafkaUnreachable, StoreUnreachable) as error:
            logger.warning("writing failed, retrying reason=%s", error)
        except (ConfigError, PrerequisiteMissing, TablesTakenOver):
            raise
        except Exception as error:
            if is_gone(spark):
                raise
            logger.error("writing failed, retrying from the last commit reason=%s", failure_reason(error))
            logger.debug("writing failed", exc_info=error)

    def _write(self, spark: SparkSession, *, once: bool) -> None:
        """Catch up with Kafka and the job; then continue batch by batch, unless ``once`` is set."""
        began_s = time.monotonic()
        extent = read_extent(self._settings)
        history = History(spark, self._settings, extent)
        self._is_behind = True
        with LongWork("records") as work:
            self._follow(spark, history, history.begin, once=True, reached=reports(work, history.begin, extent.end))
        _log_written(history.follow(is_last=True), began_s)
        self._is_behind = False
        run_file = self._settings.data.run_dir / RUN_FILE
        if not run_file.exists():
            write_run_file(run_file, {})
            progress(f"the history tables are up to date ({time.monotonic() - began_s:.1f} s)")
        if not once:
            self._follow(spark, history, history.next_offsets, once=False)

    def _follow(
        self,
        spark: SparkSession,
        history: History,
        begin: Mapping[int, int],
        *,
        once: bool,
        reached: Callable[[Mapping[int, int]], None] = lambda offsets: None,
    ) -> None:
        """Write batches until the query ends.

        Args:
            reached: Called after each batch with partition → the offset after its last record.

        Raises:
            NamesrvStreamError: A batch failed.
            Exception: The query failed.
        """
        failures: list[NamesrvStreamError] = []
        upkeep = Upkeep(self._settings)

        def take(records: DataFrame, end: Mapping[int, int]) -> None:
            began_s = time.monotonic()
            try:
                _log_written(history.take(records, end), began_s)
                reached(end)
                upkeep.run(SystemClock().now_ms())
            except NamesrvStreamError as error:
                failures.append(error)
                raise

        query = start_history_query(spark, self._settings, begin, take, once=once)
        try:
            query.awaitTermination()
        except Exception:
            if failures:
                raise failures[0] from None
            raise


def reports(work: LongWork, begin: Mapping[int, int], ends: Mapping[int, int]) -> Callable[[Mapping[int, int]], None]:
    """Return a function that reports how far the history has caught up; begins the report."""
    total = sum(max(0, end - begin.get(partition, end)) for partition, end in ends.items())

    def reached(offsets: Mapping[int, int]) -> None:
        done = sum(offsets.get(partition, first) - first for partition, first in begin.items())
        work.show("catching up with Kafka", min(done, total), total)

    reached(begin)
    return reached


def _log_written(written: Mapping[str, int], began_s: float) -> None:
    rows = " ".join(f"{table}={count}" for table, count in written.items() if count)
    if rows:
        logger.info("rows written took_ms=%d %s", (time.monotonic() - began_s) * 1000, rows)
