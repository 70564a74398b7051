"""A clean stop closes connections without losing a request that is on its way."""

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


async def test_a_peer_that_sends_a_request_is_answered_and_then_closed() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    asking = rig.connect()
    async with _stopping(rig, 0.2):
        assert not asking.is_closing()
        _ask(asking, encode_frame(a_route_request()))
        assert [answer.code for answer in asking.answers()] == [ResponseCode.SUCCESS]
        assert asking.is_closing()


async def test_all_requests_of_one_read_are_answered_before_the_close() -> None:
    rig = Rig()
    asking = rig.connect()
    async with _stopping(rig, _LONG_S):
        _ask(asking, 3 * encode_frame(a_route_request()))
        assert len(asking.answers()) == 3
        assert asking.is_closing()


async def test_the_server_waits_for_the_rest_of_an_incomplete_request() -> None:
    rig = Rig()
    asking = rig.connect()
    whole = encode_frame(a_route_request())
    async with _stopping(rig, _LONG_S):
        _ask(asking, whole + whole[:10])
        assert not asking.is_closing()
        _ask(asking, whole[10:])
        assert len(asking.answers()) == 2
        assert asking.is_closing()


async def test_the_stop_continues_as_soon_as_all_connections_are_closed() -> None:
    rig = Rig()
    asking, leaving = rig.connect(), rig.connect()
    async with _stopping(rig, _LONG_S) as stopping:
        _ask(asking, encode_frame(a_route_request()))
        assert not stopping.done()
        leaving.close()
    assert len(rig.connections) == 0


async def test_idle_peers_are_closed_after_the_wait() -> None:
    rig = Rig()
    idle = rig.connect()
    async with _stopping(rig, 0.01):
        assert not idle.is_closing()
    assert idle.is_closing()


async def test_a_stop_without_connections_does_not_wait() -> None:
    async with _stopping(Rig(), _LONG_S):
        pass


async def test_the_preamble_of_a_proxy_is_not_a_request() -> None:
    rig = Rig()
    asking = rig.connect()
    async with _stopping(rig, _LONG_S):
        for part in (b"PROXY TCP4 192.0.2.7 ", b"198.51.100.2 56324 9876\r\n"):
            _ask(asking, part)
            assert not asking.is_closing()
        _ask(asking, encode_frame(a_route_request()))
        assert len(asking.answers()) == 1
        assert asking.is_closing()
