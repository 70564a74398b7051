"""The newest committed rows in memory. All followers share this buffer and have none of their own.

A follower consists of its position only. It can continue to read at any time, and waits here when it has read
everything. A slow follower needs no memory. If the buffer no longer contains its rows, they are read from the tables
(``follower.CatchUp``). The buffer contains every row from ``begin`` on. So it starts again empty if the tables were
reopened, because the rows in between are unknown.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.server.view.rows import Position, encode_row, position_at

#: Approximate memory of a row without its value, and of a commit without its rows.
_ROW_BYTES: Final = 700
_COMMIT_BYTES: Final = 300
#: Rows that are freed in one step.
_ROWS_AT_ONCE: Final = 500
#: The mark of a piece that does not end in the buffer.
NO_MARK: Final = (-1, 0)


class _Commit:
    """Rows of one commit, and the position after them. A row is encoded once, when the first follower reads it."""

    __slots__ = ("_encoded", "end", "number", "rows", "size")

    def __init__(self, number: int, rows: Sequence[RouteChange], end: Position, row_bytes: int) -> None:
        self.number = number
        self.rows = rows
        self.end = end
        self.size = len(end.places) * 8 + _COMMIT_BYTES + row_bytes
        self._encoded: list[bytes | None] = [None] * len(rows)

    def encoded(self, index: int) -> bytes:
        found = self._encoded[index]
        if found is None:
            found = self._encoded[index] = encode_row(self.rows[index])
        return found

    def freed(self) -> Iterator[None]:
        """Free the rows of a dropped commit in steps: a commit can have hundreds of thousands."""
        rows, self.rows = list(self.rows), ()
        while rows:
            del rows[-_ROWS_AT_ONCE:], self._encoded[-_ROWS_AT_ONCE:]
            yield


def bytes_of(rows: Iterable[RouteChange]) -> int:
    """Return the approximate memory of rows."""
    return sum(_ROW_BYTES + len(row.value or "") for row in rows)


class Piece(NamedTuple):
    """The encoded rows that a follower reads at once, in log order within each partition.

    Attributes:
        is_whole: Whether no rows of the same commit follow. If so, all rows up to here form a state that existed.
        mark: Where the piece ends in the buffer, for the next read.
    """

    rows: list[bytes]
    position: Position
    is_whole: bool
    mark: tuple[int, int]


class ChangeFeed:
    """Keeps the newest rows for all followers: every row from ``begin`` to ``end``. Only one event loop may use it.

    A follower can be ahead of ``end`` if it comes from another server.
    """

    def __init__(self, generation: str, next_offsets: Mapping[int, int], max_rows: int, max_bytes: int) -> None:
        """Start at the offsets that the view covers. ``max_bytes`` is approximate; the newest commit is always kept."""
        self.begin = self.end = position_at(generation, next_offsets)
        self.is_closed = False
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._commits: deque[_Commit] = deque()
        self._rows = self._bytes = 0
        self._number = 0
        self._moved = asyncio.Event()

    def committed(
        self, rows: Sequence[RouteChange], next_offsets: Mapping[int, int], row_bytes: int | None = None
    ) -> Iterator[None]:
        """Add one commit of the job, or a slice of it. Return the steps that drop the oldest ones beyond the limits.

        ``row_bytes`` is the result of ``bytes_of`` if it is known.
        """
        self.end = self.end.at_least(next_offsets)
        if not rows and self._commits and not self._commits[-1].rows:
            self._commits[-1].end = self.end  # there is one every second, forever
            self._wake()
            return iter(())
        commit = _Commit(self._number, rows, self.end, bytes_of(rows) if row_bytes is None else row_bytes)
        self._number += 1
        self._commits.append(commit)
        self._rows += len(rows)
        self._bytes += commit.size
        self._wake()
        return self._dropping()

    def _dropping(self) -> Iterator[None]:
        """Drop commits while there are too many: one of many rows can stand for 20,000 others."""
        while len(self._commits) > 1 and (
            self._rows + len(self._commits) > self._max_rows or self._bytes > self._max_bytes
        ):
            oldest = self._commits.popleft()
            self._rows -= len(oldest.rows)
            self._bytes -= oldest.size
            self.begin = oldest.end
            yield from oldest.freed()
            yield

    def reloaded(self, generation: str, next_offsets: Mapping[int, int]) -> None:
        """Start again at these offsets, because the tables were reopened."""
        opened = position_at(generation, next_offsets)
        if opened != self.end:
            self._commits.clear()
            self._rows = self._bytes = 0
            self.begin = self.end = opened
        self._wake()

    def close(self) -> None:
        """Wake all waiting followers, because the server is stopping."""
        self.is_closed = True
        self._wake()

    def reaches(self, position: Position) -> bool:
        """Return whether the buffer contains or will receive every row after the position."""
        return position.covers(self.begin)

    def is_ahead_of(self, position: Position) -> bool:
        """Return whether there may be rows for a follower at the position."""
        return position.generation != self.end.generation or not position.covers(self.end)

    async def wait(self, position: Position, timeout_s: float) -> bool:
        """Wait until there may be rows after a position, or the feed is closed. Return False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (self.is_closed or self.is_ahead_of(position)):
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    def read(
        self, position: Position, wants: Callable[[RouteChange], bool], max_bytes: int, mark: tuple[int, int] = NO_MARK
    ) -> Piece:
        """Return the next rows after a position that the feed ``reaches``; few or none if few are wanted.

        It examines about ``max_bytes`` of rows and commits, wanted or not, but at least one row. ``mark``, from the
        piece that ended at this position, saves a search within the commit.
        """
        found: list[bytes] = []
        seen = number = 0
        end = position
        # The first commit whose end the follower has not reached.
        first = bisect_left(self._commits, True, key=lambda commit: not position.covers(commit.end))
        for at in range(first, len(self._commits)):
            commit = self._commits[at]
            number = commit.number
            passed: list[tuple[int, int, int]] = []
            for index in range(mark[1] if mark[0] == number else 0, len(commit.rows)):
                row = commit.rows[index]
                if position.has(row.partition, row.offset, row.seq):
                    continue
                if seen >= max_bytes:
                    return Piece(found, position.joined(end).after(passed), False, (number, index))
                seen += _ROW_BYTES + len(row.value or "")
                passed.append((row.partition, row.offset, row.seq))
                if wants(row):
                    found.append(commit.encoded(index))
            end = commit.end
            seen += _COMMIT_BYTES
            if seen >= max_bytes:
                break
        return Piece(found, position.joined(end), True, (number, 0))

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
