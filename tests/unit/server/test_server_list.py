"""A server joins the list of name servers when it is complete, and leaves it before it stops; what clients receive."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from namesrv_stream.clock import SystemClock
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import KvDeleted, KvPut, Origin, ServerStarted, Tick
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.gateway.records import OutRecord
from namesrv_stream.server.start import opening
from namesrv_stream.server.start.identity import IdentityFile
from namesrv_stream.server.start.process import NameServerAddrs, advertised_address
from namesrv_stream.server.view.fleet import UNLISTED
from namesrv_stream.settings import RemotingSettings
from tests.support.builders import S1, S2, Log
from tests.support.http_rig import HttpRig
from tests.support.kafka import settings_for
from tests.support.server_rig import Rig

ADDRESSES = {S1.server_id: "10.0.0.1:9876", S2.server_id: "10.0.0.2:9876"}


class MemoryReader:
    """Reads one partition of a log in memory."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def __enter__(self) -> "MemoryReader":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def extents(self, partitions: range) -> dict[int, tuple[int, int]]:
        return {0: (0, len(self._records))}

    def batches_of(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[list[Record]]:
        yield self._records[slice(*ranges[0])]


def _rig(partitions: int = 1, **rig: Any) -> Rig:
    return Rig(**rig, partitions=partitions, limits=RemotingSettings(advertised_address="10.0.0.7:9876"))


def _ticks(rig: Rig) -> list[str | None]:
    """Beat once, and return the addresses in the ticks that this adds to the log."""
    before = len(rig.publisher.log)
    rig.beat()
    rig.publisher.ack()
    records = [orjson.loads(record.value) for record in rig.publisher.log[before:]]
    return [record.get("address") for record in records if record["kind"] == "tick"]


async def test_a_server_advertises_its_address_when_its_own_start_is_committed() -> None:
    rig = _rig()
    rig.talk()
    assert _ticks(rig) == [None]
    rig.commit()
    assert _ticks(rig) == ["10.0.0.7:9876"]
    rig.commit()
    assert [s.is_listed for s in rig.view.table.known_servers(1)] == [True]


async def test_a_server_advertises_its_address_only_if_every_partition_is_complete() -> None:
    rig = _rig(partitions=2)
    rig.talk()
    rows = Log(partition=0, partitions=2)
    rows.say(ServerStarted(S1._replace(server_epoch=7)))
    rig.served.committed(rows.output.changes, {0: 1})
    assert _ticks(rig) == [None, None]


@pytest.mark.parametrize("is_in_tables", [True, False])
async def test_a_server_is_listed_although_its_earlier_start_was_ahead_of_the_clock(
    is_in_tables: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, other = ServerStarted(Origin("s1", 9_000)), ServerStarted(Origin("s2", 50_000))
    log = Log()
    rows = [row for event in (other, earlier) for row in log.say(event)]
    view = RouteView()
    if is_in_tables:
        view.commit(rows, {0: len(log.records)})
    settings = settings_for(tmp_path)
    monkeypatch.setattr(opening, "LogReader", lambda settings, **_: MemoryReader(log.records))
    for name in ("ensure_topics", "log_first_settings", "check_log", "refuse_rival"):
        monkeypatch.setattr(opening, name, lambda *_: None)
    folded = FoldedLog()
    has_kafka, known_epoch = await opening.open_log(settings, "s1", view, folded, SystemClock())
    identity = IdentityFile(tmp_path, "s1").begin_epoch(1_000, known_epoch)
    assert (has_kafka, identity) == (True, ("s1", 9_001))
    rig = _rig(identity=identity)
    for event in (other, earlier):
        rig.publisher.append(OutRecord(0, None, encode_event(event)))
    rig.talk()
    rig.commit()
    assert _ticks(rig) == ["10.0.0.7:9876"]
    rig.commit()
    assert [s.server_id for s in rig.view.table.known_servers(1) if s.is_listed] == ["s1"]


async def test_a_server_that_leaves_the_list_logs_this_at_once_and_advertises_no_address() -> None:
    rig = _rig()
    rig.talk()
    rig.commit()
    assert _ticks(rig) == ["10.0.0.7:9876"]
    before = len(rig.publisher.log)
    rig.gateway.leave_list()
    rig.publisher.ack()
    assert rig.publisher.kinds(rig.publisher.log[before:]) == ["tick"]
    assert _ticks(rig) == [None]
    rig.commit()
    assert [s.is_listed for s in rig.view.table.known_servers(1)] == [False]


@pytest.mark.parametrize(
    ("remoting", "address"),
    [
        ({"listen_host": "0.0.0.0"}, ""),
        ({"listen_host": "::"}, ""),
        ({"listen_host": "127.0.0.1"}, ""),
        ({"listen_host": "::1"}, ""),
        ({"listen_host": "fe80::1"}, ""),
        ({"listen_host": "localhost"}, ""),
        ({"listen_host": "10.0.0.5"}, "10.0.0.5:9876"),
        ({"listen_host": "fd00::5"}, "[fd00::5]:9876"),
        ({"listen_host": "ns1.example.com"}, "ns1.example.com:9876"),
        ({"advertised_address": "ns1.example.com:19876"}, "ns1.example.com:19876"),
        ({"listen_host": "127.0.0.1", "advertised_address": "127.0.0.1:9876"}, "127.0.0.1:9876"),
    ],
)
def test_only_an_address_that_others_can_use_is_advertised(remoting: dict[str, str], address: str) -> None:
    assert advertised_address(RemotingSettings(**remoting), 9876) == address  # type: ignore[arg-type]


def test_a_configured_list_replaces_the_list_of_the_log() -> None:
    listed = list(ADDRESSES.values())
    assert NameServerAddrs((), "0.0.0.0", 1).reached_by("10.0.0.9", listed) == listed
    assert NameServerAddrs(("a:1",), "0.0.0.0", 1).reached_by("10.0.0.9", listed) == ["a:1"]


def _served(*unlisted: str) -> HttpRig:
    served, log = HttpRig(), Log()
    for server in (S2, S1):
        log.say(ServerStarted(server))
        log.say(Tick(server, ADDRESSES[server.server_id]))
    for server_id in unlisted:
        log.say(KvPut(S1, UNLISTED, server_id, "removal"))
    served.commit(log.output.changes, {0: len(log.records)})
    return served


async def test_clients_receive_the_servers_that_are_alive_according_to_the_log() -> None:
    served = _served()
    async with served.serving():
        answer = (await served.get("/rocketmq/nsaddr")).body
        found = (await served.get("/servers")).json()
        metrics = (await served.get("/metrics")).body.decode()
    assert "\nrocketmq_namesrv_listed_servers 2.0\n" in metrics
    assert answer == b"10.0.0.1:9876;10.0.0.2:9876\n"
    assert (found["addresses"], found["source"]) == (list(ADDRESSES.values()), "log")
    assert found["servers"][0] == {
        "server_id": "s1",
        "server_epoch": S1.server_epoch,
        "status": "talking",
        "address": "10.0.0.1:9876",
        "is_listed": True,
        "why_not": None,
    }


async def test_an_operator_can_remove_a_server_from_the_list_and_restore_it() -> None:
    served = _served("s2", "nobody")
    async with served.serving():
        found = (await served.get("/servers")).json()
        page = (await served.get("/console/parts/servers")).body.decode()
        served.rig.served.accept(KvDeleted(S1, UNLISTED, "s2"))
        again = (await served.get("/servers")).json()
    assert found["addresses"] == ["10.0.0.1:9876"]
    assert found["servers"][1]["why_not"] == f"unlisted by the KV entry {UNLISTED}/s2"
    assert (found["unknown_unlisted"], found["still_listed"]) == (["nobody"], [])
    assert "No server has the id nobody, which is unlisted by a KV entry." in page
    assert again["addresses"] == list(ADDRESSES.values())


async def test_servers_stay_listed_if_the_list_would_be_empty_otherwise() -> None:
    served = _served("s1", "s2")
    async with served.serving():
        answer = (await served.get("/rocketmq/nsaddr")).body
        found = (await served.get("/servers")).json()
        page = (await served.get("/console/parts/servers")).body.decode()
    assert answer == b"10.0.0.1:9876;10.0.0.2:9876\n"
    assert found["still_listed"] == ["s1", "s2"]
    assert "s2 stays listed: its KV entry has no effect, because the list would be empty." in page


async def test_a_stopping_server_does_not_list_itself() -> None:
    served = _served()
    served.rig.gateway.leave_list()
    async with served.serving():
        found = (await served.get("/servers")).json()
    assert found["addresses"] == ["10.0.0.2:9876"]
    assert found["servers"][0]["why_not"] == "it is stopping, or not complete yet"


async def test_without_an_advertised_address_a_server_names_itself() -> None:
    served = HttpRig()
    async with served.serving():
        found = (await served.get("/servers")).json()
    assert found == {
        "addresses": ["127.0.0.1:9876"],
        "source": "this server",
        "servers": [],
        "unknown_unlisted": [],
        "still_listed": [],
    }
