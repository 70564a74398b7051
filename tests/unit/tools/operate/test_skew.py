"""Comparison of servers over their real HTTP ports."""

import asyncio
import json
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from namesrv_stream.client.server_states import (
    BadAnswer,
    PartRows,
    ServerState,
    ServerUnreachable,
    get,
    parse_http_addrs,
)
from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port
from namesrv_stream.route.changes import Difference, RouteChange
from namesrv_stream.route.digest import Part, TableContent, part_rows
from namesrv_stream.route.events import BrokerRegistered, KvPut
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.server.view import served_state
from namesrv_stream.tools.operate.skew import Lag, find_skew
from tests.support.builders import CLUSTER, NAME, READ_ONLY, RW, S1, Log, a_registration, over
from tests.support.http_rig import HttpRig


class Served(HttpRig):
    """A server of one partition with its HTTP port."""

    def commit_to(self, changes: Sequence[RouteChange], next_offset: int) -> None:
        self.commit(changes, {0: next_offset})


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


async def test_servers_with_equal_rows_have_no_difference() -> None:
    log = _log()
    async with _serving() as (a, b):
        a.commit_to(log.output.changes, 3)
        for offset in range(3):  # in other commits, to the same offset
            b.commit_to([c for c in log.output.changes if c.offset == offset], offset + 1)
        found = await find_skew([a.url, b.url], 0)
    assert found.is_none
    assert found.exit_code == 0
    ours, theirs = found.states[a.url], found.states[b.url]
    assert (ours.digest, ours.partitions) == (theirs.digest, theirs.partitions)
    assert (ours.version, theirs.version) == (0, 2)
    assert ours.next_offsets == {0: 3}


async def test_uncommitted_events_are_no_difference() -> None:
    log = _log()
    async with _serving() as (a, b):
        for server in (a, b):
            server.commit_to(log.output.changes, 3)
        a.rig.view.accept(BrokerRegistered(over(S1, 2), a_registration("10.0.0.2:10911", 1)))
        a.rig.view.accept(KvPut(S1, "other", "key", "value"))
        a.rig.view.accept(KvPut(S1, "ns", "key", "changed"))
        found = await find_skew([a.url, b.url], 0)
        a.rig.view.commit([], {0: 3})
    assert found.is_none
    assert found.states[a.url].pending_events == 3


async def test_server_that_is_behind_is_reported_with_its_lag() -> None:
    log = _log()
    async with _serving() as (a, b):
        a.commit_to(log.output.changes, 3)
        b.commit_to([c for c in log.output.changes if c.offset == 0], 1)
        found = await find_skew([a.url, b.url], 0)
    assert (found.lags, found.differences, found.exit_code) == ([Lag(b.url, a.url, 0, 2)], [], 1)


async def test_skew_waits_for_a_server_that_catches_up() -> None:
    log = _log()
    async with _serving() as (a, b):
        a.commit_to(log.output.changes, 3)
        skew = asyncio.ensure_future(find_skew([a.url, b.url], 30))
        await get(a.url, "/state", ServerState)  # by now skew has queried the server, or will at once
        b.commit_to(log.output.changes, 3)
        assert (await skew).is_none


async def test_differences_at_equal_offsets_are_shown_as_rows() -> None:
    log = _log()
    async with _serving() as (a, b):
        a.commit_to(log.output.changes, 3)
        b.commit_to([c for c in log.output.changes if c.topic != "TopicTest" and c.kind != "kv"], 3)
        found = await find_skew([a.url, b.url], 0)
    assert [(d.key.kind, d.key.name) for d in found.differences] == [("broker", NAME), ("kv", "ns")]
    broker, kv = found.differences
    assert [(row["kind"], row["topic"]) for row in broker.only_first or ()] == [("queue_data", "TopicTest")]
    assert broker.only_second == []
    assert [row.get("value") for row in kv.only_first or ()] == [None, "value"]


async def test_the_age_is_counted_from_the_last_commit() -> None:
    async with _serving(1) as (a,):
        a.commit_to([], 1)
        a.rig.clock.advance(1_500)
        assert (await get(a.url, "/state", ServerState)).age_ms == 1_500


@pytest.mark.parametrize("partition", ["x", "", "-1", "1", "01", "9" * 5_000])
async def test_unknown_partition_is_refused(partition: str) -> None:
    async with _serving(1) as (a,):
        for path in ("/state/keys", "/state/rows"):
            with pytest.raises(BadAnswer, match="with 400"):
                await get(a.url, path, PartRows, partition=partition, kind="kv")


async def test_unknown_part_has_no_rows() -> None:
    async with _serving(1) as (a,):
        assert await get(a.url, "/state/rows", PartRows, partition=0, kind="kv", name="x") == PartRows({}, [])


async def test_answering_servers_are_compared_despite_one_that_does_not_answer() -> None:
    silent = f"http://127.0.0.1:{choose_port('127.0.0.1')}"
    async with _serving() as (a, b):
        found = await find_skew([a.url, silent, b.url], 0)
    assert (list(found.states), list(found.failures)) == ([a.url, b.url], [silent])
    assert isinstance(found.failures[silent], ServerUnreachable)
    assert (found.is_none, found.exit_code) == (False, 3)


_HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        _HEAD + b"{}",
        _HEAD + b"[]",
        _HEAD + b"\xff",
        _HEAD + b'{"next_offsets": 3}',
    ],
)
async def test_server_of_another_product_is_named(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as other:
        url = "http://{}:{}".format(*other.sockets[0].getsockname())
        found = await find_skew([url], 0)
    assert isinstance(found.failures[url], BadAnswer)
    assert (found.exit_code, url in str(found.failures[url])) == (1, True)


async def test_a_server_reads_the_rows_of_a_part_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def noted(content: TableContent, part: Part) -> Iterable[Difference]:
        threads.append(threading.current_thread())
        return part_rows(content, part)

    monkeypatch.setattr(served_state, "part_rows", noted)
    log = Log()
    log.register(a_registration())
    async with _serving(1) as (a,):
        a.commit_to(log.output.changes, 1)
        await asyncio.to_thread(_read, f"{a.url}/state/rows?partition=0&kind=broker&name={NAME}")
    assert threads
    assert threading.current_thread() not in threads


async def test_many_differing_rows_are_found_at_once() -> None:
    log, other = Log(), Log()
    topics = {f"topic-{number}": RW for number in range(20_000)}
    log.register(a_registration(topics=topics))
    other.register(a_registration(topics=topics | {"topic-7": READ_ONLY}))
    async with _serving() as (a, b):
        a.commit_to(log.output.changes, 1)
        b.commit_to(other.output.changes, 1)
        (difference,) = (await find_skew([a.url, b.url], 0)).differences
    sides = (difference.only_first or (), difference.only_second or ())
    assert [[(row["topic"], row["perm"]) for row in rows if row["kind"] == "queue_data"] for rows in sides] == [
        [("topic-7", 6)],
        [("topic-7", 4)],
    ]


async def test_brokers_are_listed_with_why_they_are_held() -> None:
    log = Log(FoldSettings(guard_known_ms=0, guard_min_brokers=2))
    for number in range(3):
        log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
    log.pass_time(121_000)
    async with _serving(1) as (a,):
        a.commit_to(log.output.changes, len(log.records))
        brokers = await asyncio.to_thread(_brokers, a.url)
        others = await asyncio.to_thread(_brokers, a.url + "/brokers?cluster=none")
    assert [b["broker_name"] for b in brokers] == ["b0", "b1", "b2"]
    assert {b["held"]["goes_with"] for b in brokers} == {"expired"}
    assert (brokers[0]["cluster"], brokers[0]["servers"], others) == (CLUSTER, ["s1"], [])


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


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
        ("http://[::1]:9880;::1:9880", ("http://[::1]:9880",)),
        ("[fe80::1%eth0]:9880", ("http://[fe80::1%eth0]:9880",)),
    ],
)
def test_addresses_are_http(text: str, addrs: tuple[str, ...]) -> None:
    assert parse_http_addrs(text) == addrs


@pytest.mark.parametrize("text", ["", ";", "a", "http://a", "ftp://a:1", "a:x", "http://a b:1", "http://a:1/path"])
def test_a_text_that_is_not_an_http_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--http"):
        parse_http_addrs(text)


async def test_unknown_host_name_is_reported_with_its_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve = socket.getaddrinfo

    def resolves(host: Any, *more: Any, **named: Any) -> Any:
        return resolve("127.0.0.1" if host == b"ns2.test" else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolves)
    async with _serving(1) as (server,):
        with pytest.raises(ServerUnreachable, match=r"421: add this host name to its http\.allowed_hosts"):
            await get(server.url.replace("127.0.0.1", "ns2.test"), "/state", ServerState)
