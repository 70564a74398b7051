"""Servers that ask each other nothing, compared over their real HTTP ports."""

import asyncio
import json
import socket
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.operate.server_states import BadAnswer, ServerUnreachable, get, parse_http_addrs
from namesrv_stream.operate.skew import Lag, find_skew
from namesrv_stream.ports import choose_port
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.events import BrokerRegistered, KvPut
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.server.http import HttpServer
from namesrv_stream.server.listener import NameServerAddrs
from namesrv_stream.server.served_state import ServedState
from tests.support.builders import CLUSTER, NAME, S1, Log, a_registration, over
from tests.support.server_rig import Rig


class Served:
    """A server with its HTTP port, told of commits as its follower would."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.state = ServedState(self.rig.identity, self.rig.view, 1, -1, self.rig.clock)
        bound = socket.create_server(("127.0.0.1", 0))
        addrs = NameServerAddrs((), "127.0.0.1", 9876)
        self.http = HttpServer(
            bound, self.rig.server, self.rig.gateway, self.rig.connections, name_server_addrs=addrs, state=self.state
        )
        self.url = f"http://{self.http.address}"
        self._version = -1

    def commit(self, changes: Sequence[RouteChange], next_offset: int) -> None:
        self._version += 1
        self.rig.served.committed(list(changes), {0: next_offset})
        self.state.moved(self._version)


@asynccontextmanager
async def _serving(count: int = 2) -> AsyncIterator[list[Served]]:
    servers = [Served() for _ in range(count)]
    async with asyncio.TaskGroup() as tasks:
        for server in servers:
            tasks.create_task(server.http.run())
        try:
            yield servers
        finally:
            for server in servers:
                server.http.stop()


def _log() -> Log:
    log = Log()
    log.register(a_registration())
    log.say(KvPut(S1, "ns", "key", "value"))
    log.change_settings(default_timeout_ms=60_000)
    return log


async def test_servers_of_the_same_rows_serve_the_same() -> None:
    log = _log()
    async with _serving() as (a, b):
        a.commit(log.output.changes, 3)
        for offset in range(3):  # in other commits, to the same offset
            b.commit([c for c in log.output.changes if c.offset == offset], offset + 1)
        found = await find_skew([a.url, b.url], 0)
    assert found.is_none
    assert found.states[a.url]["digest"] == found.states[b.url]["digest"]
    assert (found.states[a.url]["version"], found.states[b.url]["version"]) == (0, 2)
    assert found.states[a.url]["next_offsets"] == {"0": 3}


async def test_what_a_server_has_accepted_and_nobody_committed_is_no_skew() -> None:
    log = _log()
    async with _serving() as (a, b):
        for server in (a, b):
            server.commit(log.output.changes, 3)
        a.rig.view.accept(BrokerRegistered(over(S1, 2), a_registration("10.0.0.2:10911", 1)))
        a.rig.view.accept(KvPut(S1, "other", "key", "value"))
        a.rig.view.accept(KvPut(S1, "ns", "key", "changed"))
        found = await find_skew([a.url, b.url], 0)
        a.rig.view.commit([], {0: 3})
    assert found.is_none
    assert found.states[a.url]["pending_events"] == 3


async def test_one_that_is_behind_is_told_by_how_much() -> None:
    log = _log()
    async with _serving() as (a, b):
        a.commit(log.output.changes, 3)
        b.commit([c for c in log.output.changes if c.offset == 0], 1)
        found = await find_skew([a.url, b.url], 0)
    assert (found.lags, found.differences) == ([Lag(b.url, a.url, 0, 2)], [])


async def test_one_that_catches_up_is_waited_for() -> None:
    log = _log()
    async with _serving() as (a, b):
        a.commit(log.output.changes, 3)
        skew = asyncio.ensure_future(find_skew([a.url, b.url], 30))
        await get(a.url, "/state")  # by now it has been asked, or will be right away
        b.commit(log.output.changes, 3)
        assert (await skew).is_none


async def test_what_differs_at_equal_offsets_is_shown_by_rows() -> None:
    log = _log()
    async with _serving() as (a, b):
        a.commit(log.output.changes, 3)
        b.commit([c for c in log.output.changes if c.topic != "TopicTest" and c.kind != "kv"], 3)
        found = await find_skew([a.url, b.url], 0)
    assert [(d.key.kind, d.key.name) for d in found.differences] == [("broker", NAME), ("kv", "ns")]
    broker, kv = found.differences
    assert [(row["kind"], row["topic"]) for row in broker.only_first or ()] == [("queue_data", "TopicTest")]
    assert broker.only_second == []
    assert [row.get("value") for row in kv.only_first or ()] == [None, "value"]


async def test_the_age_is_counted_from_the_last_commit() -> None:
    async with _serving(1) as (a,):
        a.commit([], 1)
        a.rig.clock.advance(1_500)
        assert (await get(a.url, "/state"))["age_ms"] == 1_500


async def test_a_part_that_nobody_can_name_is_refused() -> None:
    async with _serving(1) as (a,):
        with pytest.raises(BadAnswer, match="answers 400"):
            await get(a.url, "/state/keys", partition="x")
        with pytest.raises(BadAnswer, match="answers 404"):
            await get(a.url, "/nothing")


async def test_no_server_is_named() -> None:
    url = f"http://127.0.0.1:{choose_port('127.0.0.1')}"
    with pytest.raises(ServerUnreachable, match=url):
        await find_skew([url, url], 0)


async def test_brokers_are_listed_with_why_they_are_held() -> None:
    log = Log(FoldSettings(guard_min_brokers=2))
    for number in range(3):
        log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
    log.pass_time(121_000)
    async with _serving(1) as (a,):
        a.commit(log.output.changes, len(log.records))
        brokers = await asyncio.to_thread(_brokers, a.url)
        others = await asyncio.to_thread(_brokers, a.url + "/brokers?cluster=none")
    assert [b["broker_name"] for b in brokers] == ["b0", "b1", "b2"]
    assert {b["held"]["goes_with"] for b in brokers} == {"expired"}
    assert (brokers[0]["cluster"], brokers[0]["servers"], others) == (CLUSTER, ["s1"], [])


def _brokers(url: str) -> list[dict[str, Any]]:
    path = url if "?" in url else url + "/brokers"
    with urllib.request.urlopen(path, timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


@pytest.mark.parametrize(
    ("text", "addrs"),
    [
        ("http://a:9880;http://b:9880", ("http://a:9880", "http://b:9880")),
        ("a:9880, b:9880/;a:9880", ("http://a:9880", "http://b:9880")),
        ("http://[::1]:9880", ("http://[::1]:9880",)),
    ],
)
def test_addresses_are_http(text: str, addrs: tuple[str, ...]) -> None:
    assert parse_http_addrs(text) == addrs


@pytest.mark.parametrize("text", ["", ";", "a", "http://a", "ftp://a:1", "a:x", "http://a b:1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="-n"):
        parse_http_addrs(text)
