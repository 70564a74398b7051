"""One connection to a name server, as RocketMQ's clients use it; its codec shares no code with the product."""

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.simulation.runtime.network import Address, End, Network
from tests.simulation.runtime.process import Process

PUT_KV: Final = 100
DELETE_KV: Final = 102
GET_KV: Final = 101
REGISTER_BROKER: Final = 103
UNREGISTER_BROKER: Final = 104
GET_ROUTE: Final = 105
WIPE_WRITE_PERM: Final = 205
DELETE_TOPIC: Final = 216
QUERY_DATA_VERSION: Final = 322
ADD_WRITE_PERM: Final = 327
BROKER_HEARTBEAT: Final = 904
SUCCESS: Final = 0
SYSTEM_BUSY: Final = 2
TOPIC_NOT_EXIST: Final = 17


class Answer(NamedTuple):
    code: int
    body: bytes


class PeerClosed(Exception):
    """The connection closed before the answer came."""


def encode(code: int, opaque: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """Return a request frame with a JSON header."""
    header = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 503}
    text = json.dumps(header | {"serializeTypeCurrentRPC": "JSON"}, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


class Peer(asyncio.Protocol):
    """The client's end of a connection.

    Attributes:
        end: The transport.
        is_open: Whether this end knows the connection as open.
    """

    def __init__(self, on_lost: Callable[[], None] = lambda: None) -> None:
        self.end: End | None = None
        self.is_open = False
        self._on_lost = on_lost
        self._opaque = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._received = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.end, self.is_open = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(PeerClosed())
        self._on_lost()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 4:
            size = int.from_bytes(received[:4], "big")
            if len(received) < 4 + size:
                return
            header_size = int.from_bytes(received[5:8], "big")
            header = json.loads(received[8 : 8 + header_size])
            future = self._waiting.pop(header["opaque"], None)
            if future is not None and not future.done():
                future.set_result(Answer(header["code"], bytes(received[8 + header_size : 4 + size])))
            del received[: 4 + size]

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"", timeout_s: float = 5.0) -> Answer:
        """Send a request and return its answer.

        Raises:
            PeerClosed: The connection closed.
            TimeoutError: No answer came in time.
        """
        if not self.is_open or self.end is None:
            raise PeerClosed
        self._opaque += 1
        opaque = self._opaque
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = future
        self.end.write(encode(code, opaque, fields, body))
        try:
            return await asyncio.wait_for(future, timeout_s)
        finally:
            self._waiting.pop(opaque, None)

    def close(self) -> None:
        if self.end is not None:
            self.end.close()


async def connect(
    network: Network, process: Process, host: str, address: Address, on_lost: Callable[[], None] = lambda: None
) -> Peer:
    """Connect a host of the fleet to a server. Raises OSError if that fails."""
    peer = Peer(on_lost)
    await network.connect(process.loop, process, address, lambda: peer, host)
    return peer
