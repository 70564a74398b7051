"""Counts what the job did since its start, for the commits that tell servers of it."""

import time
from bisect import bisect_left
from collections.abc import Mapping

from namesrv_stream.tables.job_commits import BATCH_BOUNDS_MS, JobFigures


class BatchFigures:
    """Belongs to the thread that writes batches.

    Args:
        started_ms: When the job was started, epoch milliseconds.
        next_offsets: partition → offset from which it goes on.
    """

    def __init__(self, started_ms: int, next_offsets: Mapping[int, int]) -> None:
        self.dead_letters = 0
        self._started_ms = started_ms
        self._begin = dict(next_offsets)
        self._reached = dict(next_offsets)
        self._at_ms: dict[int, int] = {}
        self._counts = [0] * (len(BATCH_BOUNDS_MS) + 1)
        self._batch_s = 0.0
        self._began_s = 0.0

    def begin(self) -> None:
        """A batch is there."""
        self._began_s = time.monotonic()

    def folded(self, partition: int, next_offset: int, at_ms: int) -> None:
        """The batch reaches so far in a partition."""
        self._reached[partition] = max(next_offset, self._reached.get(partition, 0))
        self._at_ms[partition] = max(at_ms, self._at_ms.get(partition, 0))

    def end(self) -> None:
        """The batch is committed."""
        took_s = time.monotonic() - self._began_s
        self._batch_s += took_s
        self._counts[bisect_left(BATCH_BOUNDS_MS, took_s * 1000)] += 1

    def now(self) -> JobFigures:
        """All so far."""
        return JobFigures(
            started_ms=self._started_ms,
            at_ms=min(self._at_ms.values(), default=0),
            records=sum(offset - self._begin.get(p, 0) for p, offset in self._reached.items()),
            dead_letters=self.dead_letters,
            batch_counts=tuple(self._counts),
            batch_ms=round(self._batch_s * 1000),
        )
