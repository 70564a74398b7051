"""A whole server with real sockets and a lane; its log is in memory."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import uvloop

from namesrv_stream.metrics import LATENCY_BOUNDS_NS
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame, encode_frame
from namesrv_stream.server.native import lane as library_module
from namesrv_stream.server.native.lane import Lane, NativeLane, load_library
from namesrv_stream.server.native.python_lane import PythonLane
from tests.support.name_server import a_body, a_registration_request, a_route_request, a_topic
from tests.support.server_rig import Rig

#: Another build of the library, such as one with sanitizers.
if _library := os.environ.get("NATIVE_LANE_LIBRARY"):
    library_module._FILE = Path(_library)  # type: ignore[misc]  # noqa: SLF001

#: Additional listeners, for address views.
LISTENERS = ("outside", "lan")
#: Topics of the broker that every server has.
TOPICS = [f"topic-{number}" for number in range(50)]
BODY = a_body({topic: a_topic() for topic in TOPICS})
REGISTRATION = a_registration_request(body=BODY)
#: Time limit of every wait, long enough for a busy machine.
PATIENCE_S = 30.0


class SocketPeer:
    """A client of the server over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def ask(self, *requests: RemotingCommand) -> list[RemotingCommand]:
        """Send requests at once; returns their answers in order of arrival."""
        self.send(b"".join(map(encode_frame, requests)))
        return [decode_frame(await self.frame()) for _ in requests]

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes:
        """Return the next answer, without its length prefix."""
        length = int.from_bytes(await self.read(4), "big")
        return await self.read(length)

    async def read(self, size: int) -> bytes:
        if not size:
            return b""
        return await asyncio.wait_for(self._reader.readexactly(size), PATIENCE_S)

    async def part(self) -> bytes:
        """Return the next bytes; none at the end."""
        return await asyncio.wait_for(self._reader.read(1 << 16), PATIENCE_S)

    async def end(self) -> bytes:
        """Return all bytes until the server closes; the kernel resets the connection if bytes were not read."""
        try:
            return await asyncio.wait_for(self._reader.read(), PATIENCE_S)
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


def _native_lane(max_answers_bytes: int) -> NativeLane:
    library = load_library()
    assert library is not None, "`make setup` compiles it"
    return NativeLane(library, max_answers_bytes, LATENCY_BOUNDS_NS)


#: The lanes, which take the size of their stored answers.
LANES: Final[Mapping[str, Callable[[int], Lane]]] = {
    "native": _native_lane,
    "python": lambda max_answers_bytes: PythonLane(LATENCY_BOUNDS_NS, max_bytes=max_answers_bytes),
}


class LaneRig:
    """One server with a lane that stores up to ``max_answers_bytes``; ``kind`` is a key of ``LANES``."""

    kind: ClassVar = "native"

    def __init__(self, max_answers_bytes: int = 1 << 20, **rig: Any) -> None:
        self.lane = LANES[self.kind](max_answers_bytes)
        self.rig = Rig(lane=self.lane, **rig)
        self.rig.talk()
        self._ports: dict[str, int] = {}
        self._is_stopped = False
        self._peers: list[SocketPeer] = []

    @asynccontextmanager
    async def served(self) -> AsyncIterator["LaneRig"]:
        loop = asyncio.get_running_loop()
        self.lane.start(loop)
        servers = [
            await loop.create_server(partial(self.rig.new_connection, name), "127.0.0.1", 0)
            for name in ("", *LISTENERS)
        ]
        for name, server in zip(("", *LISTENERS), servers, strict=True):
            self._ports[name] = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            for server in servers:
                server.close()
            for peer in self._peers:
                await peer.close()
            await self.rig.connections.close_all(0)
            await wait_until(lambda: not any(c.peer.startswith("127.") for c in self.rig.connections))
            if not self._is_stopped:
                self.stop()

    def stop(self) -> None:
        """Stop the lane before the end of ``served``, which otherwise stops it."""
        self._is_stopped = True
        self.lane.stop(asyncio.get_running_loop())

    async def connect(self, listener: str = "", **options: Any) -> SocketPeer:
        peer = SocketPeer(*await asyncio.open_connection("127.0.0.1", self._ports[listener], **options))
        self._peers.append(peer)
        return peer

    @property
    def by_lane(self) -> int:
        """Number of queries that the lane has answered."""
        return sum(self.lane.answered()[0])


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Run the event loop until a condition is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - the condition becomes true in another thread, or at the peer
            await asyncio.sleep(0.001)


def a_query(topic: str = "topic-0", opaque: int = 1) -> RemotingCommand:
    return replace(a_route_request(topic), opaque=opaque)


def run(test: Callable[[LaneRig], Awaitable[None]], **rig: Any) -> None:
    """Run a test with a server that has a broker, on the product's event loop."""

    async def main() -> None:
        server = LaneRig(**rig)
        server.rig.ask(server.rig.connect(), REGISTRATION)
        async with server.served():
            await test(server)

    uvloop.run(main())


async def handed_over(server: LaneRig, *topics: str) -> SocketPeer:
    """Return a peer that has queried the topics, and whose connection the lane serves."""
    peer = await server.connect()
    before = server.lane.connections
    for topic in topics or ("topic-0",):
        for _ in range(3):  # the lane learns the form of the query, then the answer, and then answers
            await peer.ask(a_query(topic))
    assert server.lane.connections == before + 1
    return peer
