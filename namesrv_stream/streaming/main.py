"""The job as a process: one for a folder of tables, safe to kill at any moment."""

import logging
import os
import shutil
import signal
import threading
import time
from types import FrameType
from typing import Final, NoReturn

from kafka import KafkaProducer
from kafka.errors import KafkaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import KafkaUnreachable, NamesrvStreamError
from namesrv_stream.kafka import bootstrap_servers, ensure_topics, producer_config
from namesrv_stream.kafka.extent import read_extent
from namesrv_stream.kafka.log_check import check_log
from namesrv_stream.logs import progress, report_error
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.run_files import write_run_file
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.batch_figures import BatchFigures
from namesrv_stream.streaming.compactor import Compactor
from namesrv_stream.streaming.failure import failure_reason
from namesrv_stream.streaming.job_lock import job_lock
from namesrv_stream.streaming.jvm import kill_jvm
from namesrv_stream.streaming.query import start_query
from namesrv_stream.streaming.session import build_session, scratch_dir
from namesrv_stream.streaming.settings_log import log_changed_settings
from namesrv_stream.streaming.sink import BatchSink, FoldedBatch
from namesrv_stream.streaming.start_point import StartPoint, find_start_point
from namesrv_stream.streaming.ticks import Ticker
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptStates
from namesrv_stream.tables.swap import settle_swap

_LOG = logging.getLogger(__name__)

_LAST_WRITE_S: Final = 1.5  # a clean stop waits so long for the batch being written
RUN_FILE: Final = "job.json"
#: Where version 0.1.0 kept Spark's checkpoint, which decided where the job went on.
_FORMER_CHECKPOINT: Final = "checkpoint"


def run_job(settings: Settings) -> int:
    """Fold until SIGTERM or SIGINT; blocks.

    Returns:
        1 where it failed, or another job has taken over; a signal ends the process itself, with exit 0.

    Raises:
        NamesrvStreamError: The job cannot start here, and why.
    """
    with job_lock(settings.data.lock_dir):
        job = _Job(settings)
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, job.on_signal)
            return job.run()
        except NamesrvStreamError:
            raise
        except Exception as error:
            _LOG.exception("the job failed")
            report_error(f"the job failed: {failure_reason(error)}")
            return 1


class _Job:
    """One run."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._began_s = time.monotonic()
        self._spark: SparkSession | None = None
        self._sink: BatchSink | None = None
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._has_batch = False
        self._has_logged_settings = False

    def run(self) -> int:
        """Start everything and wait for the query's end."""
        settings = self._settings
        self._server_epoch = SystemClock().now_ms()
        (settings.data.run_dir / RUN_FILE).unlink(missing_ok=True)
        for folder in (scratch_dir(settings), settings.data.dir / _FORMER_CHECKPOINT):
            shutil.rmtree(folder, ignore_errors=True)
        ensure_topics(settings)
        # Both writers before Spark, which takes seconds: another job that commits meanwhile is to be noticed.
        writer, state, start = self._open_tables()
        self._writer = writer
        try:
            self._producer = KafkaProducer(**producer_config(settings))
        except (KafkaError, OSError) as error:
            raise KafkaUnreachable(bootstrap_servers(settings), str(error)) from None
        self._say(f"goes on from route_state at {dict(start.offsets)}; starting Spark")
        self._spark = build_session(settings)
        self._say("Spark has started; the first batch warms it up")
        self._compactor = Compactor(settings, writer.table, state, self._end)
        self._compactor.start()
        self._ticker = Ticker(settings, self._producer, self._server_epoch)
        self._ticker.start()
        figures = BatchFigures(self._server_epoch, writer.committed)
        self._sink = BatchSink(settings, writer, self._producer, figures, self._on_batch)
        return self._wait(start_query(self._spark, settings, start, self._write))

    def _open_tables(self) -> tuple[ChangesWriter, StateWriter, StartPoint]:
        """Repair the tables, hold them against the log, and find where to start."""
        settings, tables = self._settings, tables_of(self._settings)
        settle_swap(tables)
        for text in prepare_tables(settings, read_extent(settings).topic_id):
            progress(f"repaired: {text}")
        writer = ChangesWriter(tables, settings.streaming.progress_commit_interval_ms)
        extent = check_log(settings, FoldedLog(writer.table.topic_id, writer.table.progress))
        start = find_start_point(KeptStates(tables), writer.committed, writer.table.removed_below, extent)
        return writer, StateWriter(tables), start

    def on_signal(self, number: int, _frame: FrameType | None) -> NoReturn:
        """End now: every part is made for being killed, so there is nothing to tidy up but the scratch folder."""
        if self._sink is not None:
            self._sink.is_writing.acquire(timeout=_LAST_WRITE_S)
        kill_jvm(self._spark)
        shutil.rmtree(scratch_dir(self._settings), ignore_errors=True)
        os._exit(0)

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch, on its thread; of what it raises, Spark keeps the text only."""
        assert self._sink is not None
        try:
            self._sink(batch, batch_id)
        except NamesrvStreamError as error:
            self._end(error)
            raise

    def _wait(self, query: StreamingQuery) -> int:
        def await_end() -> None:
            try:
                query.awaitTermination()
            except Exception as error:
                self._end(error)
            finally:
                self._ended.set()

        # On a thread: a signal is handled at once here, and not only when the JVM answers.
        threading.Thread(target=await_end, name="query-end", daemon=True).start()
        self._ended.wait()
        failure = self._failure
        if isinstance(failure, NamesrvStreamError):
            _LOG.error("%s", failure)
            report_error(str(failure))
        elif failure is not None:
            _LOG.error("the query failed: %s", failure)
            report_error(f"the query failed: {failure_reason(failure)}")
        kill_jvm(self._spark)
        return failure.exit_code if isinstance(failure, NamesrvStreamError) else 1

    def _end(self, error: Exception) -> None:
        """End the job for this reason, unless there is one already; from any thread."""
        self._failure = self._failure or error
        self._ended.set()

    def _on_batch(self, batch: FoldedBatch) -> None:
        """After each batch, on its thread."""
        if not self._has_batch:
            self._has_batch = True
            write_run_file(self._settings.data.run_dir / RUN_FILE, {})
            self._say("first batch done")
        # A stand-by job, which another one keeps from committing, must not change the settings of that one.
        if self._writer.has_committed and not self._has_logged_settings:
            self._has_logged_settings = self._log_settings()
        self._ticker.folded(batch.has_direct)
        if batch.states:
            self._compactor.submit(batch.states)

    def _log_settings(self) -> bool:
        """Log what the configuration has changed; False where Kafka did not take it, and the next batch tries again."""
        try:
            log_changed_settings(self._settings, self._producer, self._server_epoch)
        except (KafkaError, NamesrvStreamError) as error:
            _LOG.warning("cannot log the configuration yet: %s", " ".join(str(error).split())[:200])
            return False
        return True

    def _say(self, text: str) -> None:
        progress(f"{text} ({time.monotonic() - self._began_s:.1f} s)")
