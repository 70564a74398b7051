"""Follows ``route_changes`` by its commits: one small file each.

Opening the table anew for each commit would cost tens of milliseconds; the commits say all that is needed. One rule
tells whether they do: each commit names the progress before it. Where that is not the follower's own, the table was
restored, replaced or recreated, and everything is loaded again; likewise where the follower's own version is gone, or a
file cannot be read. The fold is a pure function of the log, so tables with the same progress hold the same rows.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from namesrv_stream.errors import StoreUnreachable
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold.folded_log import Progress
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.delta.commit import LOG, Commit, checkpointed_version, commit_name, read_commit
from namesrv_stream.tables.delta.data_file import read_rows
from namesrv_stream.tables.delta.table_version import UNREADABLE
from namesrv_stream.tables.job_figures import JobFigures, decode_job_figures
from namesrv_stream.tables.loader import Snapshot, load_snapshot
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES
from namesrv_stream.tables.schema.rows import decode_changes
from namesrv_stream.tables.storage import CommitWatch, Storage

_LOG = logging.getLogger(__name__)

_RETRY_S: Final = 1.0  # between attempts to load tables that cannot be read
_DAMAGED_RETRY_S: Final = 5.0  # each attempt reads all of an older version

OnReload = Callable[[Snapshot], None]
OnCommit = Callable[[list[RouteChange], Mapping[int, int]], None]


class SnapshotFollower:
    """Reports what the tables hold, then each change, from a daemon thread of its own.

    Args:
        tables: Where the Delta tables are; need not exist yet.
        poll_interval_ms: Between two looks at the log where nobody reports commits.
        on_reload: Called with everything, the callee's to keep: first, unless ``known`` is given, and again whenever
            following is impossible.
        on_commit: Called with the changes of one commit (often none) and partition → next offset that it reaches.
        known: What the caller has loaded itself.

    Attributes:
        version: The version that was reported last; -1 where there is no table.
        table_id: Delta's id of the table.
        progress: How far that version covers the log.
        topic_id: Kafka's id of the topic from which the tables were made.
        job: What the job said of itself with the newest of its commits.
    """

    def __init__(
        self,
        tables: Storage,
        poll_interval_ms: int,
        on_reload: OnReload,
        on_commit: OnCommit,
        *,
        known: Snapshot | None = None,
    ) -> None:
        self._tables = tables
        self._table = tables / ROUTE_CHANGES
        self._poll_s = poll_interval_ms / 1000
        self._on_reload = on_reload
        self._on_commit = on_commit
        self._is_known = known is not None
        self._stop = threading.Event()
        self._watch: CommitWatch | None = None
        self._thread = threading.Thread(target=self._run, name="snapshot-follower", daemon=True)
        # Written by the thread, read by anyone.
        self.job: JobFigures | None = None
        self._outage = ""
        self._know(known or Snapshot(RouteTable(), {}, -1))

    @property
    def failure(self) -> str:
        """Why nothing can be read, or only an older version; "" if all is well."""
        return self._outage or self._damage

    def start(self) -> None:
        """Begin; both callbacks are called from the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it, unless called from it."""
        self._stop.set()
        if self._watch is not None:
            self._watch.wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _know(self, snapshot: Snapshot) -> None:
        self.version, self.progress = snapshot.version, dict(snapshot.progress)
        # Where route_state is ahead of route_changes, behind a repair, the first commits say what is known already.
        self._covered = dict(snapshot.next_offsets)
        self.table_id, self.topic_id = snapshot.table_id, snapshot.topic_id
        self._outage, self._damage = "", snapshot.damage

    def _run(self) -> None:
        if self._is_known:
            self._follow()
        while not self._stop.is_set():
            try:
                snapshot = load_snapshot(self._tables)
                if snapshot.version < 0 <= self.version:
                    raise FileNotFoundError(f"there is no table {self._table} any more")
            except Exception as error:  # whatever is wrong with the tables, what is in memory is still served
                self._failed(error)
                continue
            if snapshot.damage:
                if (snapshot.version, snapshot.damage) == (self.version, self._damage):
                    self._stop.wait(_DAMAGED_RETRY_S)  # the job has not repaired it yet
                    continue
                _LOG.error("tables damaged, serving version=%d: %s", snapshot.version, snapshot.damage)
            self._know(snapshot)
            self._on_reload(snapshot)
            self._follow()

    def _failed(self, error: Exception) -> None:
        is_known = isinstance(error, (StoreUnreachable, *UNREADABLE))
        failure = str(error) if is_known else f"{type(error).__name__}: {error}"
        if failure != self._outage:
            _LOG.error("the tables cannot be read: %s", failure)
        self._outage = failure
        self._stop.wait(_RETRY_S)

    def _follow(self) -> None:
        """Report commits until one cannot be; none while an object store does not answer."""
        with (self._table / LOG).watch(self._poll_s) as self._watch:
            looked_s = time.monotonic()
            while not self._stop.is_set():
                self._watch.begin()
                try:
                    commit = read_commit(self._table, self.version + 1)
                    if commit is None:
                        if time.monotonic() - looked_s > self._table.look_interval_s:
                            looked_s = time.monotonic()
                            if self._has_lost_the_log():
                                _LOG.warning("version %d of %s is gone: loading again", self.version, self._table)
                                return
                        self._outage = ""
                        self._watch.wait()
                        continue
                    if not self._continues(commit):
                        return
                    files = commit.added if commit.changes_rows else []
                    changes = [row for file in files for row in decode_changes(read_rows(self._table, file.path))]
                except StoreUnreachable as error:
                    self._failed(error)
                    continue
                except Exception as error:
                    _LOG.warning("version %d cannot be read (%r): loading again", self.version + 1, error)
                    self._stop.wait(self._poll_s)
                    return
                self._report(commit, changes)
                looked_s = time.monotonic()

    def _has_lost_the_log(self) -> bool:
        """Whether the log goes on without this follower: its own version is gone, or the next one was cleaned up."""
        if self.version < 0:
            return checkpointed_version(self._table) >= 0
        if not self._table.exists(commit_name(self.version)):
            return True
        has_next = self._table.exists(commit_name(self.version + 1))
        return not has_next and checkpointed_version(self._table) > self.version

    def _continues(self, commit: Commit) -> bool:
        """Whether a commit says what became of the very state that is known."""
        identity = commit.identity
        if identity is None:  # of somebody else, who may rearrange files
            return not commit.changes_rows and not commit.changes_table
        if self.version < 0 or commit.changes_table or (commit.removed and commit.changes_rows):
            return False
        return identity.table_id == self.table_id and _is_same(identity.before, self.progress)

    def _report(self, commit: Commit, changes: list[RouteChange]) -> None:
        progress = commit.identity.progress if commit.identity is not None else self.progress
        advanced = {p: place.next_offset for p, place in progress.items() if place != self.progress.get(p)}
        reached = {p: offset for p, offset in advanced.items() if offset > self._covered.get(p, 0)}
        if reached != advanced:
            changes = [change for change in changes if change.offset >= self._covered.get(change.partition, 0)]
        self._outage = self._damage = ""
        self.version += 1
        self.progress = dict(progress)
        self.job = decode_job_figures(commit.info) or self.job
        self._covered |= reached
        self._on_commit(changes, reached)


def _is_same(before: Progress, known: Progress) -> bool:
    """Whether both are the same place of the same log; a fingerprint that is not known is not compared."""
    return before.keys() == known.keys() and all(
        place.next_offset == known[p].next_offset
        and (not place.fingerprint or not known[p].fingerprint or place.fingerprint == known[p].fingerprint)
        for p, place in before.items()
    )
