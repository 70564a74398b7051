"""One who follows the changes: out of the feed, or out of the tables where the feed begins too late.

It does after a restart, after a reload, and for who was away for long.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from namesrv_stream.errors import StoreUnreachable, TableSchemaMismatch
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.server.changes.feed import NO_MARK, ChangeFeed, Piece
from namesrv_stream.server.changes.position import Position, generation_of
from namesrv_stream.server.changes.rows import RowFilter, encode_row
from namesrv_stream.server.steps import Steps
from namesrv_stream.tables.schema.change_rows import decode_changes
from namesrv_stream.tables.storage import Storage
from namesrv_stream.tables.stored_changes import StoredChanges

_ROWS_AT_ONCE: Final = 2_000


class CatchUp:
    """Reads a piece for one follower at a time, on a thread of its own."""

    def __init__(self, tables: Storage, max_rows: int) -> None:
        self._tables = tables
        self._max_rows = max_rows
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="changes-catch-up")

    async def read(
        self, position: Position, end: Position, wants: Callable[[RouteChange], bool], max_bytes: int
    ) -> Piece | None:
        """The next rows behind a position, below an end of the same generation that it does not cover.

        Partition after partition, so only the last piece, which reaches the end, makes a state that was.

        Returns:
            None where the tables do not have all of them (any more), or too many.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, position, end, wants, max_bytes)

    def _read(
        self, position: Position, end: Position, wants: Callable[[RouteChange], bool], max_bytes: int
    ) -> Piece | None:
        try:
            stored = self._open(position, end)
            if stored is None:
                return None
            found: list[bytes] = []
            for partition, place in enumerate(end.places):
                begin = position.place(partition)
                if begin >= place:
                    continue
                rows = stored.rows(partition, begin.offset, place.offset)
                # Of the first record the follower may have some rows already.
                missing = [row for row in decode_changes(rows[: _ROWS_AT_ONCE + begin.seq]) if row[1:3] >= begin]
                seen = 0
                for row in missing:
                    seen += len(row.value or "") + 1
                    position = position.after([(row.partition, row.offset, row.seq)])
                    if wants(row):
                        found.append(encode_row(row))
                    if seen > max_bytes:
                        return Piece(found, position, False, NO_MARK)
                if rows.num_rows > _ROWS_AT_ONCE + begin.seq:
                    return Piece(found, position, False, NO_MARK)
                position = position.at_least({partition: place.offset})
            return Piece(found, position.joined(end), True, NO_MARK)
        except (TableSchemaMismatch, StoreUnreachable):
            return None

    def _open(self, position: Position, end: Position) -> StoredChanges | None:
        """The table, if it has all that is missing, and that is not too much."""
        stored = StoredChanges.open(self._tables)
        if stored is None or generation_of(stored.table_id) != position.generation:
            return None
        rows = 0
        for partition, place in enumerate(end.places):
            begin = position.place(partition)
            if begin < place:
                if begin.offset < stored.removed_below.get(partition, 0):
                    return None
                rows += stored.rows_at_most(partition, begin.offset, place.offset)
        return stored if rows <= self._max_rows else None


#: Of one piece, about: what one turn of the event loop encodes.
_PIECE_BYTES: Final = 256 << 10


class PositionGone(Exception):
    """What is behind a position cannot be told any more: the follower must begin anew.

    Attributes:
        reason: In a word, for the figures.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Follower:
    """Belongs to one event loop.

    Attributes:
        position: With all that was read.
    """

    def __init__(
        self, feed: ChangeFeed, catch_up: CatchUp, choice: RowFilter, position: Position, steps: Steps
    ) -> None:
        self.position = position
        self._steps = steps
        self._feed = feed
        self._catch_up = catch_up
        self._wanted = choice
        self._mark = NO_MARK

    def check(self) -> None:
        """Refuse a position of other tables; one that is too old is found out when its rows are read.

        Raises:
            PositionGone: It is one.
        """
        if self.position.generation != self._feed.end.generation:
            raise PositionGone("tables", "the tables were rebuilt, so their rows have new places")

    async def next(self, timeout_s: float) -> Piece | None:
        """The next rows, as soon as there are some, or as the position moves on without any; None after a time-out.

        Raises:
            PositionGone: Nobody knows the next rows.
        """
        while await self._feed.wait(self.position, timeout_s):
            if self._feed.is_closed:
                return None
            piece = await self._read()
            if piece is not None:
                self.position, self._mark = piece.position, piece.mark
                return piece
        return None

    async def _read(self) -> Piece | None:
        """A piece; None where the feed has changed meanwhile, so that it must be asked again."""
        feed, position = self._feed, self.position
        async with self._steps.step():  # a commit wakes all followers at once
            self.check()
            if feed.reaches(position):
                return feed.read(position, self._wanted.wants, _PIECE_BYTES, self._mark)
            begin = feed.begin
        piece = await self._catch_up.read(position, begin, self._wanted.wants, _PIECE_BYTES)
        if piece is None and begin.generation == feed.end.generation:
            raise PositionGone("too_old", "the rows behind that position are not kept any more, or are too many")
        return piece
