"""The connection to one name server, opened on demand and shared by all requests; and the delays between attempts."""

import asyncio
import random
import ssl
from dataclasses import dataclass, field

from namesrv_stream.client.client_connection import RemotingConnection
from namesrv_stream.client.client_errors import ClientClosed, ConnectionLost, RequestTimedOut
from namesrv_stream.remoting.command import RemotingCommand


@dataclass(slots=True)
class BackOff:
    """Computes growing delays after repeated failures of one peer or process.

    Attributes:
        first_ms: Delay after the first failure, in milliseconds.
        max_ms: Longest delay, in milliseconds.
        jitter: Random part of a delay: 0.2 means between 80 % and 100 % of it.
        failures: Failures since the last success.
    """

    first_ms: int = 200
    max_ms: int = 10_000
    jitter: float = 0.2
    failures: int = field(default=0, init=False)

    def next_delay_ms(self) -> int:
        """Count a failure and return the delay after it, in milliseconds."""
        # The exponent is limited: a peer that is down for a week must not cause a huge number.
        full_ms = min(self.first_ms << min(self.failures, 30), self.max_ms)
        self.failures += 1
        return int(full_ms * (1 - self.jitter * random.random()))

    def reset(self) -> None:
        """Reset the failures after a success."""
        self.failures = 0


class ServerLink:
    """One connection, or one attempt to open it, that all requests to a name server share."""

    def __init__(self, addr: str, connect_timeout_ms: int, tls: ssl.SSLContext | None = None) -> None:
        """Prepare the link, without a connection.

        Args:
            addr: ``host:port``.
            connect_timeout_ms: Time limit of a connection attempt, in milliseconds.
        """
        self.addr = addr
        #: On the event loop's clock; until then other servers are preferred.
        self.retry_at_s = 0.0
        self._connect_timeout_ms = connect_timeout_ms
        self._tls = tls
        self._back_off = BackOff()
        self._connection: RemotingConnection | None = None
        self._connecting: asyncio.Task[RemotingConnection] | None = None
        self._has_answered = False  # over this connection
        self._is_closed = False

    async def invoke(self, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request to this server and wait for the response.

        Args:
            request: An idempotent request, since the server may get it twice.
            timeout_ms: Time limit of the answer in milliseconds, without the connection attempt.

        Returns:
            The response, whatever its code.

        Raises:
            ConnectionLost: The connection cannot be opened, or ended before the answer.
            RequestTimedOut: No answer in time; the connection is closed, since it may be half-open.
            ClientClosed: This link was closed.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection, was_good = await self._connected()
        try:
            return await self._ask(connection, request, timeout_ms)
        except ConnectionLost:
            if not was_good:
                raise
        # The server closes connections that were idle for two minutes, perhaps at this moment.
        connection, _ = await self._connected()
        left_ms = int((deadline_s - asyncio.get_running_loop().time()) * 1000)
        return await self._ask(connection, request, max(1, left_ms))

    async def close(self) -> None:
        """Close the connection; requests under way end with ClientClosed or ConnectionLost."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _ask(self, connection: RemotingConnection, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        try:
            response = await connection.invoke(request, timeout_ms)
        except (ConnectionLost, RequestTimedOut):
            self._give_up(connection)
            if self._is_closed:
                raise ClientClosed from None
            raise
        if connection is self._connection:
            self._has_answered = True
            self.retry_at_s = 0.0
            self._back_off.reset()
        return response

    async def _connected(self) -> tuple[RemotingConnection, bool]:
        """Return the connection, and whether it has carried an answer before."""
        if self._is_closed:
            raise ClientClosed
        if self._connection is not None and self._connection.is_open:
            return self._connection, self._has_answered
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(), name=f"connect to {self.addr}")
            self._connecting.add_done_callback(_retrieve)
        connecting = self._connecting
        await asyncio.wait([connecting])  # a cancelled caller does not cancel it: others may wait for it
        if connecting.cancelled():
            raise ClientClosed
        return connecting.result(), False

    async def _connect(self) -> RemotingConnection:
        try:
            connection = await RemotingConnection.connect(self.addr, self._connect_timeout_ms, self._tls)
        except ConnectionLost:
            self._count_failure()
            raise
        finally:
            self._connecting = None
        self._connection, self._has_answered = connection, False
        return connection

    def _give_up(self, connection: RemotingConnection) -> None:
        """Close the connection and count one failure, however many requests failed with it."""
        connection.abort()
        if connection is self._connection:
            self._connection = None
            self._count_failure()

    def _count_failure(self) -> None:
        self.retry_at_s = asyncio.get_running_loop().time() + self._back_off.next_delay_ms() / 1000


def _retrieve(connecting: asyncio.Task[RemotingConnection]) -> None:
    """Read the task's exception, because asyncio logs one that nobody has read, and perhaps no caller waits for it."""
    if not connecting.cancelled():
        connecting.exception()
