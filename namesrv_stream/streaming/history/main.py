"""The history process: writes each minute, one a data directory, safe to kill at any moment."""

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from pyspark.sql import SparkSession

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, KafkaUnreachable, NamesrvStreamError, PrerequisiteMissing
from namesrv_stream.kafka.extent import read_extent
from namesrv_stream.logs import progress, report_error
from namesrv_stream.priority import give_way
from namesrv_stream.run_files import write_run_file
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.failure import failure_reason
from namesrv_stream.streaming.history.history_run import HistoryRun
from namesrv_stream.streaming.history.session import build_history_session, history_scratch_dir
from namesrv_stream.streaming.job_lock import history_jvm_lock, history_lock
from namesrv_stream.streaming.jvm import is_gone, kill_jvm, lock_by_jvm
from namesrv_stream.tables.changes_source import ChangesSource
from namesrv_stream.tables.history_upkeep import Upkeep
from namesrv_stream.tables.storage import tables_of

_LOG = logging.getLogger(__name__)

RUN_FILE: Final = "history-job.json"
_LOOK_S: Final = 1.0  # for the job's first commit
_NICENESS: Final = 10


def run_history(settings: Settings, *, once: bool = False) -> int:
    """Write the history tables until SIGTERM or SIGINT, or once; blocks.

    Args:
        settings: Ours.
        once: Do one run, whatever the time, and end.

    Returns:
        0 after ``once``; else the exit code of what went wrong, which is told. A signal ends the process itself,
        with exit 0.

    Raises:
        ConfigError: Another one runs here, or the tables are in an object store.
    """
    tables = settings.data.tables_folder("the history process", "set history.enabled = false, or share a folder")
    give_way(os.getpid(), _NICENESS)  # the job's batches come first
    with history_lock(tables):
        process = _HistoryProcess(settings)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, process.on_signal)
        return process.run(once)


class _HistoryProcess:
    """One process; the work is done on a thread, so that a signal is handled at once and not when the JVM answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spark: SparkSession | None = None
        self._run: HistoryRun | None = None
        self._jvm_lock: Any = None

    def run(self, once: bool) -> int:
        (self._settings.data.run_dir / RUN_FILE).unlink(missing_ok=True)
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
        self._tidy_up()  # after the last word: of what Spark says when it is killed nothing is shown
        return code

    def _report(self, error: Exception) -> int:
        if isinstance(error, NamesrvStreamError):
            report_error(str(error))
            return error.exit_code
        _LOG.error("the history failed", exc_info=error)
        has_ended = self._spark is not None and is_gone(self._spark)
        report_error(f"the history failed: {'its JVM has ended' if has_ended else failure_reason(error)}")
        return 1

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """End now: every commit is whole or not there, and the next start goes on from what is there."""
        self._tidy_up()
        os._exit(0)

    def _tidy_up(self) -> None:
        kill_jvm(self._spark)
        shutil.rmtree(history_scratch_dir(self._settings), ignore_errors=True)

    def _work(self, once: bool) -> int:
        if once and ChangesSource.open(tables_of(self._settings)) is None:
            reason = "there is no route_changes yet: the job has not run here"
            raise ConfigError("settings", "data.tables", f"{self._settings.data.tables_dir}: {reason}")
        while ChangesSource.open(tables_of(self._settings)) is None:
            time.sleep(_LOOK_S)
        self._spark = build_history_session(self._settings)
        self._jvm_lock = lock_by_jvm(self._spark, history_jvm_lock(self._settings.data.tables_dir))
        interval_s = self._settings.history.interval_ms / 1000
        while True:
            began_s = time.monotonic()
            if once:
                self._write(began_s)
                return 0
            self._attempt(lambda began_s=began_s: self._write(began_s))  # type: ignore[misc]
            time.sleep(max(0.0, began_s + interval_s - time.monotonic()))

    def _write(self, began_s: float) -> None:
        assert self._spark is not None
        if self._run is None:
            self._run = HistoryRun(self._spark, self._settings)
        written = self._run.run(read_extent(self._settings))
        if written is None:
            return
        took_s = time.monotonic() - began_s
        _LOG.info("wrote %s in %.1f s", ", ".join(f"{table} {rows}" for table, rows in written.items()), took_s)
        run_file = self._settings.data.run_dir / RUN_FILE
        if not run_file.exists():
            write_run_file(run_file, {})
            progress(f"the history tables are up to date ({took_s:.1f} s)")
        Upkeep(self._settings).run(SystemClock().now_ms())

    def _attempt(self, work: Callable[[], Any]) -> None:
        """Do it; what may be over by the next time is logged.

        Raises:
            NamesrvStreamError: It will not be over by itself.
            Exception: The JVM is gone.
        """
        try:
            work()
        except KafkaUnreachable as error:
            _LOG.warning("%s; trying again", error)
        except (ConfigError, PrerequisiteMissing):
            raise
        except Exception as error:
            self._run = None
            if self._spark is None or is_gone(self._spark):
                raise
            _LOG.error("a run failed, what it had committed is there: %s", failure_reason(error))
            _LOG.debug("a run failed", exc_info=error)
