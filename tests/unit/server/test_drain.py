"""How connections end at a clean stop: no question is lost that was on its way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from namesrv_stream.remoting.command import ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from tests.support.name_server import a_registration_request, a_route_request
from tests.support.server_rig import MemoryTransport, Rig

_LONG_S = 60.0


@asynccontextmanager
async def _stopping(rig: Rig, drain_s: float) -> AsyncIterator["asyncio.Task[None]"]:
    rig.gateway.begin_stop()
    stopping = asyncio.ensure_future(rig.connections.close_all(drain_s))
    await asyncio.sleep(0)
    yield stopping
    await asyncio.wait_for(stopping, _LONG_S / 2)


def _ask(transport: MemoryTransport, data: bytes) -> None:
    transport.deliver(data)


async def test_a_peer_that_asks_is_answered_and_closed_behind_the_answer() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    asking = rig.connect()
    async with _stopping(rig, 0.2):
        assert not asking.is_closing()
        _ask(asking, encode_frame(a_route_request()))
        assert [answer.code for answer in asking.answers()] == [ResponseCode.SUCCESS]
        assert asking.is_closing()


async def test_all_that_one_read_brought_is_answered_before_the_end() -> None:
    rig = Rig()
    asking = rig.connect()
    async with _stopping(rig, _LONG_S):
        _ask(asking, 3 * encode_frame(a_route_request()))
        assert len(asking.answers()) == 3
        assert asking.is_closing()


async def test_a_request_of_which_half_has_come_is_waited_for() -> None:
    rig = Rig()
    asking = rig.connect()
    whole = encode_frame(a_route_request())
    async with _stopping(rig, _LONG_S):
        _ask(asking, whole + whole[:10])
        assert not asking.is_closing()
        _ask(asking, whole[10:])
        assert len(asking.answers()) == 2
        assert asking.is_closing()


async def test_the_stop_goes_on_as_soon_as_all_have_left() -> None:
    rig = Rig()
    asking, leaving = rig.connect(), rig.connect()
    async with _stopping(rig, _LONG_S) as stopping:
        _ask(asking, encode_frame(a_route_request()))
        assert not stopping.done()
        leaving.close()
    assert len(rig.connections) == 0


async def test_peers_that_ask_nothing_are_closed_in_the_end() -> None:
    rig = Rig()
    idle = rig.connect()
    async with _stopping(rig, 0.01):
        assert not idle.is_closing()
    assert idle.is_closing()


async def test_without_connections_nothing_is_waited_for() -> None:
    async with _stopping(Rig(), _LONG_S):
        pass


async def test_a_proxys_preamble_is_no_question() -> None:
    rig = Rig()
    asking = rig.connect()
    async with _stopping(rig, _LONG_S):
        for part in (b"PROXY TCP4 192.0.2.7 ", b"198.51.100.2 56324 9876\r\n"):
            _ask(asking, part)
            assert not asking.is_closing()
        _ask(asking, encode_frame(a_route_request()))
        assert len(asking.answers()) == 1
        assert asking.is_closing()
