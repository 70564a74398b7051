"""One connection: matching of answers to requests, and every way in which it ends."""

import asyncio
import gc

import pytest

from namesrv_stream.client import ConnectionLost, RemotingConnection, RequestTimedOut, RequestTooLarge
from namesrv_stream.client.client_connection import address_of
from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port
from namesrv_stream.remoting.command import RemotingCommand, ResponseCode, response_to
from tests.support.scripted_name_server import Answers, ScriptedNameServer, say_nothing, until


async def test_answers_are_matched_to_their_requests_in_any_order() -> None:
    held: list[RemotingCommand] = []

    def answer_both_in_reverse(request: RemotingCommand) -> Answers:
        held.append(request)
        if len(held) < 2:
            return []
        return [response_to(late, 0, remark=str(late.code)) for late in reversed(held)]

    async with ScriptedNameServer(answer_both_in_reverse) as server:
        connection = await RemotingConnection.connect(server.addr)
        first, second = await asyncio.gather(
            connection.invoke(RemotingCommand(1), 5_000), connection.invoke(RemotingCommand(2), 5_000)
        )
        await connection.close()
    assert (first.remark, second.remark) == ("1", "2")


async def test_a_thousand_requests_are_in_flight_at_once() -> None:
    async with ScriptedNameServer() as server:
        connection = await RemotingConnection.connect(server.addr)
        answers = await asyncio.gather(*(connection.invoke(RemotingCommand(code), 10_000) for code in range(1_000)))
        await connection.close()
    assert [answer.code for answer in answers] == [0] * 1_000
    assert len({request.opaque for request in server.requests}) == 1_000


async def test_a_request_without_an_answer_times_out_and_leaves_the_connection_usable() -> None:
    async with ScriptedNameServer(say_nothing) as server:
        connection = await RemotingConnection.connect(server.addr)
        with pytest.raises(RequestTimedOut) as caught:
            await connection.invoke(RemotingCommand(105), 20)
        late = server.requests[0]
        server.script = lambda request: [response_to(late, 1), response_to(request, 0)]
        assert (await connection.invoke(RemotingCommand(106), 5_000)).code == 0
        await connection.close()
    assert str(caught.value) == f"{server.addr}: no answer to request 105 within 20 ms"


async def test_requests_under_way_fail_when_the_peer_closes() -> None:
    async with ScriptedNameServer(lambda request: [None]) as server:
        connection = await RemotingConnection.connect(server.addr)
        with pytest.raises(ConnectionLost) as caught:
            await connection.invoke(RemotingCommand(105), 5_000)
        assert caught.value.reason == "closed by the peer"
        assert await connection.closed == "closed by the peer"
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            await connection.invoke(RemotingCommand(105), 5_000)


async def test_garbage_closes_the_connection_after_earlier_valid_answers() -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, 0), b"\xff\xff\xff\xffgarbage"]) as server:
        connection = await RemotingConnection.connect(server.addr)
        assert (await connection.invoke(RemotingCommand(105), 5_000)).code == 0
        assert (await connection.closed).startswith("sent invalid data")


async def test_invalid_header_closes_the_connection() -> None:
    async with ScriptedNameServer(lambda request: [b"\x00\x00\x00\x06\x00\x00\x00\x02no"]) as server:
        connection = await RemotingConnection.connect(server.addr)
        with pytest.raises(ConnectionLost):
            await connection.invoke(RemotingCommand(105), 5_000)


async def test_go_away_closes_the_connection() -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, ResponseCode.GO_AWAY)]) as server:
        connection = await RemotingConnection.connect(server.addr)
        with pytest.raises(ConnectionLost) as caught:
            await connection.invoke(RemotingCommand(105), 5_000)
    assert caught.value.reason == "the server is going away"


async def test_request_of_the_peer_is_not_an_answer() -> None:
    def ask_back(request: RemotingCommand) -> Answers:
        return [RemotingCommand(905, opaque=request.opaque), response_to(request, 0)]

    async with ScriptedNameServer(ask_back) as server:
        connection = await RemotingConnection.connect(server.addr)
        assert (await connection.invoke(RemotingCommand(105), 5_000)).is_response
        await connection.close()


async def test_oneway_request_has_the_oneway_flag() -> None:
    async with ScriptedNameServer() as server:
        connection = await RemotingConnection.connect(server.addr)
        await connection.invoke_oneway(RemotingCommand(322))
        await until(lambda: server.requests, "the request has arrived")
        await connection.close()
    assert server.requests[0].is_oneway


async def test_refused_connection_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost) as caught:
        await RemotingConnection.connect(f"127.0.0.1:{choose_port('127.0.0.1')}")
    assert caught.value.reason == "connection refused"


@pytest.mark.parametrize("addr", ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h:-1"])
def test_invalid_address_is_refused(addr: str) -> None:
    with pytest.raises(ConfigError) as caught:
        address_of(addr)
    assert caught.value.key == addr


async def test_oversized_request_is_refused_before_it_is_sent() -> None:
    async with ScriptedNameServer() as server:
        connection = await RemotingConnection.connect(server.addr)
        with pytest.raises(RequestTooLarge, match="105"):
            await connection.invoke(RemotingCommand(105, ext_fields={"topic": "x" * 600_000}), 3_000)
        assert (await connection.invoke(RemotingCommand(106), 3_000)).code == 0
        await connection.close()


async def test_unsent_requests_end_without_a_warning_when_the_connection_closes() -> None:
    """A program that handles the error must not get "Future exception was never retrieved" in its log."""
    contexts: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    release = asyncio.Event()

    async def do_not_read(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    listener = await asyncio.start_server(do_not_read, "127.0.0.1", 0, limit=1024)
    connection = await RemotingConnection.connect(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    large = RemotingCommand(106, body=b"x" * 15_000_000)
    calls = [asyncio.ensure_future(connection.invoke(large, 30_000)) for _ in range(3)]
    for _ in range(3):
        await asyncio.sleep(0)
    connection.abort()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    del calls
    gc.collect()
    release.set()
    listener.close()

    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3
    assert contexts == []
