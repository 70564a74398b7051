"""One connection and the express lane: whether the lane has it."""

import asyncio

from namesrv_stream.server.express.lane import ExpressLane, Lendable


class Loan:
    """Of one plain connection.

    Attributes:
        is_lent: Nothing is read or written here.

    Args:
        lane: Where it is lent to; None where there is none.
        connection: What is lent.
        transport: Its.
    """

    def __init__(self, lane: ExpressLane | None, connection: Lendable, transport: asyncio.Transport) -> None:
        self.is_lent = False
        self._lane = lane
        self._connection = connection
        self._transport = transport
        sock = transport.get_extra_info("socket")
        self._fd: int | None = None if sock is None else sock.fileno()

    def answer(self, frame: bytes, answer: bytes) -> None:
        """Answer a query that came on its own, and lend the connection if those behind it can be answered there."""
        transport = self._transport
        if self._lane is not None and self._fd is not None and not transport.get_write_buffer_size():
            rest = self._lane.lend(self._connection, self._fd, frame, answer)
            if rest is None:
                self.is_lent = True
                transport.pause_reading()
                return
            answer = rest
        transport.write(answer)

    def take_back(self) -> None:
        """Have it back, unless it is being given back: ``is_lent`` until that is told."""
        if self.is_lent and self._lane is not None:
            self.is_lent = not self._lane.take_back(self._connection)

    def forsake(self) -> None:
        """It has gone, or goes at once."""
        if self.is_lent and self._lane is not None:
            self.is_lent = False
            self._lane.forsake(self._connection)
