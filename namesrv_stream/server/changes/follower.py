"""One who follows the changes: out of the feed, or out of the tables where the feed begins too late."""

from typing import Final

from namesrv_stream.server.changes.catch_up import CatchUp
from namesrv_stream.server.changes.feed import NO_MARK, ChangeFeed, Piece
from namesrv_stream.server.changes.position import Position
from namesrv_stream.server.changes.rows import RowFilter
from namesrv_stream.server.steps import Steps

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
            raise PositionGone("tables", "the tables were made anew, and their rows have other places")

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
