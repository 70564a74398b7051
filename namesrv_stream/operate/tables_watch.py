"""Watches the tables from a command: what they say now, and when they have come to an offset."""

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings
from namesrv_stream.tables.snapshot import Snapshot, load_snapshot
from namesrv_stream.tables.snapshot_follower import SnapshotFollower
from namesrv_stream.tables.storage import tables_of

_POLL_MS: Final = 20


class TablesWatch:
    """Follows the tables for as long as it is entered; blocks to load them.

    Attributes:
        exists: Whether there were tables when it began.
    """

    def __init__(self, settings: Settings) -> None:
        """Load the tables.

        Raises:
            TableSchemaMismatch: A table is not as this version of the code expects.
        """
        snapshot = load_snapshot(tables_of(settings))
        self.exists = snapshot.version >= 0
        self._table = snapshot.table
        self._next_offsets = dict(snapshot.next_offsets)
        self._moved = threading.Condition()
        self._follower = SnapshotFollower(
            tables_of(settings),
            max(_POLL_MS, settings.poll_interval_ms),
            self._reloaded,
            self._committed,
            known=snapshot,
        )

    def __enter__(self) -> Self:
        self._follower.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.stop()

    @property
    def table(self) -> RouteTable:
        """What the tables say; to be read before ``wait`` or after it, not meanwhile."""
        return self._table

    def wait(self, offsets: Mapping[int, int], timeout_s: float) -> list[int]:
        """Wait until the tables cover a record of each partition.

        Args:
            offsets: partition → offset.
            timeout_s: Seconds at most.

        Returns:
            The partitions whose record they do not cover yet.
        """
        until_s = time.monotonic() + timeout_s
        with self._moved:
            while (behind := self._behind(offsets)) and (left_s := until_s - time.monotonic()) > 0:
                self._moved.wait(left_s)
        return behind

    def _behind(self, offsets: Mapping[int, int]) -> list[int]:
        return [p for p, offset in sorted(offsets.items()) if self._next_offsets.get(p, 0) <= offset]

    def _reloaded(self, snapshot: Snapshot) -> None:
        with self._moved:
            self._table, self._next_offsets = snapshot.table, dict(snapshot.next_offsets)
            self._moved.notify_all()

    def _committed(self, changes: list[RouteChange], next_offsets: Mapping[int, int]) -> None:
        with self._moved:
            reducer.apply(self._table, changes)
            self._next_offsets.update(next_offsets)
            self._moved.notify_all()
