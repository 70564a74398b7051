"""The client: cached routes, rotation of queues, and changing lists of name servers."""

import asyncio
import gc
import logging
import os

import pytest

from namesrv_stream.client import (
    AddressServerUnreachable,
    Client,
    ClientClosed,
    ClientOptions,
    NameServersUnreachable,
    NoQueue,
    TopicNotExist,
)
from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port
from tests.support.scripted_name_server import ScriptedNameServer, ScriptedRoutes, an_address_server, until

QUICK = ClientOptions(poll_name_server_interval_ms=20, missing_topic_interval_ms=0, address_server_interval_ms=20)


async def test_queues_are_chosen_in_turn() -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 2, "b": 1}})) as server, Client(server.addr) as client:
        chosen = [await client.select_queue("t") for _ in range(6)]
    assert sorted((queue.broker_name, queue.queue_id) for queue in chosen[:3]) == [("a", 0), ("a", 1), ("b", 0)]
    assert chosen[3:] == chosen[:3]
    assert {queue.broker_addr for queue in chosen} == {"a:10911", "b:10911"}


async def test_a_broker_that_failed_can_be_avoided() -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 4, "b": 4}})) as server, Client(server.addr) as client:
        assert {(await client.select_queue("t", exclude={"a"})).broker_name for _ in range(8)} == {"b"}
        assert {(await client.select_queue("t", exclude="b")).broker_name for _ in range(8)} == {"a"}
        assert {(await client.select_queue("t", exclude={"a", "b"})).broker_name for _ in range(8)} == {"a", "b"}


async def test_every_topic_has_its_own_rotation() -> None:
    routes = ScriptedRoutes({"t": {"a": 2}, "u": {"a": 2}})
    async with ScriptedNameServer(routes) as server, Client(server.addr) as client:
        chosen = [await client.select_queue(topic) for topic in "tutu"]
    assert {queue.queue_id for queue in chosen[::2]} == {queue.queue_id for queue in chosen[1::2]} == {0, 1}


async def test_topic_without_writable_queues_is_an_error() -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {}})) as server, Client(server.addr) as client:
        with pytest.raises(NoQueue):
            await client.select_queue("t")
        assert await client.readable_queues("t") == ()


async def test_a_topic_gets_its_first_writable_queue_as_soon_as_it_has_one() -> None:
    options = ClientOptions(missing_topic_interval_ms=0)
    routes = ScriptedRoutes({"t": {}})
    async with ScriptedNameServer(routes) as server, Client(server.addr, options=options) as client:
        with pytest.raises(NoQueue):
            await client.select_queue("t")
        routes.routes["t"] = {"a": 1}
        assert (await client.select_queue("t")).broker_name == "a"


async def test_topic_without_writable_queues_is_not_requested_by_every_caller() -> None:
    options = ClientOptions(missing_topic_interval_ms=3_600_000)
    routes = ScriptedRoutes({"t": {}})
    async with ScriptedNameServer(routes) as server, Client(server.addr, options=options) as client:
        for _ in range(10):
            with pytest.raises(NoQueue):
                await client.select_queue("t")
    assert routes.requested_topics == ["t"]


async def test_routes_are_refreshed_in_the_background() -> None:
    routes = ScriptedRoutes({"t": {"a": 1}})
    async with ScriptedNameServer(routes) as server, Client(server.addr, options=QUICK) as client:
        assert (await client.select_queue("t")).broker_name == "a"
        routes.routes["t"] = {"b": 1}
        asked = len(routes.requested_topics)
        await until(lambda: len(routes.requested_topics) > asked + 1, "the route is asked for again")
        assert (await client.select_queue("t")).broker_name == "b"


async def test_deleted_topic_keeps_its_route_with_an_error() -> None:
    routes = ScriptedRoutes({"t": {"a": 1}})
    async with ScriptedNameServer(routes) as server, Client(server.addr, options=QUICK) as client:
        await client.route("t")
        routes.routes.clear()
        asked = len(routes.requested_topics)
        await until(lambda: len(routes.requested_topics) > asked + 1, "the route is asked for again")
        assert isinstance((await client.route("t")).last_error, TopicNotExist)
        assert (await client.select_queue("t")).broker_name == "a"


async def test_route_stays_cached_without_any_name_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "namesrv_stream.client.route_cache")
    async with (
        ScriptedNameServer(ScriptedRoutes({"t": {"a": 1}})) as server,
        Client(server.addr, options=QUICK) as client,
    ):
        await client.route("t")
        await server.stop()
        await until(lambda: "cannot refresh route, keeping the old one topic=t" in caplog.text, "a refresh has failed")
        assert isinstance((await client.route("t")).last_error, NameServersUnreachable)
        assert (await client.select_queue("t")).broker_addr == "a:10911"
        await server.start()
        await until(lambda: "refreshed again topic=t" in caplog.text, "a refresh has succeeded")
        assert (await client.route("t")).last_error is None


async def test_missing_topic_is_found_when_it_exists() -> None:
    routes = ScriptedRoutes()
    async with ScriptedNameServer(routes) as server, Client(server.addr, options=QUICK) as client:
        with pytest.raises(TopicNotExist):
            await client.route("t")
        routes.routes["t"] = {"a": 1}
        assert (await client.route("t")).topic == "t"


async def test_list_of_name_servers_follows_an_address_server() -> None:
    routes = ScriptedRoutes({"t": {"a": 1}})
    async with ScriptedNameServer(routes) as first, ScriptedNameServer(routes) as second:
        async with an_address_server(f"HTTP/1.0 200 OK\r\n\r\n{first.addr}".encode()) as (url, _):
            port = int(url.split(":")[2].split("/")[0])
            client = Client(url, options=QUICK)
            await client.start()
            assert client.name_servers.addrs == [first.addr]
        # The address server is unavailable for a moment: the old list stays.
        assert await client.topic_list() == ("t",)

        async with an_address_server(f"HTTP/1.0 200 OK\r\n\r\n{second.addr}".encode(), port):
            await until(lambda: client.name_servers.addrs == [second.addr], "the new list is used")
        assert await client.topic_list() == ("t",)
        await client.close()
    assert second.codes() == [206]


async def test_start_fails_without_the_address_server() -> None:
    with pytest.raises(AddressServerUnreachable):
        await Client(f"http://127.0.0.1:{choose_port('127.0.0.1')}/rocketmq/nsaddr").start()


async def test_invalid_list_is_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        Client("a;b")


async def test_client_that_is_not_running_raises_an_error() -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 1}})) as server:
        client = Client(server.addr)
        with pytest.raises(ClientClosed):
            await client.route("t")
        await client.start()
        await client.route("t")
        await client.close()
        with pytest.raises(ClientClosed):
            await client.route("t")
        with pytest.raises(ClientClosed):
            await client.topic_list()


async def test_closed_client_leaves_no_task() -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 1}})) as server:
        gc.collect()
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            async with Client(server.addr, options=QUICK) as client:
                await asyncio.gather(*(client.select_queue("t") for _ in range(50)))
        await until(lambda: server.open_connections == 0, "all connections are closed")
        assert len(os.listdir("/proc/self/fd")) <= files
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_close_leaves_no_task() -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 1}})) as server:
        client = Client(server.addr)
        await client.start()
        await client.route("t")
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await until(lambda: server.open_connections == 0, "the connection is closed")
    assert asyncio.all_tasks() == {asyncio.current_task()}
