"""``/why`` over a real socket, with real tables; and its command."""

import asyncio
import json
from pathlib import Path

import pytest

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.events import KvPut
from namesrv_stream.route.model import Registration
from namesrv_stream.settings import Settings
from tests.support.builders import BASE, RW, S1, Log, a_registration
from tests.support.command_line import run_command
from tests.support.http_rig import HttpRig
from tests.support.name_server import a_registration_request
from tests.support.tables import TablesOfLog, settings_in

BROKER = a_registration(topics={"TopicTest": RW, "TBW102": RW, **BASE})
GONE = a_registration("10.0.0.2:1", broker_name="broker-b", topics={"Gone": RW, **BASE})


def _served(tmp_path: Path, **http: object) -> HttpRig:
    """A server whose broker-b has unregistered, in memory and in its tables."""
    tables = TablesOfLog(tmp_path)
    tables.log.register(BROKER)
    tables.log.register(GONE, connection=2)
    tables.log.unregister(GONE, connection=2)
    tables.log.say(KvPut(S1, "ns", "key", "value"))
    tables.commit()
    values = tables.settings.model_dump()
    values["http"] |= http
    served = HttpRig(Settings.model_validate(values))
    served.rig.talk()
    served.commit(tables.log.output.changes, {0: len(tables.log.records)})
    return served


async def test_a_removed_topic_is_explained_with_its_row(tmp_path: Path) -> None:
    served = _served(tmp_path)
    async with served.serving():
        found = (await served.get("/why/topics/Gone")).json()
        broker = (await served.get("/why/brokers/broker-b")).json()
        text = (await served.get("/metrics")).body.decode()
    assert not found["is_routed"]
    assert found["findings"][0]["cause"] == broker["findings"][0]["cause"] == "broker_unregistered"
    row = found["findings"][0]["evidence"][0]
    assert (row["partition"], row["offset"], row["topic"]) == (0, 2, "Gone")
    assert found["findings"][0]["since_ms"] == row["at_ms"]
    assert 'rocketmq_namesrv_why_total{cause="broker_unregistered",subject="topic"} 1.0' in text


async def test_the_answer_comes_from_memory_if_the_tables_cannot_be_read(tmp_path: Path) -> None:
    served = HttpRig(settings_in(tmp_path))
    served.rig.talk()
    served.commit(_changes(BROKER), {0: 1})
    async with served.serving():
        found = (await served.get("/why/topics/Gone")).json()
        known = (await served.get("/why/topics/TopicTest")).json()
        near = (await served.get("/why/topics/topictest")).json()
    assert [each["cause"] for each in found["findings"]] == ["server_stale", "never_registered"]
    assert [each["cause"] for each in near["findings"]] == ["server_stale", "near_miss", "never_registered"]
    assert "answers come from memory" in found["findings"][0]["text"]
    assert known["is_routed"]


async def test_a_topic_whose_only_master_is_late_is_not_fine(tmp_path: Path) -> None:
    served = _served(tmp_path)
    rig = served.rig
    rig.ask(rig.connect(), a_registration_request())
    for _ in range(130):  # more than half of the timeout of 120 s
        rig.beat()
        rig.publisher.ack()
    async with served.serving():
        topic = (await served.get("/why/topics/TopicTest")).json()
        broker = (await served.get("/why/brokers/broker-a")).json()
    for found in (topic, broker):
        assert "heartbeat_late" in [each["cause"] for each in found["findings"]]


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/why/topics/%20", "topic: expected a name"),
        (f"/why/brokers/{'x' * 1_025}", "broker_name: expected at most 1,024 characters, got 1,025"),
        ("/why/topics/T?zone=", "zone: is empty"),
        ("/why/topics/T?client=broker-a", "client: expected an IP address"),
        ("/why/topics/T?client=10.0.0.1&at=-1h", "client: cannot be combined with at"),
        ("/why/topics/T?as_of=-1h", "as_of: unknown parameter; known: at, cluster, zone, client"),
        ("/why/topics/T?at=nonsense", "query: at: 'nonsense' is not a point in time"),
    ],
)
async def test_an_invalid_parameter_is_refused_by_name(tmp_path: Path, path: str, detail: str) -> None:
    served = _served(tmp_path)
    async with served.serving():
        found = await served.get(path)
    assert found.status == 400
    assert found.json()["detail"].startswith(detail)


async def test_a_past_time_needs_the_history(tmp_path: Path) -> None:
    served = _served(tmp_path)
    async with served.serving():
        found = await served.get("/why/topics/T?at=now")
    assert found.status == 404
    assert "history" in found.json()["detail"]


async def test_another_server_that_has_the_route_is_named(tmp_path: Path) -> None:
    other = HttpRig()
    other.commit(_changes(GONE), {0: 1})
    async with other.serving():
        served = _served(tmp_path, console_servers=[other.url, "http://127.0.0.1:1"])
        async with served.serving():
            topic = (await served.get("/why/topics/Gone")).json()
            broker = (await served.get("/why/brokers/broker-b")).json()
    for found in (topic, broker):
        assert [each["cause"] for each in found["findings"]] == ["other_server", "broker_unregistered"]
        assert other.url in found["findings"][0]["text"]


async def test_the_console_explains_why_a_search_finds_nothing(tmp_path: Path) -> None:
    served = _served(tmp_path)
    async with served.serving():
        topic = (await served.get("/console/parts/route?topic=Gone")).body.decode()
        broker = (await served.get("/console/parts/brokers?find=broker-x")).body.decode()
        search = (await served.get("/console/parts/topics?find_topic=Gone")).body.decode()
    assert "broker unregistered" in topic
    assert "partition 0 offset 2" in topic
    assert "near miss" in broker
    assert "Why?" in search


async def test_the_command_prints_the_answer(tmp_path: Path) -> None:
    served, other = _served(tmp_path), HttpRig()
    other.commit(_changes(GONE), {0: 1})
    async with served.serving(), other.serving():
        text = await asyncio.to_thread(run_command, "why", "Gone", "--http", served.url)
        as_json = await asyncio.to_thread(run_command, "why", "broker-a", "--json", "--http", served.url)
        both = await asyncio.to_thread(run_command, "why", "Gone", "--http", f"{served.url};{other.url}")
    assert text.code == 1, text.err
    assert text.out.splitlines()[0] == f"topic Gone at {served.url}: no route"
    assert "cause     broker_unregistered: no broker of Gone is left" in text.out
    assert "(partition 0 offset 2)" in text.out
    (answer,) = json.loads(as_json.out)["answers"]
    assert (answer["subject"], answer["is_routed"]) == ("broker", True)
    assert f"another name server routes Gone, and this one does not: {other.url}" in both.out


async def test_the_command_names_another_server_once(tmp_path: Path) -> None:
    other = HttpRig()
    other.commit(_changes(GONE), {0: 1})
    async with other.serving():
        values = settings_in(tmp_path).model_dump()
        values["http"] |= {"console_servers": [other.url]}
        served = HttpRig(Settings.model_validate(values))  # without tables, so another cause comes first
        served.rig.talk()
        async with served.serving():
            urls = f"{served.url};{other.url}"
            both = await asyncio.to_thread(run_command, "why", "Gone", "--topic", "--json", "--http", urls)
    found = [[each["cause"] for each in answer["findings"]] for answer in json.loads(both.out)["answers"]]
    assert found[0] == ["server_stale", "other_server", "no_brokers"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("T", "--topic", "--broker"), "--topic: cannot be combined with --broker"),
        (("T", "--at", "-1h", "--http", "http://a:1"), "--at: cannot be combined with --http"),
        ((" ",), "NAME: is empty"),
        (("T", "--zone", ""), "--zone: is empty"),
        (("T", "--client", "broker-a"), "--client: expected an IP address, not 'broker-a'"),
        (("T", "--client", "10.0.0.1", "--at", "-1h"), "--client: cannot be combined with --at"),
    ],
)
def test_invalid_options_on_the_command_line_are_refused_by_name(arguments: tuple[str, ...], error: str) -> None:
    refused = run_command("why", *arguments)
    assert refused.code == 2
    assert error in refused.err


def _changes(registration: Registration) -> list[RouteChange]:
    log = Log()
    log.register(registration)
    return log.output.changes
