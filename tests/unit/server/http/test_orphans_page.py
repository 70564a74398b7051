"""``/orphans`` over a real socket, its command, and how a server records which topics clients query."""

import asyncio
import json
from typing import Any

import pytest

from namesrv_stream.server.core import ASKED_RESOLUTION_MS
from tests.support.builders import Log, a_registration
from tests.support.command_line import Finished, run_command
from tests.support.http_rig import HttpRig
from tests.support.name_server import a_route_request

DAY_MS = 86_400_000


def _served() -> HttpRig:
    served, log = HttpRig(), Log()
    log.register(a_registration())
    served.rig.talk()
    served.commit(log.output.changes, {0: 1})
    return served


def _ask_for(served: HttpRig, topic: str) -> None:
    served.rig.ask(served.rig.connect(), a_route_request(topic))


async def _kinds(served: HttpRig, query: str = "") -> list[tuple[str, str]]:
    answer = (await served.get(f"/orphans{query}")).json()
    return [(orphan["kind"], orphan["topic"] or orphan["broker_name"]) for orphan in answer["orphans"]]


async def test_queried_topics_are_no_orphans() -> None:
    served = _served()
    async with served.serving():
        before = await _kinds(served)
        _ask_for(served, "TopicTest")
        after = await _kinds(served)
        text = (await served.get("/metrics")).body.decode()

    assert before == [
        ("broker_not_asked", "broker-a"),
        ("topic_not_asked", "TopicTest"),
        ("topic_not_asked", "baseTopic"),
    ]
    assert after == [("topic_not_asked", "baseTopic")]
    assert "rocketmq_namesrv_asked_topics 1.0" in text


async def test_the_console_shows_when_topics_were_queried() -> None:
    served = _served()
    _ask_for(served, "TopicTest")
    async with served.serving():
        soon = (await served.get("/console/parts/topics")).body.decode()
        served.rig.clock.advance(3 * 3_600_000)
        later = (await served.get("/console/parts/topics")).body.decode()
    assert soon.count("in the last two hours") == soon.count("not since the server started") == 1
    assert "3 h ago" in later
    assert '<a href="/orphans">' in later


async def test_queries_with_cached_answers_are_recorded_once_per_hour() -> None:
    served = _served()
    _ask_for(served, "TopicTest")
    first_ms = served.rig.server.asked["TopicTest"]
    served.rig.core.queries.beat(first_ms)
    _ask_for(served, "TopicTest")

    served.rig.clock.advance(1_000)
    _ask_for(served, "TopicTest")
    noted_ms = served.rig.server.asked["TopicTest"]
    served.rig.core.queries.beat(first_ms + ASKED_RESOLUTION_MS)
    _ask_for(served, "TopicTest")

    assert noted_ms == first_ms
    assert served.rig.server.asked["TopicTest"] == first_ms + 1_000


async def test_the_query_time_of_a_topic_without_a_route_is_forgotten() -> None:
    served = _served()
    _ask_for(served, "TopicTest")
    served.rig.server.asked["deleted"] = 0

    served.rig.core.queries.beat(ASKED_RESOLUTION_MS)

    assert set(served.rig.server.asked) == {"TopicTest"}


async def test_only_queries_within_the_given_days_count() -> None:
    served = _served()
    for topic in ("TopicTest", "baseTopic"):
        _ask_for(served, topic)
    served.rig.clock.advance(3 * DAY_MS)
    async with served.serving():
        assert await _kinds(served, "?days=3") == []
        assert len(await _kinds(served, "?days=2")) == 3
        answer = (await served.get("/orphans")).json()
    assert (answer["at_ms"] - answer["counted_since_ms"], answer["days"]) == (3 * DAY_MS, 7)


@pytest.mark.parametrize("query", ["days=0", "days=-1", "days=x", "days=4000", "days=", "day=3", "days=1&days=2"])
async def test_an_invalid_parameter_is_refused_by_name(query: str) -> None:
    served = _served()
    async with served.serving():
        found = await served.get(f"/orphans?{query}")
    assert found.status == 400
    assert found.json()["detail"].startswith(query.partition("=")[0])


def _json(ran: Finished) -> Any:
    return json.loads(ran.out)


async def test_the_command_merges_the_answers_of_all_servers() -> None:
    one, other = _served(), _served()
    _ask_for(other, "TopicTest")
    async with one.serving(), other.serving():
        urls = f"{one.url};{other.url}"
        text = await asyncio.to_thread(run_command, "orphans", "--http", urls)
        found = await asyncio.to_thread(run_command, "orphans", "--http", urls, "--json")

    assert text.code == found.code == 0
    assert text.out.splitlines()[:2] == ["topic_not_asked: no client asked for the topic (1)", "  baseTopic"]
    assert "less than 7 days: it does not know who asked before" in text.out
    assert [orphan["topic"] for orphan in _json(found)["orphans"]] == ["baseTopic"]
    assert set(_json(found)["servers"]) == {one.url, other.url}


async def test_the_command_names_a_server_that_does_not_answer() -> None:
    served = _served()
    async with served.serving():
        ran = await asyncio.to_thread(run_command, "orphans", "--http", f"{served.url};http://127.0.0.1:1", "--json")

    assert ran.code == 3
    assert list(_json(ran)["failures"]) == ["http://127.0.0.1:1"]


def test_the_command_refuses_invalid_days_by_name() -> None:
    ran = run_command("orphans", "--days", "0")
    assert ran.code == 2
    assert "--days" in ran.err
