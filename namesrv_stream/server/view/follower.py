"""One client that follows ``/changes`` from its position, in order and without gaps.

A follower gets the newest rows from the feed. After a restart, a reload or a long absence it gets them from the tables.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow.compute as pc

from namesrv_stream.errors import StoreUnreachable
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.feed import NO_MARK, ChangeFeed, Piece
from namesrv_stream.server.view.rows import Position, RowFilter, encode_row, generation_of
from namesrv_stream.table_errors import TableSchemaMismatch
from namesrv_stream.tables.change_rows import decode_changes
from namesrv_stream.tables.storage import Storage
from namesrv_stream.tables.stored_changes import StoredChanges

_ROWS_AT_ONCE: Final = 2_000


class CatchUp:
    """Reads pieces from the tables, for one follower at a time, on its own thread."""

    def __init__(self, tables: Storage, max_rows: int) -> None:
        self._tables = tables
        self._max_rows = max_rows
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="changes-catch-up")

    async def read(
        self, position: Position, end: Position, wants: Callable[[RouteChange], bool], max_bytes: int
    ) -> Piece | None:
        """Return the next rows between two positions of the same generation; ``end`` must be after ``position``.

        It reads one partition after another. So only the last piece, which reaches the end, completes a state. Return
        None if the tables do not contain all of these rows (any more), or if there are too many.
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
                # The follower may already have some rows of the first record.
                rows = rows.filter((pc.field("offset") > begin.offset) | (pc.field("seq") >= begin.seq))
                seen, passed = 0, list[tuple[int, int, int]]()
                for row in decode_changes(rows[:_ROWS_AT_ONCE]):
                    seen += len(row.value or "") + 1
                    passed.append((row.partition, row.offset, row.seq))
                    if wants(row):
                        found.append(encode_row(row))
                    if seen > max_bytes:
                        break
                if len(passed) < rows.num_rows:
                    return Piece(found, position.after(passed), False, NO_MARK)
                position = position.at_least({partition: place.offset})
            return Piece(found, position.joined(end), True, NO_MARK)
        except (TableSchemaMismatch, StoreUnreachable):
            return None

    def _open(self, position: Position, end: Position) -> StoredChanges | None:
        """Return the table if it contains all rows between the positions, and they are not too many; otherwise None."""
        stored = StoredChanges.open(self._tables)
        if stored is None or generation_of(stored.table_id) != position.generation:
            return None
        rows = 0
        for partition, place in enumerate(end.places):
            begin = position.place(partition)
            if begin < place:
                is_there = stored.removed_below.get(partition, 0) <= begin.offset
                if not is_there or stored.next_offsets.get(partition, 0) < place.offset:  # removed, or set back
                    return None
                rows += stored.rows_at_most(partition, begin.offset, place.offset)
        return stored if rows <= self._max_rows else None


#: Approximate size of one piece; one iteration of the event loop encodes it.
_PIECE_BYTES: Final = 256 << 10


class PositionGone(Exception):
    """The rows after a position are no longer available, so the follower must start again with the whole state."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason  # in one word, for metrics


class Follower:
    """Reads the rows after its position, piece by piece. Only one event loop may use it."""

    def __init__(
        self, feed: ChangeFeed, catch_up: CatchUp, choice: RowFilter, position: Position, steps: Steps
    ) -> None:
        self.position = position
        self._steps = steps
        self._feed = feed
        self._catch_up = catch_up
        self._choice = choice
        self._mark = NO_MARK

    def check(self) -> None:
        """Check that the position belongs to these tables. Only ``next`` detects a position that is too old.

        Raises:
            PositionGone: The position belongs to other tables.
        """
        if self.position.generation != self._feed.end.generation:
            raise PositionGone("tables", "the tables were rebuilt, so their rows have new places")

    async def next(self, timeout_s: float) -> Piece | None:
        """Return the next piece when there are rows, or when the position advances without rows; None after a timeout.

        Raises:
            PositionGone: The next rows are no longer available.
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
        """Return a piece; None if the feed has changed meanwhile, so that the caller must try again."""
        feed, position = self._feed, self.position
        async with self._steps.step():  # because a commit wakes all followers at once
            self.check()
            if feed.reaches(position):
                return feed.read(position, self._choice.wants, _PIECE_BYTES, self._mark)
            begin = feed.begin
        piece = await self._catch_up.read(position, begin, self._choice.wants, _PIECE_BYTES)
        if piece is None and begin.generation == feed.end.generation:
            raise PositionGone("too_old", "the rows after that position are no longer kept, or are too many")
        return piece
