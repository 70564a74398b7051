"""Several name servers, any of which can answer: one is kept for as long as it does."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from namesrv_stream.client.back_off import BackOff
from namesrv_stream.client.connection import RemotingConnection, split_addr
from namesrv_stream.client.errors import ConnectionLost, NameServersUnreachable, RequestTimedOut
from namesrv_stream.errors import ConfigError
from namesrv_stream.remoting.command import RemotingCommand


def parse_name_servers(text: str) -> tuple[str, ...]:
    """The addresses in ``a:9876;b:9876``, in order, each once; a comma separates as well.

    Raises:
        ConfigError: There is none, or one is not ``host:port``.
    """
    addrs = tuple(dict.fromkeys(addr for part in text.replace(",", ";").split(";") if (addr := part.strip())))
    if not addrs:
        raise ConfigError("name servers", repr(text), "expected host:port, several separated by ;")
    for addr in addrs:
        split_addr(addr)
    return addrs


@dataclass(slots=True)
class _NameServer:
    """One address, its connection if there is one, and when it may be tried again."""

    addr: str
    back_off: BackOff = field(default_factory=BackOff)
    retry_at_s: float = 0.0  # on the event loop's clock
    connection: RemotingConnection | None = None
    connecting: asyncio.Lock = field(default_factory=asyncio.Lock)


class NameServers:
    """Asks one of several name servers, always the same one until it fails.

    A server that failed is asked again only after its back-off, or when every other one has failed too.
    """

    def __init__(self, addrs: Iterable[str], connect_timeout_ms: int = 3_000) -> None:
        """Connect to none of them yet.

        Args:
            addrs: ``host:port`` each; at least one.
            connect_timeout_ms: Milliseconds to wait for a connection.
        """
        self._servers = [_NameServer(addr) for addr in addrs]
        self._connect_timeout_ms = connect_timeout_ms
        # Clients of one list should not all ask its first server. Source: rocketmq 5.3.3,
        # NettyRemotingClient.initValueIndex.
        self._chosen = random.randrange(len(self._servers))

    @property
    def addrs(self) -> Sequence[str]:
        """All addresses."""
        return [server.addr for server in self._servers]

    @property
    def chosen(self) -> str:
        """The address that is asked first."""
        return self._servers[self._chosen].addr

    async def invoke(self, command: RemotingCommand, timeout_ms: int = 3_000) -> RemotingCommand:
        """Ask the chosen server, and if it fails the others, each once.

        Args:
            command: The request; it must do no harm when two servers get it.
            timeout_ms: Milliseconds that each server has for its answer.

        Returns:
            The first response, whatever its code: a server that refuses has answered.

        Raises:
            NameServersUnreachable: None of them answered.
        """
        reasons: dict[str, str] = {}
        for index in self._order():
            server = self._servers[index]
            try:
                connection = await self._connection(server)
                response = await connection.invoke(command, timeout_ms)
            except (ConnectionLost, RequestTimedOut) as error:
                reasons[server.addr] = error.reason
                self._failed(server)
                continue
            server.back_off.reset()
            server.retry_at_s = 0.0
            self._chosen = index
            return response
        raise NameServersUnreachable(reasons)

    async def close(self) -> None:
        """Close all connections."""
        for server in self._servers:
            if server.connection is not None:
                await server.connection.close()
                server.connection = None

    def _order(self) -> list[int]:
        """Indexes to try: the chosen one and those after it, servers in back-off last, the soonest of them first."""
        now_s = asyncio.get_running_loop().time()
        count = len(self._servers)
        turn = [(self._chosen + step) % count for step in range(count)]
        return sorted(turn, key=lambda index: max(0.0, self._servers[index].retry_at_s - now_s))

    async def _connection(self, server: _NameServer) -> RemotingConnection:
        async with server.connecting:
            if server.connection is None or not server.connection.is_open:
                server.connection = await RemotingConnection.connect(server.addr, self._connect_timeout_ms)
            return server.connection

    def _failed(self, server: _NameServer) -> None:
        if server.connection is not None:
            # One that does not answer may be half dead: a fresh connection finds out.
            server.connection.abort()
            server.connection = None
        server.retry_at_s = asyncio.get_running_loop().time() + server.back_off.next_delay_ms() / 1000
