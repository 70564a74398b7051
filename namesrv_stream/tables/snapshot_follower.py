"""Follows ``route_changes`` by its commits, each of which is one small file.

Opening the table for each commit would cost tens of milliseconds, and the commits contain everything needed. Each
commit names the progress before it. If that differs from the follower's progress, the table was restored, replaced or
recreated, and the follower loads everything again. It does the same if its own version is missing or a file cannot be
read. The fold is a pure function of the log, so tables with the same progress contain the same rows.

A restore or a repair sets the tables back. If they are of the same topic, what the follower has reported is still true,
so it reports nothing until the job has folded the log up to that time again.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final, NamedTuple

from namesrv_stream.errors import StoreUnreachable
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold.folded_log import Progress
from namesrv_stream.route.reducer import slices_of
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.change_rows import OF_FEW_VALUES, in_log_order, iter_changes
from namesrv_stream.tables.delta.commit import LOG, Commit, checkpointed_version, commit_name, read_commit
from namesrv_stream.tables.delta.data_file import read_rows
from namesrv_stream.tables.delta.open_table import UNREADABLE
from namesrv_stream.tables.job_commits import JobFigures, decode_job_figures
from namesrv_stream.tables.layout import ROUTE_CHANGES
from namesrv_stream.tables.snapshot import Snapshot, load_snapshot
from namesrv_stream.tables.storage import CommitWatch, Storage

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0  # between attempts to load tables that cannot be read
_DAMAGED_RETRY_S: Final = 5.0  # longer, because each attempt reads an older version completely

#: Rows that are decoded and reported at once. A commit may have more than half a million, which would take 600 MB.
_ROWS_AT_ONCE: Final = 1_000

OnReload = Callable[[Snapshot], None]
OnCommit = Callable[[list[RouteChange], Mapping[int, int]], None]


class _Reached(NamedTuple):
    """How far rows cover a partition of the log.

    Times come first: if Kafka has lost records, others take their offsets, with later times.

    Attributes:
        at_ms: Highest LogAppendTime of the rows, epoch milliseconds.
        next_offset: The first offset that they do not cover.
    """

    at_ms: int
    next_offset: int


_NOTHING: Final = _Reached(0, 0)


class SnapshotFollower:
    """Reports the content of the tables and then each change, from its own daemon thread.

    Args:
        tables: Storage of the Delta tables; it need not exist yet.
        poll_interval_ms: Interval of polling the log if there are no notifications of commits.
        on_reload: Called with a snapshot, which the callee owns: at first unless ``known`` is given, and again whenever
            following is impossible. It is never called with an older state of the same topic.
        on_commit: Called with the changes of one commit (often none), and with partition → next offset that it reaches;
            with neither for a commit of tables that were set back. A large commit comes in slices, each of which is a
            commit that the job could have made; ``version``, ``progress`` and ``job`` change with the last one.
        known: A snapshot that the caller has loaded.

    Attributes:
        version: The last version that was read; -1 if there is no table.
        table_id: Delta's id of the table.
        progress: How far the reported rows cover the log.
        topic_id: Kafka's id of the topic from which the tables were made.
        job: The job's figures in its newest commit.
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
        # The thread writes these attributes, and other threads read them.
        self.job: JobFigures | None = None
        self.table_id = self.topic_id = self._outage = ""
        self._reported: Mapping[int, _Reached] = {}
        self._start_from(known or Snapshot(RouteTable(), {}, -1))
        self._rows_are_reported()

    @property
    def failure(self) -> str:
        """Why the newest tables cannot be read, or what they lack; "" if there is no failure."""
        if self._is_behind and not self._outage and not self._damage:
            return f"the tables {self._tables} were set back, and the job has not folded the log again yet"
        return self._outage or self._damage

    @property
    def _is_behind(self) -> bool:
        """Whether the tables lack rows that were reported."""
        return any(self._reached.get(p, _NOTHING) < reached for p, reached in self._reported.items())

    def forget(self) -> None:
        """Report the tables even if they were set back, because Kafka has lost records of the reported rows."""
        self._reported = {}

    def start(self) -> None:
        """Start the thread, which calls both callbacks."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for its end unless called from it."""
        self._stop.set()
        if self._watch is not None:
            self._watch.wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _start_from(self, snapshot: Snapshot) -> None:
        if snapshot.topic_id != self.topic_id:
            self._reported = {}
        self.version, self._followed = snapshot.version, snapshot.progress
        # After a repair, route_state may be ahead of route_changes. The next commits then repeat known changes.
        offsets, times = snapshot.next_offsets, snapshot.at_ms
        self._reached: Mapping[int, _Reached] = {p: _Reached(times.get(p, 0), end) for p, end in offsets.items()}
        self.table_id, self.topic_id = snapshot.table_id, snapshot.topic_id
        self._outage, self._damage = "", snapshot.damage

    def _rows_are_reported(self) -> None:
        self.progress, self._reported = self._followed, self._reached

    def _run(self) -> None:
        if self._is_known:
            self._follow()
        while not self._stop.is_set():
            try:
                snapshot = load_snapshot(self._tables)
                if snapshot.version < 0 <= self.version:
                    raise FileNotFoundError(f"the table {self._table} does not exist any more")
            except Exception as error:  # on any failure, the server continues with the table in memory
                self._failed(error)
                continue
            if snapshot.damage and (snapshot.version, snapshot.damage) == (self.version, self._damage):
                self._stop.wait(_DAMAGED_RETRY_S)  # the job has not repaired it yet
                continue
            self._start_from(snapshot)
            if snapshot.damage:
                logger.error("tables damaged version=%d reason=%s", self.version, snapshot.damage)
            if self._is_behind:
                logger.warning("tables set back, keeping the routes in memory version=%d", self.version)
            else:
                self._rows_are_reported()
                self._on_reload(snapshot)
            self._follow()

    def _failed(self, error: Exception) -> None:
        is_known = isinstance(error, (StoreUnreachable, *UNREADABLE))
        failure = str(error) if is_known else f"{type(error).__name__}: {error}"
        if failure != self._outage:
            logger.error("reading the tables failed reason=%s", failure)
        self._outage = failure
        self._stop.wait(_RETRY_S)

    def _follow(self) -> None:
        """Report commits until the tables must be loaded again. Wait while an object store does not answer."""
        was_set_back = self._is_behind
        with (self._table / LOG).watch(self._poll_s) as self._watch:
            checked_s = time.monotonic()
            while not self._stop.is_set() and was_set_back == self._is_behind:
                self._watch.begin()
                try:
                    commit = read_commit(self._table, self.version + 1)
                    if commit is None:
                        if time.monotonic() - checked_s > self._table.check_interval_s:
                            checked_s = time.monotonic()
                            if self._has_lost_the_log():
                                logger.warning(
                                    "commit missing, reloading tables table=%s version=%d", self._table, self.version
                                )
                                return
                        self._outage = ""
                        self._watch.wait()
                        continue
                    if not self._continues(commit):
                        return
                    files = commit.added if commit.changes_rows else []
                    rows = (in_log_order(read_rows(self._table, file.path, OF_FEW_VALUES)) for file in files)
                    changes = chain.from_iterable(map(iter_changes, rows))
                    if was_set_back:
                        self._catch_up(commit, changes)
                    else:
                        self._report(commit, changes)
                except StoreUnreachable as error:
                    self._failed(error)
                    continue
                except Exception as error:
                    logger.warning("commit unreadable, reloading tables version=%d error=%r", self.version + 1, error)
                    self._stop.wait(self._poll_s)
                    return
                checked_s = time.monotonic()

    def _has_lost_the_log(self) -> bool:
        """Whether the follower's own commit is missing, or the next one was cleaned up."""
        if self.version < 0:
            return checkpointed_version(self._table) >= 0
        if not self._table.exists(commit_name(self.version)):
            return True
        has_next = self._table.exists(commit_name(self.version + 1))
        return not has_next and checkpointed_version(self._table) > self.version

    def _continues(self, commit: Commit) -> bool:
        """Whether a commit continues the state that the follower knows."""
        identity = commit.identity
        if identity is None:  # of another program, which may only rearrange files
            return not commit.changes_rows and not commit.changes_table
        if self.version < 0 or commit.changes_table or (commit.removed and commit.changes_rows):
            return False
        return identity.table_id == self.table_id and _is_same(identity.before, self._followed)

    def _report(self, commit: Commit, changes: Iterable[RouteChange]) -> None:
        before, known = self._followed, self._reached
        progress = before if commit.identity is None else commit.identity.progress
        advanced = {p: place.next_offset for p, place in progress.items() if place != before.get(p)}
        reached = {p: offset for p, offset in advanced.items() if offset > known.get(p, _NOTHING).next_offset}
        if reached != advanced:
            changes = (row for row in changes if row.offset >= known.get(row.partition, _NOTHING).next_offset)
        times: dict[int, int] = {}
        for rows, next_offsets in slices_of(changes, reached, _ROWS_AT_ONCE):
            times.update((row.partition, row.at_ms) for row in rows)
            if next_offsets is reached:  # the last ones
                self._advance(commit, times)
                self._rows_are_reported()
            self._on_commit(rows, next_offsets)

    def _catch_up(self, commit: Commit, changes: Iterable[RouteChange]) -> None:
        """Read a commit of tables that were set back.

        They have caught up, too, if the job has folded a later record in every partition: after a loss of records, the
        log need not have as many again.
        """
        job = self._advance(commit, {change.partition: change.at_ms for change in changes})
        if job is not None and job.at_ms > max((reached.at_ms for reached in self._reported.values()), default=0):
            self._reported = self._reached
        self._on_commit([], {})

    def _advance(self, commit: Commit, times: Mapping[int, int]) -> JobFigures | None:
        """Take over the progress of a commit, and its partitions' times. Return the job's figures in it, if any."""
        self._outage = self._damage = ""
        self.version += 1
        figures = decode_job_figures(commit.info)
        self.job = figures or self.job
        if commit.identity is not None:
            self._followed = commit.identity.progress
        reached = dict(self._reached)
        for partition, place in self._followed.items():
            known = reached.get(partition, _NOTHING)
            at_ms = max(times.get(partition, 0), known.at_ms)
            reached[partition] = _Reached(at_ms, max(place.next_offset, known.next_offset))
        self._reached = reached
        return figures


def _is_same(before: Progress, known: Progress) -> bool:
    """Whether both are the same place of the same log. Unknown fingerprints are not compared."""
    return before.keys() == known.keys() and all(
        place.next_offset == known[p].next_offset
        and (not place.fingerprint or not known[p].fingerprint or place.fingerprint == known[p].fingerprint)
        for p, place in before.items()
    )
