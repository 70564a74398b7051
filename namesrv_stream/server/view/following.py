"""Passes commits from the thread that follows the tables to the event loop: to the view first, then to its readers."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.reducer import slices_of
from namesrv_stream.server.changes.feed import ChangeFeed
from namesrv_stream.server.changes.position import generation_of
from namesrv_stream.server.core import Core
from namesrv_stream.server.metrics.tables import TableStatus
from namesrv_stream.server.view.recent_events import RecentEvents
from namesrv_stream.settings import Settings
from namesrv_stream.tables.job_commits import LOGGED_KINDS, JobFigures, log_commit, log_held
from namesrv_stream.tables.snapshot import Snapshot
from namesrv_stream.tables.snapshot_follower import SnapshotFollower
from namesrv_stream.tables.storage import tables_of

#: Time for the follower to finish a read; as a daemon thread, it does not keep the process alive.
_STOP_S: Final = 1.0
#: Maximum number of commits that are read but not applied yet.
_READ_AHEAD: Final = 4
#: Rows that are applied in one turn of the event loop; they take a few milliseconds.
_ROWS_A_TURN: Final = 1_000


class _Commit(NamedTuple):
    slices: list[tuple[Sequence[RouteChange], Mapping[int, int]]]
    version: int
    job: JobFigures | None


class Following:
    """Follows the tables for a server, and passes the commits to the parts that need them.

    Attributes:
        feed: The newest changes.
        status: The served version of the tables, and the job's figures.
        recent_events: The recent events.
    """

    def __init__(
        self,
        settings: Settings,
        snapshot: Snapshot,
        core: Core,
        clock: Clock,
    ) -> None:
        generation, http = generation_of(snapshot.table_id), settings.http
        self.feed = ChangeFeed(generation, snapshot.next_offsets, http.changes_kept_rows, http.changes_kept_bytes)
        self.status = TableStatus(snapshot, core.counters, clock)
        self.recent_events = RecentEvents(tables_of(settings), clock)
        self._view = core.view
        self._last_heartbeats = core.gateway.last_heartbeats
        self._read: asyncio.Queue[_Commit | Snapshot] = asyncio.Queue()
        self._room = threading.Semaphore(_READ_AHEAD)  # free places in that queue
        self._loop: asyncio.AbstractEventLoop | None = None
        self._follower = SnapshotFollower(
            tables_of(settings),
            settings.poll_interval_ms,
            self._on_reload,
            self._on_commit,
            known=snapshot,
        )
        self.status.failure = lambda: self._follower.failure

    def folded_log(self) -> FoldedLog:
        """Return the log as far as the tables cover it now. Any thread may call it."""
        return FoldedLog(self._follower.topic_id, self._follower.progress)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to follow the tables. Commits are applied on ``loop``."""
        self._loop = loop
        self._follower.start()

    def stop(self) -> None:
        """Stop the thread. A thread that hangs in a read of the tables is left behind, so that the server can stop."""
        self._room.release()  # the thread may be waiting for a free place
        stopping = threading.Thread(target=self._follower.stop, name="stop-follower", daemon=True)
        stopping.start()
        stopping.join(_STOP_S)

    async def run(self) -> None:
        """Apply what the follower reads, one slice of a commit in every turn of the event loop."""
        while True:
            taken = await self._read.get()
            if isinstance(taken, Snapshot):
                self._reloaded(taken)
            else:
                for changes, next_offsets in taken.slices:
                    self._committed(changes, next_offsets)
                    await asyncio.sleep(0)
                self.status.committed(taken.version, taken.job)
            self._room.release()

    # ---- on the follower's thread ----

    def _on_commit(self, changes: list[RouteChange], next_offsets: Mapping[int, int]) -> None:
        slices = list(slices_of(changes, next_offsets, _ROWS_A_TURN))
        self._hand_over(_Commit(slices, self._follower.version, self._follower.job))

    def _on_reload(self, snapshot: Snapshot) -> None:
        self._hand_over(snapshot)

    def _hand_over(self, read: "_Commit | Snapshot") -> None:
        if self._loop is not None:
            self._room.acquire()
            self._loop.call_soon_threadsafe(self._read.put_nowait, read)

    # ---- on the event loop ----

    def _committed(self, changes: Sequence[RouteChange], next_offsets: Mapping[int, int]) -> None:
        self._view.committed(changes, next_offsets)
        self.feed.committed(changes, next_offsets)
        log_commit([change for change in changes if change.kind in LOGGED_KINDS])
        self._last_heartbeats.committed(changes, lambda key: self._view.live(key) is not None)
        self.recent_events.committed(changes)
        self.status.count(changes)

    def _reloaded(self, snapshot: Snapshot) -> None:
        self._view.reloaded(snapshot.table, snapshot.next_offsets)
        log_held(snapshot.table.held)
        self.recent_events.reloaded()
        self.status.reloaded(snapshot)
        self.feed.reloaded(generation_of(snapshot.table_id), snapshot.next_offsets)
