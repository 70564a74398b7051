"""What a peer sent is freed when its connection is closed, without the garbage collector."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from struct import pack

import pytest

from namesrv_stream.remoting.command import RemotingCommand, RequestCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.server.turns import Turns
from tests.support.name_server import a_registration_request
from tests.support.server_rig import AT_ONCE_NS, MemoryTransport, Rig, turn

PEERS, SIZE = 10, 2 << 20

_RUBBISH = pack(">iI", SIZE, 1_000) + bytes(SIZE - 4)
_QUERY = encode_frame(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
_UNKNOWN = encode_frame(RemotingCommand(9, body=bytes(10_000)))
_LARGE = encode_frame(a_registration_request(body=b"[" + b" " * SIZE))
_HALF = _LARGE[: SIZE // 2]

#: What a peer sends before its connection is closed.
SENT = {
    "a frame with a rubbish header": _RUBBISH,
    "a frame that is too large": pack(">i", -1) + bytes(SIZE),
    "rubbish after valid requests": _QUERY * 100 + _RUBBISH,
    "half of a large request": _HALF,
    "many requests": _UNKNOWN * 200,
    "requests behind a large one": _LARGE + _UNKNOWN * 200,
    "large requests with answers": _LARGE,
    "a preamble that never ends": b"PROXY " + b"x" * 100,
    "rubbish instead of TLS": b"\x16" + bytes(SIZE),
}


@pytest.fixture
def without_collector() -> Iterator[Callable[[], int]]:
    """Switch the collector off; the value returns the traced bytes."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    gc.enable()


@pytest.mark.parametrize("piece_ns", [0, AT_ONCE_NS], ids=["in turns", "at once"])
@pytest.mark.parametrize("kind", SENT)
async def test_bytes_of_a_closed_connection_are_free(
    kind: str, piece_ns: int, without_collector: Callable[[], int]
) -> None:
    rig = Rig(turns=Turns(piece_ns))
    rig.talk()

    async def flood() -> None:
        peers: list[MemoryTransport] = []
        for _ in range(PEERS):
            peer = rig.connect()
            for at in range(0, len(SENT[kind]), 256 << 10):
                peer.deliver(SENT[kind][at : at + (256 << 10)])
            peers.append(peer)
            await turn()
            while SENT[kind] is _LARGE and not peer.received:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        for peer in peers:
            peer.abort()
        for _ in range(3 * PEERS):
            await turn()

    await flood()  # what the server creates once
    before = without_collector()
    await flood()
    assert len(rig.connections) == 0
    assert rig.connections.partial_frames.size == 0
    async with asyncio.timeout(30):
        # The threads of the decoder free their bytes later, and keep the few bodies that they sent last.
        while without_collector() - before >= 2 * SIZE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    rig.decoder.stop()
