"""The link to one name server: a connection that callers share, which is reopened and closed once."""

import asyncio

import pytest

from namesrv_stream.client import ClientClosed, ConnectionLost, RequestTimedOut
from namesrv_stream.client.server_link import ServerLink
from namesrv_stream.ports import choose_port
from namesrv_stream.remoting.command import RemotingCommand, response_to
from tests.support.scripted_name_server import Answers, ScriptedNameServer, say_nothing, until

ASK = RemotingCommand(106)


async def test_requests_that_come_together_share_one_connection() -> None:
    async with ScriptedNameServer() as server:
        link = ServerLink(server.addr, 3_000)
        await asyncio.gather(*(link.invoke(ASK, 10_000) for _ in range(100)))
        await link.close()
        assert server.connections == 1


async def test_a_caller_that_gives_up_does_not_take_the_connection_from_the_others() -> None:
    async with ScriptedNameServer() as server:
        link = ServerLink(server.addr, 3_000)
        calls = [asyncio.ensure_future(link.invoke(ASK, 10_000)) for _ in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        _, *others = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, RemotingCommand) for answer in others)
        await link.close()


async def test_idle_connection_that_closed_is_reopened_transparently() -> None:
    async with ScriptedNameServer() as server:
        link = ServerLink(server.addr, 3_000)
        await link.invoke(ASK, 5_000)

        def close_once(request: RemotingCommand) -> Answers:
            server.script = lambda request: [response_to(request, 0)]
            return [None]

        server.script = close_once
        assert (await link.invoke(ASK, 5_000)).code == 0
        assert server.connections == 2
        assert link.retry_at_s == 0
        await link.close()


async def test_server_that_closes_every_connection_is_not_retried_forever() -> None:
    async with ScriptedNameServer() as server:
        link = ServerLink(server.addr, 3_000)
        await link.invoke(ASK, 5_000)
        server.script = lambda request: [None]
        with pytest.raises(ConnectionLost):
            await link.invoke(ASK, 5_000)
        assert server.connections == 2
        await link.close()


async def test_timeout_closes_the_connection_and_discards_the_late_answer() -> None:
    async with ScriptedNameServer(say_nothing) as server:
        link = ServerLink(server.addr, 3_000)
        with pytest.raises(RequestTimedOut):
            await link.invoke(ASK, 20)
        late = server.requests[0]
        await until(lambda: server.open_connections == 0, "the connection is closed")
        server.script = lambda request: [response_to(late, 1), response_to(request, 0)]
        assert (await link.invoke(ASK, 5_000)).code == 0
        assert server.connections == 2
        await link.close()


async def test_concurrent_failures_count_as_one() -> None:
    async with ScriptedNameServer(say_nothing) as server:
        link = ServerLink(server.addr, 3_000)
        calls = [asyncio.ensure_future(link.invoke(ASK, 30_000)) for _ in range(100)]
        await until(lambda: len(server.requests) == 100, "all requests have arrived")
        await server.stop()
        began_s = asyncio.get_running_loop().time()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(end) for end in ends} == {ConnectionLost}
        # The first delay is 200 ms; a hundred failures would make it 10 s.
        assert link.retry_at_s < began_s + 5
        await server.start()
        await link.close()


async def test_thousand_requests_to_an_unreachable_server_make_one_attempt() -> None:
    link = ServerLink(f"127.0.0.1:{choose_port('127.0.0.1')}", 3_000)
    ends = await asyncio.gather(*(link.invoke(ASK, 3_000) for _ in range(1_000)), return_exceptions=True)
    assert {type(end) for end in ends} == {ConnectionLost}
    assert link.retry_at_s < asyncio.get_running_loop().time() + 5
    await link.close()


async def test_close_ends_an_attempt_to_connect() -> None:
    link = ServerLink("192.0.2.1:9876", 60_000)  # an unused address
    call = asyncio.ensure_future(link.invoke(ASK, 3_000))
    await asyncio.sleep(0.01)
    await link.close()
    with pytest.raises((ClientClosed, ConnectionLost)):  # the latter without any network
        await call
    with pytest.raises(ClientClosed):
        await link.invoke(ASK, 3_000)
    assert asyncio.all_tasks() == {asyncio.current_task()}
