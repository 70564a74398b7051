"""The choice of a name server is sticky, with fail-over and back-off."""

import asyncio

import pytest

from namesrv_stream.client import (
    AclCredentials,
    ClientClosed,
    ConnectionLost,
    NameServers,
    NameServersUnreachable,
    RequestTimedOut,
    parse_name_servers,
)
from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port
from namesrv_stream.remoting.command import SIGNATURE, RemotingCommand, response_to, sign
from tests.support.scripted_name_server import ScriptedNameServer, say_nothing, until

ASK = RemotingCommand(106)


@pytest.mark.parametrize(
    ("text", "addrs"),
    [
        ("a:9876", ("a:9876",)),
        ("a:9876;b:9876", ("a:9876", "b:9876")),
        (" a:9876 ; b:9876 ;", ("a:9876", "b:9876")),
        ("a:9876,b:9876;a:9876", ("a:9876", "b:9876")),
    ],
)
def test_a_list_is_separated_by_semicolons(text: str, addrs: tuple[str, ...]) -> None:
    assert parse_name_servers(text) == addrs


@pytest.mark.parametrize("text", ["", " ; ", "a", "a:9876;b"])
def test_a_list_without_an_address_or_with_a_wrong_one_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_name_servers(text)


async def test_the_server_that_answers_is_kept() -> None:
    async with ScriptedNameServer() as a, ScriptedNameServer() as b:
        servers = NameServers([a.addr, b.addr])
        for _ in range(20):
            await servers.invoke(ASK)
        await servers.close()
    assert sorted([len(a.requests), len(b.requests)]) == [0, 20]
    assert a.connections + b.connections == 1


async def test_the_first_choice_is_not_the_same_for_all_clients() -> None:
    assert len({NameServers(["a:1", "b:1"]).chosen for _ in range(64)}) == 2


async def test_other_server_answers_when_the_chosen_one_ends() -> None:
    async with ScriptedNameServer() as a, ScriptedNameServer() as b:
        servers = NameServers([a.addr, b.addr])
        await servers.invoke(ASK)
        chosen, other = (a, b) if a.requests else (b, a)
        await chosen.stop()
        await servers.invoke(ASK)
        assert servers.chosen == other.addr
        await chosen.start()
        await servers.invoke(ASK)
        assert len(other.requests) == 2
        await servers.close()


async def test_server_that_does_not_answer_is_skipped() -> None:
    async with ScriptedNameServer(say_nothing) as silent, ScriptedNameServer() as good:
        for _ in range(8):  # whichever of the two is the first choice
            servers = NameServers([silent.addr, good.addr])
            await servers.invoke(ASK, timeout_ms=200)
            assert servers.chosen == good.addr
            await servers.close()


async def test_a_refusal_is_returned_as_an_answer() -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, 17)]) as server:
        servers = NameServers([server.addr])
        assert (await servers.invoke(ASK)).code == 17
        await servers.close()


async def test_an_error_without_any_server_names_every_server_with_its_reason() -> None:
    addrs = [f"127.0.0.1:{choose_port('127.0.0.1')}" for _ in range(2)]
    servers = NameServers(addrs)
    with pytest.raises(NameServersUnreachable) as caught:
        await servers.invoke(ASK)
    assert caught.value.reasons == dict.fromkeys(addrs, "connection refused")
    assert caught.value.exit_code == 3


async def test_only_server_is_retried_at_once_when_it_returns() -> None:
    async with ScriptedNameServer() as server:
        servers = NameServers([server.addr])
        await server.stop()
        with pytest.raises(NameServersUnreachable):
            await servers.invoke(ASK)
        await server.start()
        assert (await servers.invoke(ASK)).code == 0
        await servers.close()


async def test_server_that_sends_garbage_is_skipped() -> None:
    async with (
        ScriptedNameServer(lambda request: [b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as bad,
        ScriptedNameServer() as good,
    ):
        for _ in range(8):
            servers = NameServers([bad.addr, good.addr])
            await servers.invoke(ASK)
            assert servers.chosen == good.addr
            await servers.close()


async def test_a_thousand_calls_in_flight_move_to_the_other_server_together() -> None:
    async with ScriptedNameServer(say_nothing) as a, ScriptedNameServer(say_nothing) as b:
        servers = NameServers([a.addr, b.addr])
        calls = asyncio.gather(*(servers.invoke(ASK, 30_000) for _ in range(1_000)))
        await until(lambda: len(a.requests) + len(b.requests) == 1_000, "all requests are with one server")
        chosen, other = (a, b) if a.requests else (b, a)
        other.script = lambda request: [response_to(request, 0, remark="other")]
        await chosen.stop()
        assert {answer.remark for answer in await calls} == {"other"}
        assert (other.connections, servers.chosen) == (1, other.addr)
        await servers.close()


async def test_every_server_is_asked_in_order_despite_failures_of_others() -> None:
    away = f"127.0.0.1:{choose_port('127.0.0.1')}"
    async with ScriptedNameServer(say_nothing) as silent, ScriptedNameServer() as good:
        servers = NameServers([away, silent.addr, good.addr])
        outcomes = await servers.invoke_each(ASK, lambda response: response.code, 500)
        await servers.close()
    assert [outcome.addr for outcome in outcomes] == [away, silent.addr, good.addr]
    assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost, RequestTimedOut, type(None)]
    assert outcomes[2].value == 0


async def test_another_list_keeps_the_connections_to_servers_that_stay() -> None:
    async with ScriptedNameServer() as a, ScriptedNameServer() as b, ScriptedNameServer() as c:
        servers = NameServers([a.addr, b.addr])
        await servers.invoke_each(ASK, lambda response: response.code)
        await servers.replace_addrs([b.addr, c.addr])
        assert servers.addrs == [b.addr, c.addr]
        await servers.invoke_each(ASK, lambda response: response.code)
        assert (a.connections, b.connections, c.connections) == (1, 1, 1)
        await until(lambda: a.open_connections == 0, "the connection to the server that left is closed")
        assert (await servers.invoke(ASK)).code == 0
        await servers.close()


async def test_a_request_to_a_server_that_leaves_the_list_is_sent_to_another() -> None:
    async with ScriptedNameServer(say_nothing) as a, ScriptedNameServer() as b:
        servers = NameServers([a.addr])
        call = asyncio.ensure_future(servers.invoke(ASK, 30_000))
        await until(lambda: a.requests, "the request has arrived")
        await servers.replace_addrs([b.addr])
        assert (await call).code == 0
        await servers.close()


async def test_close_ends_requests_under_way_and_leaves_nothing() -> None:
    async with ScriptedNameServer(say_nothing) as a, ScriptedNameServer(say_nothing) as b:
        servers = NameServers([a.addr, b.addr])
        calls = [asyncio.ensure_future(servers.invoke(ASK, 30_000)) for _ in range(10)]
        await until(lambda: len(a.requests) + len(b.requests) == 10, "the requests have arrived")
        await servers.close()
        assert all(isinstance(end, ClientClosed) for end in await asyncio.gather(*calls, return_exceptions=True))
        with pytest.raises(ClientClosed):
            await servers.invoke(ASK)
        assert a.connections + b.connections == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_requests_are_signed_if_there_are_credentials() -> None:
    async with ScriptedNameServer() as server:
        servers = NameServers([server.addr], credentials=AclCredentials("operator", "secret"))
        await servers.invoke(RemotingCommand(100, ext_fields={"key": "k"}))
        await servers.close()
    fields = server.requests[0].ext_fields
    assert fields is not None
    assert fields[SIGNATURE] == sign({"AccessKey": "operator", "key": "k"}, None, "secret")


async def test_the_outcome_of_a_server_that_leaves_the_list_during_a_round_names_the_reason() -> None:
    async with ScriptedNameServer() as stays, ScriptedNameServer() as leaves:
        servers = NameServers([stays.addr, leaves.addr])
        stays.script = say_nothing
        round_ = asyncio.ensure_future(servers.invoke_each(ASK, lambda response: response.code, 5_000))
        await until(lambda: stays.requests, "the first server is asked")
        await servers.replace_addrs([stays.addr])
        stays.drop_connections()
        _, left = await round_
        assert str(left.error) == f"{leaves.addr}: no longer in the list"
        await servers.close()
