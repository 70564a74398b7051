"""All connections of a server: counted, bounded, and closed where nothing moves on them."""

import asyncio
import contextlib
import logging
from itertools import count

from namesrv_stream.server.connection import IDLE, STOPPING, RemotingConnection

logger = logging.getLogger(__name__)


class Connections:
    """The open connections by id.

    Attributes:
        admitted: How many were ever taken.
        rejected: How many were turned away, for too many were open.
        broken_count: How many broke the protocol.
    """

    def __init__(self, limit: int, idle_timeout_ms: int) -> None:
        self._limit = limit
        self._idle_timeout_ms = idle_timeout_ms
        self._open: dict[int, RemotingConnection] = {}
        self._ids = count(1)
        self._all_left = asyncio.Event()
        self.admitted = self.rejected = self.broken_count = 0

    def __len__(self) -> int:
        return len(self._open)

    def next_id(self) -> int:
        return next(self._ids)

    def opened(self, connection: RemotingConnection) -> bool:
        self._open[connection.connection_id] = connection
        if len(self._open) > self._limit:
            logger.warning("connection refused, too many are open peer=%s limit=%d", connection.peer, self._limit)
            self.rejected += 1
            return False
        self.admitted += 1
        return True

    def closed(self, connection: RemotingConnection) -> None:
        self._open.pop(connection.connection_id, None)
        if not self._open:
            self._all_left.set()

    def broken(self) -> None:
        self.broken_count += 1

    def close_idle(self, observed_ms: int) -> None:
        """Close those without traffic for the idle timeout, by observed time: a stopped server closes nobody."""
        for connection in list(self._open.values()):
            if observed_ms - connection.active_ms > self._idle_timeout_ms:
                connection.abort(IDLE)  # whoever has not read its answers by now leaves them

    def close_expired(self, connection_id: int) -> None:
        """A broker that registered over the connection has expired: it closes, unless others over it live."""
        connection = self._open.get(connection_id)
        if connection is not None:
            connection.broker_expired()

    async def close_all(self, timeout_s: float) -> None:
        """Close each behind its next answer, and those of which none is asked within ``timeout_s`` at its end.

        New ones must not come any more. A peer that asks often loses no question so: it finds the connection closed
        when it has just been answered.
        """
        for connection in list(self._open.values()):
            connection.leave()
        if self._open:
            self._all_left.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_left.wait(), timeout_s)
        for connection in list(self._open.values()):
            connection.close(STOPPING)
