"""Keeps both tables small, on a thread of the job in parallel to the batches.

``route_state`` is rewritten whenever a batch outputs fold states. Then small files of ``route_changes`` are compacted,
which followers ignore because the rows do not change. Its log gets a checkpoint every 100 versions. Once an hour, old
log entries, files that belong to no version, and rows after their retention are removed. Rows are removed only if
``route_state`` covers them and the history has them.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from namesrv_stream.errors import NamesrvStreamError, StoreUnreachable, TableSchemaMismatch, TablesTakenOver
from namesrv_stream.settings import Settings
from namesrv_stream.tables.compaction import FILES_TO_JOIN, JOINED_BYTES, clean_up, join_small_files
from namesrv_stream.tables.delta.table_writer import TableWriter
from namesrv_stream.tables.route_writers import StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow

_LOG = logging.getLogger(__name__)

_CHECKPOINT_VERSIONS: Final = 100  # delta.checkpointInterval
_CLEAN_UP_INTERVAL_S: Final = 3_600.0
_FIRST_CLEAN_UP_S: Final = 300.0  # so that a job that never runs for an hour cleans up, too
_ROUND_S: Final = 10.0  # about a hundred commits of a busy job


class Compactor:
    """The thread.

    Args:
        settings: The settings.
        changes: The writer of ``route_changes``.
        state: The writer of ``route_state``.
        on_refused: Called if the tables cannot be written any more. The job must then end; its next start repairs them.
    """

    def __init__(
        self,
        settings: Settings,
        changes: TableWriter,
        state: StateWriter,
        on_refused: Callable[[NamesrvStreamError], None],
    ) -> None:
        self._settings = settings
        self._table = changes
        self._state = state
        self._on_refused = on_refused
        self._submitted = threading.Condition()
        self._new_states: dict[int, FoldStateRow] = {}
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._checkpointed = -1
        self._cleaned_s = time.monotonic() + _FIRST_CLEAN_UP_S - _CLEAN_UP_INTERVAL_S

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, states: Mapping[int, FoldStateRow]) -> None:
        """Schedule a rewrite of ``route_state`` that covers these states; does not block."""
        with self._submitted:
            self._new_states |= states
            self._submitted.notify()

    def _run(self) -> None:
        while True:
            with self._submitted:
                self._submitted.wait_for(lambda: self._new_states, _ROUND_S)
                states, self._new_states = self._new_states, {}
            if states:
                self._attempt("route_state", partial(self._state.cover, states))
            self._attempt("small files", partial(join_small_files, self._table, FILES_TO_JOIN, JOINED_BYTES))
            self._attempt("checkpoint", self._checkpoint)
            if time.monotonic() - self._cleaned_s >= _CLEAN_UP_INTERVAL_S:
                self._cleaned_s = time.monotonic()
                self._attempt("clean-up", partial(clean_up, self._settings, self._table, self._state.table))

    def _attempt(self, task: str, work: Callable[[], None]) -> None:
        """Run one task. A failure is logged: the job can continue, and the next round tries again."""
        began_s = time.monotonic()
        try:
            with self._table.storage.reaching():
                work()
        except StoreUnreachable as error:
            _LOG.warning("compaction failed task=%s reason=%s", task, error)
        except (TableSchemaMismatch, TablesTakenOver) as error:
            self._on_refused(error)
        except Exception:
            _LOG.exception("compaction failed task=%s", task)
        else:
            _LOG.debug("compaction done task=%s took_ms=%d", task, (time.monotonic() - began_s) * 1000)

    def _checkpoint(self) -> None:
        version = self._table.version
        if version - self._checkpointed >= _CHECKPOINT_VERSIONS:
            self._table.checkpoint()
            self._checkpointed = version
