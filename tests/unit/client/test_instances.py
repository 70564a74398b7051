"""Clients with the same id share one instance."""

import asyncio
import os
import re

import pytest

from namesrv_stream.client import AclCredentials, ClientClosed, client_for
from namesrv_stream.client.name_server_client import default_client_id
from namesrv_stream.errors import ConfigError
from tests.support.scripted_name_server import ScriptedNameServer, ScriptedRoutes


async def test_same_id_is_the_same_client_until_the_last_user_leaves() -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 1}})) as server:
        async with client_for(server.addr) as first:
            async with client_for(server.addr) as second:
                assert second is first
            assert (await first.route("t")).topic == "t"
        with pytest.raises(ClientClosed):
            await first.route("t")
        async with client_for(server.addr) as third:
            assert third is not first


async def test_another_id_is_another_client() -> None:
    async with client_for("a:1") as first, client_for("b:1", client_id="other") as second:
        assert second is not first


@pytest.mark.parametrize(
    ("name_servers", "credentials", "words"),
    [("a:1;b:1", None, "other name servers (a:1)"), ("a:1", AclCredentials("k", "s"), "other credentials")],
)
async def test_same_id_with_different_options_is_an_error(
    name_servers: str, credentials: AclCredentials | None, words: str
) -> None:
    async with client_for("a:1"):
        with pytest.raises(ConfigError) as caught:
            async with client_for(name_servers, credentials=credentials):
                pass
        assert words in str(caught.value)


async def test_an_error_in_the_block_closes_the_client() -> None:
    with pytest.raises(ZeroDivisionError):
        async with client_for("a:1") as client:
            raise ZeroDivisionError
    with pytest.raises(ClientClosed):
        await client.route("t")


async def test_concurrent_callers_share_one_client() -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 1}})) as server:

        async def use() -> int:
            async with client_for(server.addr) as client:
                await client.route("t")
                return id(client)

        async with client_for(server.addr) as client:
            assert set(await asyncio.gather(*(use() for _ in range(100)))) == {id(client)}
    assert server.connections == 1


async def test_client_cannot_be_shared_with_another_event_loop() -> None:
    async def elsewhere() -> None:
        async with client_for("a:1"):
            pass

    async with client_for("a:1"):
        with pytest.raises(ConfigError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, elsewhere())


def test_a_client_that_was_never_closed_does_not_outlive_its_event_loop() -> None:
    async def take_and_forget() -> None:
        await client_for("a:1", client_id="forgotten").__aenter__()

    async def take_again() -> None:
        async with client_for("b:1", client_id="forgotten"):
            pass

    asyncio.run(take_and_forget())
    asyncio.run(take_again())


def test_the_default_id_consists_of_an_address_and_the_process_id() -> None:
    assert re.fullmatch(rf"(\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\])@{os.getpid()}", default_client_id())
