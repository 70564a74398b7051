"""Rows that the feed has no longer, out of the tables: after a restart, after a reload, for who was away for long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from namesrv_stream.errors import StoreUnreachable, TableSchemaMismatch
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.server.changes.feed import NO_MARK, Piece
from namesrv_stream.server.changes.position import Position, generation_of
from namesrv_stream.server.changes.rows import encode_row
from namesrv_stream.tables.schema.rows import decode_changes
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
