"""One connection and the native lane: which of the two reads and writes its socket."""

import asyncio

from namesrv_stream.server.native.lane import LaneConnection, NativeLane


class HandOver:
    """Of one plain connection.

    Attributes:
        is_handed_over: The lane reads and writes the socket, or is returning it: nothing is read or written here.

    Args:
        lane: Where the connection is handed over to; None where there is none.
        connection: The connection.
        transport: Its transport.
    """

    def __init__(self, lane: NativeLane | None, connection: LaneConnection, transport: asyncio.Transport) -> None:
        self.is_handed_over = False
        self._lane = lane
        self._connection = connection
        self._transport = transport
        sock = transport.get_extra_info("socket")
        self._fd: int | None = None if sock is None else sock.fileno()

    def answer(self, frame: bytes, answer: bytes) -> bool:
        """Answer a query that came on its own, and hand the connection over if the lane can answer the next ones.

        Returns:
            Whether it was handed over.
        """
        transport = self._transport
        if self._lane is not None and self._fd is not None and not transport.get_write_buffer_size():
            rest = self._lane.hand_over(self._connection, self._fd, frame, answer)
            if rest is None:
                self.is_handed_over = True
                return True
            answer = rest
        transport.write(answer)
        return False

    def take_back(self) -> bool:
        """Take the connection back; False while the lane is returning it."""
        if self.is_handed_over and self._lane is not None:
            self.is_handed_over = not self._lane.take_back(self._connection)
        return not self.is_handed_over

    def release(self) -> None:
        """The connection has ended, or ends at once: the lane forgets it."""
        if self.is_handed_over and self._lane is not None:
            self.is_handed_over = False
            self._lane.release(self._connection)
