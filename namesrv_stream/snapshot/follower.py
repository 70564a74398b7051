"""Follows ``route_changes`` by its commit files: a look for the next whenever one has come, one small file a commit.

Opening the table anew for each commit would cost tens of milliseconds with many files; the log says all that is
needed. Where it does not (a version was cleaned up, a file is gone, the table was rewritten), everything is loaded
again.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import orjson

from namesrv_stream.errors import StoreUnreachable
from namesrv_stream.location import Location
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.table import RouteTable
from namesrv_stream.snapshot.loader import Snapshot, load_snapshot, log_identity
from namesrv_stream.snapshot.log_files import commit_file, has_left, log_dir, read_commit
from namesrv_stream.snapshot.log_watch import LogWatch
from namesrv_stream.snapshot.table_files import read_parquet
from namesrv_stream.snapshot.table_reader import UNREADABLE
from namesrv_stream.tables import (
    ROUTE_CHANGES,
    TABLE_ID_KEY,
    JobFigures,
    decode_changes,
    decode_job_figures,
    partition_of_app_id,
    table_path,
)

_LOG = logging.getLogger(__name__)

_RETRY_S: Final = 1.0  # between attempts to load tables that cannot be read
# Without a commit for so long look whether the log went on without us; in an object store that costs requests.
_LIST_INTERVAL_S: Final = 1.0
_LIST_INTERVAL_STORE_LOOKS: Final = 40

OnReload = Callable[[RouteTable, Mapping[int, int]], None]
OnCommit = Callable[[list[RouteChange], Mapping[int, int]], None]


@dataclass(slots=True)
class _Commit:
    """What one commit file says that matters here."""

    paths: list[str] = field(default_factory=list)
    next_offsets: dict[int, int] = field(default_factory=dict)
    needs_reload: bool = False
    table_id: str = ""
    job: JobFigures | None = None


class SnapshotFollower:
    """Tells what the tables hold, then each change, from a daemon thread of its own.

    Args:
        tables_dir: Where the Delta tables are; need not exist yet.
        poll_interval_ms: Between two looks at the log where nobody tells of a commit.
        on_reload: Called with the whole table, the callee's to keep, and partition → next offset: first, unless
            ``known`` is given, and again whenever following is impossible.
        on_commit: Called with the changes of one commit (often none) and partition → next offset it reaches.
        known: What the caller has loaded itself.
    """

    def __init__(
        self,
        tables_dir: Location,
        poll_interval_ms: int,
        on_reload: OnReload,
        on_commit: OnCommit,
        *,
        known: Snapshot | None = None,
    ) -> None:
        self._tables_dir = tables_dir
        self._folder = table_path(tables_dir, ROUTE_CHANGES)
        self._poll_s = poll_interval_ms / 1000
        looks = 0 if isinstance(tables_dir, Path) else _LIST_INTERVAL_STORE_LOOKS
        self._list_interval_s = max(_LIST_INTERVAL_S, looks * self._poll_s)
        self._on_reload = on_reload
        self._on_commit = on_commit
        self._stop = threading.Event()
        self._watch: LogWatch | None = None
        self._thread = threading.Thread(target=self._run, name="snapshot-follower", daemon=True)
        # Written by the thread, read by anyone: the version told last (-1: no table), why nothing can be told.
        self.version = known.version if known else -1
        self._is_known = known is not None
        self._identity = known.identity if known else None
        self.failure = ""
        # Of the table that was opened last: Delta's id, and what its rows tell of time.
        self.table_id = known.table_id if known else ""
        self.at_ms: Mapping[int, int] = known.at_ms if known else {}
        # What the job said of itself with the newest of its commits.
        self.job: JobFigures | None = None

    def start(self) -> None:
        """Begin; the first ``on_reload`` comes from the thread, soon."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it, unless called from it."""
        self._stop.set()
        if self._watch is not None:
            self._watch.wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        if self._is_known:
            self._follow()
        while not self._stop.is_set():
            try:
                snapshot = load_snapshot(self._tables_dir)
                if snapshot.version < 0 <= self.version:
                    raise FileNotFoundError(f"there is no table {self._folder} any more")
            except Exception as error:  # whatever is wrong with the tables, what is in memory is still served
                self._failed(error)
                continue
            self.failure = ""
            self.version, self._identity = snapshot.version, snapshot.identity
            self.table_id, self.at_ms = snapshot.table_id, snapshot.at_ms
            self._on_reload(snapshot.table, snapshot.next_offsets)
            self._follow()

    def _failed(self, error: Exception) -> None:
        failure = (
            str(error) if isinstance(error, (StoreUnreachable, *UNREADABLE)) else f"{type(error).__name__}: {error}"
        )
        if failure != self.failure:
            _LOG.error("the tables cannot be read: %s", failure)
        self.failure = failure
        self._stop.wait(_RETRY_S)

    def _follow(self) -> None:
        """Tell commits until one cannot be told; none while an object store does not answer."""
        with LogWatch(log_dir(self._folder), self._poll_s) as self._watch:
            self._follow_by(self._watch)

    def _follow_by(self, watch: LogWatch) -> None:
        looked_s = time.monotonic()
        file = commit_file(self._folder, self.version + 1)
        while not self._stop.is_set():
            watch.begin()
            try:
                content = read_commit(file)
                if content is None and time.monotonic() - looked_s > self._list_interval_s:
                    looked_s = time.monotonic()
                    if self._is_replaced() or has_left(self._folder, self.version):
                        _LOG.warning(
                            "version %d is gone from %s: loading again", self.version + 1, log_dir(self._folder)
                        )
                        return
                commit = None if content is None else _read_commit(content)
                if commit is not None and (commit.needs_reload or self._is_replaced(commit)):
                    return
                changes = self._read_changes(commit.paths) if commit is not None else []
            except StoreUnreachable as error:
                self._failed(error)
                continue
            except Exception as error:
                _LOG.warning("version %d cannot be read (%r): loading again", self.version + 1, error)
                self._stop.wait(self._poll_s)
                return
            self.failure = ""
            if commit is None:
                watch.wait()
                continue
            self.version += 1
            self.job = commit.job or self.job
            self._on_commit(changes, commit.next_offsets)
            looked_s = time.monotonic()
            file = commit_file(self._folder, self.version + 1)

    def _is_replaced(self, commit: _Commit | None = None) -> bool:
        """Whether another table has been put in its place, whose versions say nothing about ours."""
        if self.version < 0:
            return False
        says_so = commit is not None and commit.table_id not in ("", self.table_id)
        return says_so or log_identity(self._folder) != self._identity

    def _read_changes(self, paths: list[str]) -> list[RouteChange]:
        changes: list[RouteChange] = []
        for path in paths:
            changes += decode_changes(read_parquet(self._folder / unquote(path)))
        return changes


def _read_commit(content: bytes) -> _Commit:
    commit = _Commit()
    for line in content.splitlines():
        action = orjson.loads(line)
        if "add" in action:
            if action["add"]["dataChange"]:
                commit.paths.append(action["add"]["path"])
        elif "txn" in action:
            partition = partition_of_app_id(action["txn"]["appId"])
            if partition is not None:
                commit.next_offsets[partition] = action["txn"]["version"]
        elif "commitInfo" in action:
            commit.job = decode_job_figures(action["commitInfo"])
            commit.table_id = action["commitInfo"].get(TABLE_ID_KEY, "")
        elif "remove" in action:
            commit.needs_reload |= action["remove"]["dataChange"]
        elif "metaData" in action or "protocol" in action:
            commit.needs_reload = True
    return commit
