"""The newest committed rows, in memory, for all who follow them: they share one buffer and have none of their own.

A follower is a position. It reads on when it likes, and waits here when it has all; one that is slow costs nothing, and
one that was too slow finds its rows gone from here and has them read from the tables (``catch_up``). Of what is kept,
every row from ``begin`` on is there: where the tables were opened anew, and nobody told the rows between, the buffer
begins anew as well.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.server.changes.position import Position, position_at
from namesrv_stream.server.changes.rows import encode_row

#: What a row takes beside its value, and a commit beside its rows, about.
_ROW_BYTES: Final = 700
_COMMIT_BYTES: Final = 300
#: Of a piece that does not end in the buffer.
NO_MARK: Final = (-1, 0)


class _Commit:
    """Rows of one commit, and the end with them; encoded once, when the first follower reads them."""

    __slots__ = ("_encoded", "end", "number", "rows", "size")

    def __init__(self, number: int, rows: Sequence[RouteChange], end: Position) -> None:
        self.number = number
        self.rows = rows
        self.end = end
        self.size = len(end.places) * 8 + _COMMIT_BYTES + sum(_ROW_BYTES + len(row.value or "") for row in rows)
        self._encoded: list[bytes | None] = [None] * len(rows)

    def encoded(self, index: int) -> bytes:
        found = self._encoded[index]
        if found is None:
            found = self._encoded[index] = encode_row(self.rows[index])
        return found


class Piece(NamedTuple):
    """What a follower reads at once.

    Attributes:
        rows: Encoded, in log order within each partition.
        position: With them.
        is_whole: Nothing more of the same commit is to come, so that the rows so far are a state that was.
        mark: Where it ends in the buffer, for the next read.
    """

    rows: list[bytes]
    position: Position
    is_whole: bool
    mark: tuple[int, int]


class ChangeFeed:
    """Belongs to one event loop.

    Attributes:
        begin: From which position on every row is here.
        end: Up to which; a follower that has read all is there, or ahead where it came from another server.
        is_closed: The server stops.

    Args:
        generation: Of the tables.
        next_offsets: That the view covers: what comes is behind them.
        max_rows: Kept.
        max_bytes: Kept, about; the newest commit is kept in any case.
    """

    def __init__(self, generation: str, next_offsets: Mapping[int, int], max_rows: int, max_bytes: int) -> None:
        self.begin = self.end = position_at(generation, next_offsets)
        self.is_closed = False
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._commits: deque[_Commit] = deque()
        self._rows = self._bytes = 0
        self._number = 0
        self._moved = asyncio.Event()

    def committed(self, rows: Sequence[RouteChange], next_offsets: Mapping[int, int]) -> None:
        """One commit of the job, or a slice of it."""
        self.end = self.end.at_least(next_offsets)
        commit = _Commit(self._number, rows, self.end)
        self._number += 1
        self._commits.append(commit)
        self._rows += len(rows)
        self._bytes += commit.size
        # A commit without rows takes some room as well: there is one each second, for ever.
        while len(self._commits) > 1 and (
            self._rows + len(self._commits) > self._max_rows or self._bytes > self._max_bytes
        ):
            self._drop_oldest()
        self._wake()

    def reloaded(self, generation: str, next_offsets: Mapping[int, int]) -> None:
        """The tables were opened anew, at these offsets."""
        opened = position_at(generation, next_offsets)
        if opened != self.end:
            self._commits.clear()
            self._rows = self._bytes = 0
            self.begin = self.end = opened
        self._wake()

    def close(self) -> None:
        """Let all followers go."""
        self.is_closed = True
        self._wake()

    def reaches(self, position: Position) -> bool:
        """Whether every row that a follower there lacks is here, or yet to come."""
        return position.covers(self.begin)

    def is_ahead_of(self, position: Position) -> bool:
        """Whether there may be something for a follower there."""
        return position.generation != self.end.generation or not position.covers(self.end)

    async def wait(self, position: Position, timeout_s: float) -> bool:
        """Wait until there may be something behind a position, or the feed is closed; False if time is up first."""
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
        """The next rows behind a position that the feed ``reaches``; few or none where few are wanted.

        Args:
            position: The follower's.
            wants: Its choice.
            max_bytes: Of rows looked at, wanted or not, about, so that one call takes little time; at least one row is.
            mark: Of the piece that the position is from, if it is from one: saves a search within its commit.
        """
        found: list[bytes] = []
        seen = number = 0
        # The first commit that has an end which the follower has not reached.
        first = bisect_left(self._commits, True, key=lambda commit: not position.covers(commit.end))
        for commit in islice(self._commits, first, None):
            number = commit.number
            passed: list[tuple[int, int, int]] = []
            for index in range(mark[1] if mark[0] == number else 0, len(commit.rows)):
                row = commit.rows[index]
                if position.has(row.partition, row.offset, row.seq):
                    continue
                if seen >= max_bytes:
                    return Piece(found, position.after(passed), False, (number, index))
                seen += _ROW_BYTES + len(row.value or "")
                passed.append((row.partition, row.offset, row.seq))
                if wants(row):
                    found.append(commit.encoded(index))
            position = position.joined(commit.end)
            if seen >= max_bytes:
                break
        return Piece(found, position, True, (number, 0))

    def _drop_oldest(self) -> None:
        commit = self._commits.popleft()
        self._rows -= len(commit.rows)
        self._bytes -= commit.size
        self.begin = commit.end

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
