"""Answers that are written as a whole and not read: no send waits for the reader any more."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from namesrv_stream.metrics import Counters
from namesrv_stream.server.http.limits import Limits
from namesrv_stream.server.http.protocol import HttpProtocol, Port
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.server_metrics import HttpLoad
from namesrv_stream.settings import HttpSettings
from tests.support.http_rig import eventually

_MORE_THAN_SOCKETS_TAKE = 16 << 20


class PortWithLargeAnswers:
    """An HTTP port with large answers, each written as a whole."""

    def __init__(self, slow_reader_ms: int = 200) -> None:
        self._state = ServerState()
        settings = HttpSettings(
            slow_reader_ms=slow_reader_ms,
            request_timeout_ms=slow_reader_ms,
            max_connections=10,
            max_connections_per_address=10,
        )
        self._port = Port(settings, Counters(), HttpLoad(), PeerLog())
        limited = Limits(_answer, self._port, {})
        self._config = uvicorn.Config(limited, ws="none", lifespan="off", log_config=None)
        self._config.load()

    def protocol(self) -> HttpProtocol:
        return HttpProtocol(self._port, config=self._config, server_state=self._state, app_state={})

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._state.connections)

    def was_given_up(self) -> bool:
        return self._port.counters.value("rocketmq_namesrv_http_events_total", "slow_reader") == 1

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[tuple[str, int]]:
        server = await asyncio.get_running_loop().create_server(self.protocol, "127.0.0.1", 0)
        try:
            host, port = server.sockets[0].getsockname()
            yield host, port
        finally:
            server.close()


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(bytes(_MORE_THAN_SOCKETS_TAKE))(scope, receive, send)


@pytest.mark.parametrize("more", [b"\r\n", b"Connection: close\r\n\r\n", b"\r\nno request\r\n\r\n"])
async def test_the_connection_of_a_peer_that_does_not_read_a_finished_answer_is_closed(more: bytes) -> None:
    port = PortWithLargeAnswers()
    async with port.serving() as addr:
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.connect(addr)
            peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + more)
            await eventually(port.was_given_up, "it is given up")
            await eventually(lambda: not port.connections, "it is closed")


async def test_a_peer_that_has_read_the_answer_may_send_another_request_late() -> None:
    slow_reader_s = 2  # long enough to send the answer on a busy machine, too
    port = PortWithLargeAnswers(1_000 * slow_reader_s)
    async with port.serving() as addr:
        reader, writer = await asyncio.open_connection(*addr)
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readexactly(_MORE_THAN_SOCKETS_TAKE)
            late = asyncio.Event()
            asyncio.get_running_loop().call_later(1.5 * slow_reader_s, late.set)
            await late.wait()
        assert not port.was_given_up()
        writer.close()
        await eventually(lambda: not port.connections, "it is closed")
