"""A server's remoting port on a real socket, with uvloop in its own thread; a test controls the time."""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import uvloop

from namesrv_stream.processor.name_server import Access
from namesrv_stream.server.start.process import BACKLOG, address, bind
from namesrv_stream.settings import RemotingSettings, TlsSettings
from tests.support.server_rig import TICK_MS, Rig

T = TypeVar("T")

_CALL_TIMEOUT_S = 120.0


class RemotingRig:
    """A server; a context manager. Its log is in memory and accepts every record.

    Attributes:
        rig: The server, which only its own thread may use; see ``on_loop``.
        addr: ``host:port``.
    """

    def __init__(
        self,
        limits: RemotingSettings | None = None,
        tls: TlsSettings | None = None,
        access: Access | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.rig = Rig(limits=limits or RemotingSettings(), tls=tls, access=access)
        self.addr = ""
        self._host = host
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="remoting-rig")
        self._is_ready = threading.Event()

    def on_loop(self, call: Callable[[], T]) -> T:
        """Call a function on the server's loop and return its result."""

        async def run() -> T:
            return call()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_CALL_TIMEOUT_S)

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass for the server, in ticks."""

        def beat() -> None:
            self.rig.beat()
            self.rig.connections.beat(self.rig.gateway.observed_ms)

        for _ in range(duration_ms // TICK_MS):
            self.on_loop(beat)

    def reload(self) -> None:
        """Reload the certificate's files."""
        asyncio.run_coroutine_threadsafe(self.rig.tls.reload(), self._loop).result(_CALL_TIMEOUT_S)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(_CALL_TIMEOUT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_TIMEOUT_S)

    def _run(self) -> None:
        async def begin() -> asyncio.AbstractServer:
            self.rig.talk()
            listener = bind(self._host, 0, "remoting.listen_port")
            self.addr = address(listener)
            return await self._loop.create_server(self.rig.new_connection, sock=listener, backlog=BACKLOG)

        server = self._loop.run_until_complete(begin())
        self._is_ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _close(self) -> None:
        for connection in list(self.rig.connections):
            connection.abort("the test is over")
        for _ in range(len(self.rig.connections) + 2):
            await asyncio.sleep(0)
