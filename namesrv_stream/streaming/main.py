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
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import KafkaUnreachable, NamesrvStreamError
from namesrv_stream.kafka import bootstrap_servers, ensure_topics, producer_config
from namesrv_stream.logs import progress, report_error
from namesrv_stream.run_files import write_run_file
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.batch_figures import BatchFigures
from namesrv_stream.streaming.changes_writer import ChangesWriter
from namesrv_stream.streaming.compaction import FILES_TO_JOIN, Compactor
from namesrv_stream.streaming.delta_tables import ensure_tables
from namesrv_stream.streaming.failure import failure_reason
from namesrv_stream.streaming.job_lock import job_lock
from namesrv_stream.streaming.jvm import kill_jvm
from namesrv_stream.streaming.query import start_query
from namesrv_stream.streaming.session import build_session, scratch_dir
from namesrv_stream.streaming.settings_log import log_changed_settings
from namesrv_stream.streaming.sink import BatchSink
from namesrv_stream.streaming.start_point import find_start_point
from namesrv_stream.streaming.table_swap import settle_swap
from namesrv_stream.streaming.ticks import Ticker
from namesrv_stream.streaming.topic import read_extent

_LOG = logging.getLogger(__name__)

_LAST_WRITE_S: Final = 1.5  # a clean stop waits so long for the batch being written
RUN_FILE: Final = "job.json"


def run_job(settings: Settings) -> int:
    """Fold until SIGTERM or SIGINT; blocks.

    Returns:
        1 where it failed, 2 where another job has taken over; a signal ends the process itself, with exit 0.

    Raises:
        NamesrvStreamError: The job cannot start here, and why.
    """
    with job_lock(settings.data.lock_dir):
        settle_swap(settings)
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
        self._writer: ChangesWriter | None = None
        self._sink: BatchSink | None = None
        self._has_batch = False

    def run(self) -> int:
        """Start everything and wait for the query's end."""
        settings = self._settings
        server_epoch = SystemClock().now_ms()
        (settings.data.run_dir / RUN_FILE).unlink(missing_ok=True)
        shutil.rmtree(scratch_dir(settings), ignore_errors=True)
        ensure_topics(settings)
        extent = read_extent(settings)
        ensure_tables(settings, extent.topic_id)
        start = find_start_point(settings, extent)
        producer = self._producer()
        # Before Spark, which takes seconds: what brokers say meanwhile is to be folded under the new settings.
        self._log_settings(producer, server_epoch)
        # Before Spark too: another job that commits while it starts is to be noticed.
        self._writer = writer = ChangesWriter(
            settings.data.tables_location,
            extent.topic_id,
            settings.kafka.partitions,
            settings.streaming.progress_commit_interval_ms,
        )
        self._say(f"goes on from its {start.origin} at {dict(start.offsets)}; starting Spark")
        self._spark = build_session(settings)
        self._say("Spark has started; the first batch warms it up")
        compactor = Compactor(settings)
        compactor.start()

        def after_batch() -> None:
            self._on_batch()
            if writer.files_since_join >= FILES_TO_JOIN:
                writer.files_since_join = 0
                compactor.join_files()

        figures = BatchFigures(server_epoch, writer.committed)
        ticker = Ticker(settings, producer, server_epoch)
        self._sink = BatchSink(settings, writer, producer, compactor.submit, after_batch, figures, ticker.folded)
        ticker.start()
        query = start_query(self._spark, settings, start, self._sink)
        return self._wait(query)

    def on_signal(self, number: int, _frame: FrameType | None) -> NoReturn:
        """End now: every part is made for being killed, so there is nothing to tidy up but the scratch folder."""
        if self._sink is not None:
            self._sink.is_writing.acquire(timeout=_LAST_WRITE_S)
        kill_jvm(self._spark)
        shutil.rmtree(scratch_dir(self._settings), ignore_errors=True)
        os._exit(0)

    def _producer(self) -> KafkaProducer:
        try:
            return KafkaProducer(**producer_config(self._settings))
        except (KafkaError, OSError) as error:
            raise KafkaUnreachable(bootstrap_servers(self._settings), str(error)) from None

    def _log_settings(self, producer: KafkaProducer, server_epoch: int) -> None:
        try:
            log_changed_settings(self._settings, producer, server_epoch)
        except KafkaError as error:
            raise KafkaUnreachable(bootstrap_servers(self._settings), str(error)) from None

    def _wait(self, query: StreamingQuery) -> int:
        # On a thread: a signal is handled at once here, and not only when the JVM answers.
        ended = threading.Event()
        failures: list[Exception] = []

        def await_end() -> None:
            try:
                query.awaitTermination()
            except Exception as error:
                failures.append(error)
            finally:
                ended.set()

        threading.Thread(target=await_end, name="query-end", daemon=True).start()
        ended.wait()
        refused = self._writer.failure if self._writer is not None else None
        if refused is not None:
            _LOG.error("%s", refused)
            report_error(str(refused))
            kill_jvm(self._spark)
            return refused.exit_code
        for failure in failures:
            _LOG.error("the query failed: %s", failure)
            report_error(f"the query failed: {failure_reason(failure)}")
        kill_jvm(self._spark)
        return 1

    def _on_batch(self) -> None:
        if not self._has_batch:
            self._has_batch = True
            write_run_file(self._settings.data.run_dir / RUN_FILE, {})
            self._say("first batch done")

    def _say(self, text: str) -> None:
        progress(f"{text} ({time.monotonic() - self._began_s:.1f} s)")
