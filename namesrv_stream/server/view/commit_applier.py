"""Applies the job's commits on the event loop: to the view first, then to all components that need them.

``SnapshotFollower`` reads the commits on a thread of its own.

``TableStatus`` has the served version of the tables, its age, and the job's own figures. ``HistoryAge`` has the age of
the history tables, which a server reads only for metrics.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.errors import KafkaUnreachable, NamesrvStreamError
from namesrv_stream.kafka.inspection import log_shows_commits
from namesrv_stream.metrics import Counters, Histogram, Samples
from namesrv_stream.route.changes import ROUTE_KINDS, RouteChange
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.reducer import CommitRows
from namesrv_stream.server.core import Core
from namesrv_stream.server.turns import Queue
from namesrv_stream.server.view.feed import ChangeFeed, bytes_of
from namesrv_stream.server.view.recent_events import RecentEvents
from namesrv_stream.server.view.rows import generation_of
from namesrv_stream.settings import Settings
from namesrv_stream.tables.history_files import read_mark
from namesrv_stream.tables.job_commits import BATCH_BOUNDS_MS, JobFigures, log_commit, log_held
from namesrv_stream.tables.layout import HEARTBEAT_MINUTES
from namesrv_stream.tables.snapshot import Snapshot
from namesrv_stream.tables.snapshot_follower import SnapshotFollower
from namesrv_stream.tables.storage import tables_of

logger = logging.getLogger(__name__)


class TableStatus:
    """Status of the tables. It is notified of every commit and reload, on the event loop.

    Attributes:
        version: The served version of ``route_changes``; -1 if there is no table.
        failure: Returns why the tables cannot be read; "" if they can.
        job: The job's latest figures; None if it has committed none since this server's start.
        refused_at_ms: When this server last noticed that the job refused a record, epoch milliseconds.
        missed_in: Where (folder or address) this server finds no tables, although the log shows commits; otherwise "".
        has_commit: Whether this server has applied a commit of the job since its start.
        resumed_ms: When the tables last advanced again after they were stale, epoch milliseconds; 0 if they never were.
    """

    def __init__(self, snapshot: Snapshot, counters: Counters, clock: Clock, stale_after_ms: int) -> None:
        self.version = snapshot.version
        self.failure: Callable[[], str] = lambda: ""
        self.job: JobFigures | None = None
        self.refused_at_ms: int | None = None
        self.missed_in = ""
        self.has_commit = False
        self.resumed_ms = 0
        self._stale_after_ms = stale_after_ms
        self._moved_ms = clock.monotonic_ms()
        self._at_ms = min(snapshot.at_ms.values(), default=0)
        self._behind_ms = 0
        self._counted_to_ms = clock.now_ms()  # `_behind_ms` contains the time up to here
        self._counters = counters
        self._clock = clock

    def count(self, changes: Sequence[RouteChange]) -> None:
        """Count the rows of a commit, and add up the time during which this server lacked their route changes.

        A commit can come in several slices.
        """
        for change in changes:
            self._counters.count("rocketmq_namesrv_changes_total", change.kind, change.cause, str(change.gone).lower())
        now_ms = self._clock.now_ms()
        first_ms = min((change.at_ms for change in changes if change.kind in ROUTE_KINDS), default=now_ms)
        since_ms = max(first_ms, self._counted_to_ms)
        if since_ms < now_ms:
            self._behind_ms += now_ms - since_ms
            self._counted_to_ms = now_ms

    def committed(self, version: int, job: JobFigures | None) -> None:
        """Record a commit that was applied; its rows are already counted."""
        self._counters.count("rocketmq_namesrv_snapshot_commits_total")
        self._move(version)
        self.has_commit = True
        if job is not None:
            known = self.job.dead_letters if self.job and self.job.started_ms == job.started_ms else 0
            if job.dead_letters > known:
                self.refused_at_ms = self._clock.now_ms()
            self.job = job
            self._at_ms = max(self._at_ms, job.at_ms)

    def reloaded(self, snapshot: Snapshot) -> None:
        self._counters.count("rocketmq_namesrv_snapshot_reloads_total")
        self._move(snapshot.version)
        self._at_ms = max(self._at_ms, min(snapshot.at_ms.values(), default=0))

    def _move(self, version: int) -> None:
        if self.is_stale:
            self.resumed_ms = self._clock.now_ms()
        self.version, self.missed_in = version, ""
        self._moved_ms = self._clock.monotonic_ms()

    @property
    def age_ms(self) -> int:
        """Time since the last applied commit or, before the first one, since this server's start.

        The job commits about once a second.
        """
        return self._clock.monotonic_ms() - self._moved_ms

    @property
    def is_stale(self) -> bool:
        return self.age_ms > self._stale_after_ms

    @property
    def lag_ms(self) -> int | None:
        """Age of the newest folded record, in the partition that is furthest behind; None if nothing is folded.

        Kafka's clock and this machine's clock can differ. If Kafka's clock is ahead, the lag is 0.
        """
        return max(0, self._clock.now_ms() - self._at_ms) if self._at_ms else None

    def sample(self, samples: Samples) -> None:
        samples.add("rocketmq_namesrv_snapshot_age_seconds", self.age_ms / 1000)
        samples.add("rocketmq_namesrv_snapshot_version", self.version)
        samples.add("rocketmq_namesrv_tables_readable", not self.failure())
        samples.add("rocketmq_namesrv_routes_behind_seconds_total", self._behind_ms / 1000)
        if (lag_ms := self.lag_ms) is not None:
            samples.add("rocketmq_namesrv_event_lag_seconds", lag_ms / 1000)
        if self.job is not None:
            batches = Histogram(BATCH_BOUNDS_MS, self.job.batch_counts, self.job.batch_ms)
            samples.add("rocketmq_namesrv_job_start_timestamp_seconds", self.job.started_ms / 1000)
            samples.add("rocketmq_namesrv_job_started_seconds", self.job.started_ms / 1000)
            samples.add_histogram("rocketmq_namesrv_job_batch_seconds", batches, 1e-3)
            samples.add("rocketmq_namesrv_job_records_total", self.job.records)
            samples.add("rocketmq_namesrv_job_dead_letters_total", self.job.dead_letters)


#: Interval between searches for tables that this server has missed.
_SEARCH_EVERY_S: Final = 5.0
#: Minimum interval between reads of the history's log, for metrics.
_HISTORY_READ_MS: Final = 30_000


async def search_missed_tables(settings: Settings, tables: TableStatus) -> None:
    """If this server has found no tables, check once whether the log shows commits of the job.

    If it does, the server looks for the tables in the wrong place: set ``missed_in`` and log an error.
    """
    if tables.version >= 0 or tables.missed_in or tables.failure():
        return
    try:
        has_commits = await asyncio.to_thread(log_shows_commits, settings)
    except KafkaUnreachable:
        return
    if has_commits and tables.version < 0:
        tables.missed_in = str(tables_of(settings))
        text = "the job has committed, but there are no tables here: check data.tables tables=%s"
        logger.error(text, tables.missed_in)


async def watch_missed_tables(settings: Settings, tables: TableStatus) -> None:
    """Repeat the search until the tables are found, because the job may start after this server."""
    while tables.version < 0:
        await asyncio.sleep(_SEARCH_EVERY_S)
        await search_missed_tables(settings, tables)


class HistoryAge:
    """The age of the data in the history tables. Only one event loop may use it.

    Servers do not need these tables, so they are read only while metrics are scraped: one commit at a time, on a daemon
    thread.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._table = tables_of(settings) / HEARTBEAT_MINUTES
        self._is_wanted = settings.has_history
        self._clock = clock
        self._to_ms = clock.now_ms()  # without data, the age counts from the start of this server
        self._read_ms: int | None = None
        self._is_reading = False

    def sample(self, samples: Samples) -> None:
        if not self._is_wanted:
            return
        now_ms = self._clock.monotonic_ms()
        if not self._is_reading and (self._read_ms is None or now_ms - self._read_ms >= _HISTORY_READ_MS):
            self._is_reading, self._read_ms = True, now_ms
            threading.Thread(target=self._read, name="history-age", daemon=True).start()
        samples.add("rocketmq_namesrv_history_age_seconds", max(0, self._clock.now_ms() - self._to_ms) / 1000)

    def _read(self) -> None:
        try:
            mark = read_mark(self._table)
            self._to_ms = (mark.newest_ms if mark else 0) or self._to_ms
        except (NamesrvStreamError, OSError) as error:
            logger.warning("the history's age cannot be read reason=%s", error)
        finally:
            self._is_reading = False


#: Time for the follower to finish a read; as a daemon thread, it does not keep the process alive.
_STOP_S: Final = 1.0
#: Maximum number of commits, or slices of them, that are read but not applied yet.
_READ_AHEAD: Final = 4
#: Rows that are processed in one step.
_ROWS_AT_ONCE: Final = 500


class _Commit(NamedTuple):
    """A commit, or a slice of it."""

    changes: Sequence[RouteChange]
    next_offsets: Mapping[int, int]
    rows: CommitRows
    row_bytes: int
    version: int
    job: JobFigures | None


class CommitApplier:
    """Follows the tables for a server, and applies the commits to the view and to the components that need them."""

    def __init__(self, settings: Settings, snapshot: Snapshot, core: Core, clock: Clock) -> None:
        generation, http = generation_of(snapshot.table_id), settings.http
        self.feed = ChangeFeed(generation, snapshot.next_offsets, http.changes_kept_rows, http.changes_kept_bytes)
        self.status = TableStatus(snapshot, core.services.counters, clock, settings.snapshot.stale_after_ms)
        self.recent_events = RecentEvents(tables_of(settings), clock)
        self._view = core.view
        self._turns = core.services.turns
        self._last_heartbeats = core.gateway.last_heartbeats
        self._read: asyncio.Queue[_Commit | Snapshot] = asyncio.Queue()
        self._room = threading.Semaphore(_READ_AHEAD)  # free places in that queue
        self._loop: asyncio.AbstractEventLoop | None = None
        tables, interval_ms = tables_of(settings), settings.poll_interval_ms
        self._follower = SnapshotFollower(tables, interval_ms, self._on_reload, self._on_commit, known=snapshot)
        self.status.failure = lambda: self._follower.failure

    def folded_log(self) -> FoldedLog:
        """Return the log as far as the served routes cover it. Any thread may call it."""
        return FoldedLog(self._follower.topic_id, self._follower.progress)

    def log_refused(self) -> None:
        """Serve the tables even if they were set back: Kafka has lost what the served routes cover. From any thread."""
        self._follower.forget()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to follow the tables. Commits are applied on ``loop``."""
        self._loop = loop
        self._follower.start()

    def stop(self) -> None:
        """Stop the thread. A thread that hangs in a read of the tables is left behind, so that the server can stop."""
        self._loop = None
        self._room.release()  # the thread may be waiting for a free place
        stopping = threading.Thread(target=self._follower.stop, name="stop-follower", daemon=True)
        stopping.start()
        stopping.join(_STOP_S)

    async def run(self) -> None:
        """Apply the commits that the follower reads, in turns."""
        while True:
            taken = await self._read.get()
            if isinstance(taken, Snapshot):
                self._view.reloaded(taken.table, taken.next_offsets)
                self.recent_events.reloaded()
                self.status.reloaded(taken)
                self.feed.reloaded(generation_of(taken.table_id), taken.next_offsets)
            else:
                applied = asyncio.get_running_loop().create_future()
                self._turns.run(_until_done(self._committed(taken), applied), Queue.VITAL)
                await applied
                if taken.version != self.status.version:  # with the last slice
                    self.status.committed(taken.version, taken.job)
            self._room.release()
            await asyncio.sleep(0)

    # ---- on the follower's thread ----

    def _on_commit(self, changes: list[RouteChange], next_offsets: Mapping[int, int]) -> None:
        log_commit(changes)
        follower, rows = self._follower, CommitRows(changes)
        self._hand_over(_Commit(changes, next_offsets, rows, bytes_of(changes), follower.version, follower.job))

    def _on_reload(self, snapshot: Snapshot) -> None:
        log_held(snapshot.table.held)
        self._hand_over(snapshot)

    def _hand_over(self, read: "_Commit | Snapshot") -> None:
        if self._loop is not None:
            self._room.acquire()
        if (loop := self._loop) is not None:  # not stopped meanwhile
            loop.call_soon_threadsafe(self._read.put_nowait, read)

    # ---- on the event loop ----

    def _committed(self, part: _Commit) -> Iterator[None]:
        """Apply a commit in steps."""
        yield from self._view.committing(part.rows, part.next_offsets)
        yield from self.feed.committed(part.changes, part.next_offsets, part.row_bytes)
        for at in range(0, len(part.changes), _ROWS_AT_ONCE):
            changes = part.changes[at : at + _ROWS_AT_ONCE]
            self._last_heartbeats.committed(changes, lambda key: self._view.live(key) is not None)
            self.recent_events.committed(changes)
            self.status.count(changes)
            yield


def _until_done(steps: Iterator[None], done: asyncio.Future[None]) -> Iterator[None]:
    """Do the steps, and set the result: None, or the error that ended them."""
    try:
        yield from steps
    except Exception as error:
        done.set_exception(error)
    else:
        if not done.cancelled():
            done.set_result(None)
