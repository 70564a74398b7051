"""The job as a process: one per folder of tables, safe to kill at any time.

At its start, the job also writes changes of the configuration file to the event log. It does not override settings that
were changed at run time and that the file has not changed since.
"""

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Collection
from types import FrameType
from typing import Final, NoReturn

from kafka import KafkaProducer
from kafka.errors import KafkaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, KafkaUnreachable, NamesrvStreamError
from namesrv_stream.kafka import ensure_topics, producer_config
from namesrv_stream.kafka.clients import kafka_errors, reason_of
from namesrv_stream.kafka.log_reader import check_log, read_extent
from namesrv_stream.logs import progress, report_error
from namesrv_stream.processes import announce_start, job_lock, write_run_file
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import JOB, Origin, SettingsChanged
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.liveness_settings import SettingValue
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings
from namesrv_stream.settings.checks import SOURCE, changed_settings
from namesrv_stream.streaming.route_table.fold_query import (
    BatchFigures,
    BatchSink,
    FoldedBatch,
    StartPoint,
    find_start_point,
    start_query,
)
from namesrv_stream.streaming.route_table.stateful import records_that_fit
from namesrv_stream.streaming.route_table.ticks import Ticker
from namesrv_stream.streaming.spark_jvm import failure_reason, kill_jvm, reason_of_end
from namesrv_stream.streaming.spark_session import build_session, scratch_dir
from namesrv_stream.table_errors import LogReplaced, LogTruncated, RecordsLost
from namesrv_stream.tables.compaction import Compactor
from namesrv_stream.tables.repair import prepare_tables, settle_swap
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.snapshot import load_settings_table
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptStates

logger = logging.getLogger(__name__)

_LAST_WRITE_S: Final = 1.5  # the longest wait of a clean stop for the batch that is being written
#: How long, and how often, the log is compared with the folded one again if Kafka does not answer.
_COMPARE_S: Final = 30.0
_COMPARE_AGAIN_S: Final = 0.5
RUN_FILE: Final = "job.json"
#: Folder of Spark's checkpoint in version 0.1.0, which started from it.
_FORMER_CHECKPOINT: Final = "checkpoint"


def run_job(settings: Settings) -> int:
    """Fold until SIGTERM or SIGINT; blocks.

    Returns:
        The exit code of a failure. A signal ends the process directly, with exit code 0.

    Raises:
        NamesrvStreamError: The job cannot start.
    """
    with job_lock(settings.data.lock_dir):
        announce_start(settings.data.run_dir / RUN_FILE)
        job = _Job(settings)
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, job.on_signal)
            return job.run()
        except NamesrvStreamError:
            raise
        except Exception as error:
            logger.exception("the job failed")
            report_error(f"the job failed: {failure_reason(error)}")
            return 1


class _Job:
    """One run of the job."""

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
        """Start everything, and wait until the query ends."""
        settings = self._settings
        self._server_epoch = SystemClock().now_ms()
        for folder in (scratch_dir(settings), settings.data.dir / _FORMER_CHECKPOINT):
            shutil.rmtree(folder, ignore_errors=True)
        ensure_topics(settings)
        # The writers are opened before Spark, which takes seconds, so that commits of another job are detected.
        writer, state, start = self._open_tables()
        with kafka_errors(settings):
            self._producer = KafkaProducer(**producer_config(settings))
        places = ", ".join(f"partition {p} offset {offset}" for p, offset in sorted(start.offsets.items()))
        self._print_progress(f"resuming at {places}; starting Spark")
        self._spark = build_session(settings)
        self._print_progress("Spark started; running the first batch, which warms it up")
        self._compactor = Compactor(settings, writer.table, state, self._end)
        self._compactor.start()
        self._ticker = Ticker(settings, self._producer, self._server_epoch, self._end)
        self._ticker.start()
        figures = BatchFigures(self._server_epoch, writer.committed)
        self._sink = BatchSink(settings, writer, self._producer, figures, self._before_write, self._on_batch)
        return self._fold(start)

    def _fold(self, start: StartPoint) -> int:
        """Fold until the query fails. A backlog with too many rows for one batch is folded in smaller ones first."""
        assert self._spark is not None
        records: int | None = None  # in each batch of a backlog
        while True:
            self._wait(start_query(self._spark, self._settings, start, self._write, records))
            fit = records_that_fit(self._failure)
            if fit is not None:
                records = max(1, fit // 2)
                self._print_progress(f"the waiting records have too many rows for one batch: {records} at once")
            elif self._failure is None and records is not None:
                records = None  # the backlog is folded
            else:
                return self._failed()
            self._failure = None
            self._ended.clear()
            start = self._start_point()

    def _open_tables(self) -> tuple[ChangesWriter, StateWriter, StartPoint]:
        """Repair the tables, check them against the log, and find the start point."""
        settings, tables = self._settings, tables_of(self._settings)
        settle_swap(tables)
        for text in prepare_tables(settings, read_extent(settings).topic_id):
            progress(f"repaired: {text}")
        writer = ChangesWriter(tables, settings.streaming.progress_commit_interval_ms)
        self._writer = writer
        return writer, StateWriter(tables), self._start_point()

    def _start_point(self) -> StartPoint:
        table = self._writer.table
        extent = check_log(self._settings, FoldedLog(table.topic_id, table.progress))
        kept = KeptStates(tables_of(self._settings))
        return find_start_point(kept, self._writer.committed, table.removed_below, extent)

    def on_signal(self, number: int, _frame: FrameType | None) -> NoReturn:
        """End the process at once. All parts are safe to kill, so only the scratch folder needs to be removed."""
        if self._sink is not None:
            self._sink.is_writing.acquire(timeout=_LAST_WRITE_S)
        kill_jvm(self._spark)
        shutil.rmtree(scratch_dir(self._settings), ignore_errors=True)
        os._exit(0)

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch, on a Python thread.

        Spark keeps only the text of an exception, so errors are recorded here.
        """
        assert self._sink is not None
        try:
            self._sink(batch, batch_id)
        except NamesrvStreamError as error:
            self._end(error)
            raise

    def _before_write(self, interrupted: list[int]) -> None:
        """Raise the error that ends the job, if any. Compare the log of interrupted partitions with the folded one.

        If Kafka has lost records and the log has grown again, Spark does not notice it. Until then, no producer could
        write to the log, so its LogAppendTimes have a gap (ADR 0049).
        """
        if self._failure is not None:
            raise self._failure
        until_s = time.monotonic() + _COMPARE_S
        while interrupted:
            try:
                return self._compare_log(interrupted)
            except (ConfigError, KafkaUnreachable):  # Kafka has just come back, and may not know the topic yet
                if time.monotonic() >= until_s:
                    raise
                time.sleep(_COMPARE_AGAIN_S)

    def _compare_log(self, partitions: Collection[int] | None = None) -> None:
        """Compare the last folded record of some partitions with Kafka's, or of all partitions; blocks.

        Raises:
            LogReplaced: Kafka has lost committed records, or has another topic.
            LogTruncated: Kafka has lost committed records.
            RecordsLost: Kafka has lost records that are folded, but not committed.
            KafkaUnreachable: Kafka does not answer.
            ConfigError: The topic does not exist, or its number of partitions differs from the configuration.
        """
        topic_id, committed = self._writer.table.topic_id, dict(self._writer.table.progress)
        try:
            check_log(self._settings, FoldedLog(topic_id, dict(self._writer.reached)), partitions)
        except (LogReplaced, LogTruncated):
            check_log(self._settings, FoldedLog(topic_id, committed), partitions)
            raise RecordsLost from None

    def _wait(self, query: StreamingQuery) -> None:
        """Wait until the query ends, or another part fails."""

        def await_end() -> None:
            try:
                query.awaitTermination()
            except Exception as error:
                self._end(error)
            else:
                self._ended.set()

        # On a thread, so that this one handles signals at once instead of after the JVM's next answer.
        threading.Thread(target=await_end, name="query-end", daemon=True).start()
        self._ended.wait()

    def _failed(self) -> int:
        """Report the error, end Spark, and return the exit code."""
        self._failure = failure = self._explained(self._failure)
        if isinstance(failure, NamesrvStreamError):
            logger.error("%s", failure)
            report_error(str(failure))
        elif failure is not None:
            logger.error("query failed reason=%s", failure)
            report_error(f"the query failed: {reason_of_end(self._spark) or failure_reason(failure)}")
        kill_jvm(self._spark)
        return failure.exit_code if isinstance(failure, NamesrvStreamError) else 1

    def _explained(self, failure: Exception | None) -> Exception | None:
        """Return the error that a comparison of the log with the folded one finds, if it may explain ``failure``.

        Spark notices only that records are missing. The comparison also finds the cause, for example that the topic
        was recreated. If it finds nothing, ``failure`` is returned.
        """
        if not isinstance(failure, NamesrvStreamError):
            try:
                self._compare_log()
            except (LogReplaced, LogTruncated, RecordsLost) as error:
                return error
            except Exception as error:
                logger.warning("the log cannot be compared with the tables reason=%s", reason_of(error))
        return failure

    def _end(self, error: Exception) -> None:
        """End the job because of an error. Only the first error is reported. Any thread may call this."""
        self._failure = self._failure or error
        self._ended.set()

    def _on_batch(self, batch: FoldedBatch) -> None:
        """Handle the end of a batch, on the thread of ``_write``."""
        if not self._has_batch:
            self._has_batch = True
            write_run_file(self._settings.data.run_dir / RUN_FILE, {})
            self._print_progress("first batch done")
        # A second job, which cannot commit, must not change the settings of the first one.
        if self._writer.has_committed and not self._has_logged_settings:
            self._has_logged_settings = self._log_settings()
        self._ticker.folded(batch.has_direct)
        if batch.states:
            self._compactor.submit(batch.states)

    def _log_settings(self) -> bool:
        """Write changed settings to the event log. If Kafka refuses them, return False; the next batch tries again."""
        try:
            log_changed_settings(self._settings, self._producer, self._server_epoch)
        except (KafkaError, NamesrvStreamError) as error:
            logger.warning("logging the configuration failed, retrying with the next batch reason=%s", reason_of(error))
            return False
        return True

    def _print_progress(self, text: str) -> None:
        progress(f"{text} ({time.monotonic() - self._began_s:.1f} s)")


def log_changed_settings(settings: Settings, producer: KafkaProducer, server_epoch: int) -> dict[str, SettingValue]:
    """Write the configured settings to the event log that have changed since they were last written there; blocks.

    Each partition is compared separately, because an earlier start may have reached only some of them.

    Returns:
        The written settings with their new values.

    Raises:
        kafka.errors.KafkaError: Kafka did not accept them.
    """
    table = load_settings_table(tables_of(settings))
    changed_in = {
        partition: changed_settings(settings, configured_settings(table, partition))
        for partition in range(settings.kafka.partitions)
    }
    sent = []
    for partition, changed in changed_in.items():
        if changed:
            logger.info("configuration changed partition=%d settings=%s", partition, changed)
            event = SettingsChanged(Origin(JOB, server_epoch), SOURCE, tuple(sorted(changed.items())))
            topic = settings.kafka.broker_events_topic
            sent.append(producer.send(topic, value=encode_event(event), partition=partition))
    for future in sent:
        future.get(timeout=settings.kafka.delivery_timeout_ms / 1000)
    return {name: value for changed in changed_in.values() for name, value in changed.items()}


def configured_settings(table: RouteTable, partition: int) -> dict[str, str]:
    """Return the configured settings last written to one partition: name → value as JSON text."""
    settings = table.settings_of(partition)
    return {name: text for (namespace, name), text in settings.items() if namespace == SOURCE}
