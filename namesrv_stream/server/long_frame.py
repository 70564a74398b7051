"""What is left of a long frame is read into its place.

asyncio hands over what it reads as ``bytes`` of their own, which are to be copied behind those before them: for a
registration of thousands of topics that takes longer than to find that it says nothing new.
"""

import asyncio
from collections.abc import Callable


class LongFrameProtocol(asyncio.BufferedProtocol):
    """Has the place of a connection's own protocol while a long frame is incomplete.

    Args:
        connection: The protocol in general, which is told of all but what was read.
        room: Where what comes next is to be put.
        filled: Told how many bytes were.
    """

    def __init__(
        self, connection: asyncio.Protocol, room: Callable[[], memoryview], filled: Callable[[int], None]
    ) -> None:
        self._connection = connection
        self._room = room
        self._filled = filled

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room()

    def buffer_updated(self, nbytes: int) -> None:
        self._filled(nbytes)

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
