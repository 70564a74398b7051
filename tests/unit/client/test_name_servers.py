"""Choosing among name servers: sticky, with fail-over and back-off."""

import pytest

from namesrv_stream.client import NameServers, NameServersUnreachable, parse_name_servers
from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port
from namesrv_stream.remoting.command import RemotingCommand, response_to
from tests.support.scripted_name_server import ScriptedNameServer, say_nothing

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


async def test_when_the_chosen_server_ends_the_other_answers() -> None:
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


async def test_a_server_that_does_not_answer_is_passed_over() -> None:
    async with ScriptedNameServer(say_nothing) as silent, ScriptedNameServer() as good:
        for _ in range(8):  # whichever of the two is the first choice
            servers = NameServers([silent.addr, good.addr])
            await servers.invoke(ASK, timeout_ms=50)
            assert servers.chosen == good.addr
            await servers.close()


async def test_a_refusal_is_an_answer() -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, 17)]) as server:
        servers = NameServers([server.addr])
        assert (await servers.invoke(ASK)).code == 17
        await servers.close()


async def test_no_server_at_all_names_each_with_its_reason() -> None:
    addrs = [f"127.0.0.1:{choose_port('127.0.0.1')}" for _ in range(2)]
    servers = NameServers(addrs)
    with pytest.raises(NameServersUnreachable) as caught:
        await servers.invoke(ASK)
    assert caught.value.reasons == dict.fromkeys(addrs, "connection refused")
    assert caught.value.exit_code == 3


async def test_a_lone_server_is_asked_again_at_once_when_it_is_back() -> None:
    async with ScriptedNameServer() as server:
        servers = NameServers([server.addr])
        await server.stop()
        with pytest.raises(NameServersUnreachable):
            await servers.invoke(ASK)
        await server.start()
        assert (await servers.invoke(ASK)).code == 0
        await servers.close()
