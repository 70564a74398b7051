"""A listener on 127.0.0.1 that answers remoting requests as a test says: for peers that misbehave at will."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from namesrv_stream.errors import RemotingError
from namesrv_stream.remoting.command import RemotingCommand, response_to
from namesrv_stream.remoting.frame import FrameBuffer, decode_frame, encode_frame

#: Commands and raw bytes to write, in order; None closes the connection.
Answers = list[RemotingCommand | bytes | None]
Script = Callable[[RemotingCommand], Answers]


def accept_all(request: RemotingCommand) -> Answers:
    """SUCCESS to everything that wants an answer."""
    return [] if request.is_oneway else [response_to(request, 0, ext_fields={})]


def say_nothing(request: RemotingCommand) -> Answers:
    """No answer at all."""
    return []


@dataclass
class ScriptedNameServer:
    """A listener; an async context manager.

    Attributes:
        script: What to answer; may be replaced at any time.
        tls: How it speaks TLS; None for plain.
        requests: All requests so far, in order of arrival.
        connections: Connections so far.
    """

    script: Script = accept_all
    port: int = 0
    tls: ssl.SSLContext | None = None
    requests: list[RemotingCommand] = field(default_factory=list)
    connections: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None

    @property
    def addr(self) -> str:
        """``host:port`` it listens on, the same after ``stop`` and ``start``."""
        return f"127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections that neither side has closed."""
        return len(self._writers)

    def codes(self) -> list[int]:
        """Codes of all requests so far."""
        return [request.code for request in self.requests]

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and all connections."""
        assert self._server is not None
        self._server.close()
        self.drop_connections()
        await self._server.wait_closed()

    def drop_connections(self) -> None:
        """Close all connections; new ones are welcome."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        frames = FrameBuffer()
        try:
            while data := await reader.read(65_536):
                for frame in frames.feed(data):
                    self._answer(decode_frame(frame), writer)
        except (ConnectionError, RemotingError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, request: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        self.requests.append(request)
        for answer in self.script(request):
            if answer is None:
                writer.close()
            else:
                writer.write(answer if isinstance(answer, bytes) else encode_frame(answer))

    async def __aenter__(self) -> Self:
        """Listen."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it all."""
        await self.stop()


async def until(condition: Callable[[], object], what: str, timeout_s: float = 10) -> None:
    """Wait until a condition holds, looking each time the event loop has had a millisecond.

    Raises:
        AssertionError: It did not in time.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(0.001)
