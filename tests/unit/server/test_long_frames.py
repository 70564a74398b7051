"""Long registrations over real sockets: the transport's reading changes hands amid each."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from namesrv_stream.remoting.codes import ResponseCode
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame
from namesrv_stream.server.pace import ReadingPace
from namesrv_stream.server.turns import Turns
from namesrv_stream.settings import RemotingSettings
from tests.bench import frames
from tests.bench.shape import Shape
from tests.support.native_rig import NativeRig, SocketPeer, wait_until

SHAPE = Shape(topics=1_000, brokers=6, width=6)
BROKERS = [
    [frame for frame, link in frames.registrations(SHAPE, stamps=range(4)) if link == number + 1]
    for number in range(SHAPE.brokers)
]
QUERY = next(frames.route_reads(SHAPE.topic_names)).frame


def run(main: Coroutine[Any, Any, None], *, on_uvloop: bool) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if on_uvloop else None) as runner:
        runner.run(main)


async def send_in_parts(peer: SocketPeer, data: bytes, chance: random.Random) -> None:
    while data:
        size = chance.choice((1, 3, 1_000, 20_000, 100_000, 1_000_000))
        peer.send(data[:size])
        data = data[size:]
        await peer.writer.drain()
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)


async def all_are_answered(seed: int) -> None:
    chance = random.Random(seed)
    async with NativeRig(queue_records=1_000).served() as rig:
        rig.rig.turns = Turns(max_bytes=400_000)
        rig.rig.pace = ReadingPace(bytes_a_turn=200_000, least_resumed=1)

        async def register(registrations: list[bytes]) -> None:
            peer = await rig.connect()
            sent = [part for frame in registrations for part in (frame, QUERY)]

            async def read() -> list[RemotingCommand]:
                return [decode_frame(await peer.frame()) for _ in sent]

            answers, _ = await asyncio.gather(read(), send_in_parts(peer, b"".join(sent), chance))
            assert [answer.body is not None for answer in answers] == [False, True] * len(registrations)
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}

        await asyncio.gather(*map(register, BROKERS))
        assert rig.rig.connections.unfinished.size == 0
        assert rig.rig.connections.broken_count == 0
        assert len(rig.rig.view.table.groups) == SHAPE.brokers


async def ends_amid() -> None:
    limits = RemotingSettings(partial_frames_bytes=16 << 20)
    async with NativeRig(limits=limits).served() as rig:
        peer = await rig.connect()
        peer.send(BROKERS[0][0][:150_000])
        await wait_until(lambda: rig.rig.connections.unfinished.size >= 150_000)
        peer.writer.write_eof()
        assert await peer.end() == b""
        await wait_until(lambda: len(rig.rig.connections) == 0)
        assert rig.rig.connections.unfinished.size == 0

        crowd = [await rig.connect() for _ in range(3)]
        begun = ((16 << 20) - 4).to_bytes(4, "big") + bytes(7 << 20)
        for one in crowd:
            one.send(begun)
        await wait_until(lambda: rig.rig.connections.refused["crowded"] >= 1)
        await wait_until(lambda: len(rig.rig.connections) < len(crowd))
        assert rig.rig.connections.unfinished.size <= 16 << 20


@pytest.mark.parametrize("on_uvloop", [True, False], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("seed", range(3))
def test_all_are_answered_in_order_however_they_are_cut(seed: int, on_uvloop: bool) -> None:
    run(all_are_answered(seed), on_uvloop=on_uvloop)


@pytest.mark.parametrize("on_uvloop", [True, False], ids=["uvloop", "asyncio"])
def test_one_that_ends_or_is_ended_amid_a_frame_is_forgotten(on_uvloop: bool) -> None:
    run(ends_amid(), on_uvloop=on_uvloop)
