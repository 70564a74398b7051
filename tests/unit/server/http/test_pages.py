"""What the HTTP port answers, over real sockets."""

import asyncio

import pytest

from namesrv_stream.route.events import BrokerRegistered, KvPut
from namesrv_stream.route.model import DataVersion
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.server.http import HttpServer
from tests.support.builders import NAME, READ_ONLY, RW, S1, Log, a_registration, over
from tests.support.http_rig import HttpRig

_NONSENSE = (
    *("/topics?limit=0", "/topics?limit=x", "/topics?limit=-1", "/topics?limit=1e3", "/brokers?state=dead"),
    *("/changes?since=x", "/changes?kind=x", "/changes?wait=61", "/changes?wait=x", "/changes/state?kind=x"),
    *("/state/keys?partition=1", "/state/rows?partition=0"),
)


def _log() -> Log:
    log = Log(FoldSettings(guard_min_brokers=2))
    log.register(a_registration())
    log.register(a_registration("10.0.0.2:1", broker_name="broker-b", cluster="c1", topics={"B": RW, "C": RW}))
    log.say(KvPut(S1, "ns", "key", "value"))
    return log


def _committed() -> HttpRig:
    served, log = HttpRig(), _log()
    served.commit(log.output.changes, {0: len(log.records)})
    return served


async def test_a_route_is_loaded_once_and_again_when_it_has_changed() -> None:
    served = _committed()
    async with served.serving():
        first = await served.get("/routes/TopicTest")
        tag = first.headers["etag"]
        for condition in (tag, f'"other", W/{tag}', "*"):
            again = await served.get("/routes/TopicTest", If_None_Match=condition)
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        newer = a_registration(topics={"TopicTest": READ_ONLY, "Other": RW}, data_version=DataVersion(2, 2_000, 0))
        served.rig.served.accept(BrokerRegistered(over(S1, 1), newer))
        changed = await served.get("/routes/TopicTest", If_None_Match=tag)
    assert first.status == changed.status == 200
    assert first.json()["queueDatas"][0]["brokerName"] == NAME
    assert changed.headers["etag"] != tag


async def test_a_topic_without_a_route_is_a_problem_that_says_so() -> None:
    served = _committed()
    async with served.serving():
        found = await served.get("/routes/no%20such")
    assert found.status == 404
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json()["detail"].startswith("no route for topic no such")


@pytest.mark.parametrize(
    ("query", "topics", "following"),
    [
        ("", ["B", "C", "TopicTest", "baseTopic"], None),
        ("?prefix=Top", ["TopicTest"], None),
        ("?cluster=c1", ["B", "C"], None),
        ("?cluster=none", [], None),
        ("?limit=1", ["B"], "B"),
        ("?after=C", ["TopicTest", "baseTopic"], None),
        ("?limit=1&after=B", ["C"], "C"),
    ],
)
async def test_topics_are_listed_in_order_by_cluster_prefix_and_page(
    query: str, topics: list[str], following: str | None
) -> None:
    served = _committed()
    async with served.serving():
        found = (await served.get(f"/topics{query}")).json()
    assert found == {"count": len(topics), "next": following, "topics": topics}


async def test_pages_of_many_topics_have_each_once() -> None:
    served, log = HttpRig(), Log()
    log.register(a_registration(topics={f"t{n * 7919 % 10_007}": RW for n in range(10_000)}))
    served.commit(log.output.changes, {0: 1})
    names: list[str] = []
    async with served.serving():
        after = ""
        while after is not None:
            page = (await served.get(f"/topics?limit=3000&after={after}")).json()
            names += page["topics"]
            after = page["next"]
        whole = (await served.get("/topics")).json()
    assert names == whole["topics"] == sorted(names)
    assert whole["count"] == 10_000


async def test_clusters_brokers_and_kv_are_listed() -> None:
    served = _committed()
    async with served.serving():
        clusters = (await served.get("/clusters")).json()
        brokers = (await served.get("/brokers?cluster=c1")).json()
        held = (await served.get("/brokers?state=held")).json()
        kv = (await served.get("/kv")).json()
        entries = (await served.get("/kv/ns")).json()
        nothing = await served.get("/kv/other")
    assert clusters == {"c0": {NAME: {"0": "10.0.0.1:10911"}}, "c1": {"broker-b": {"0": "10.0.0.2:1"}}}
    assert [(b["broker_name"], b["servers"], b["held"]) for b in brokers] == [("broker-b", ["s1"], None)]
    assert held == []
    assert (kv, entries) == ({"ns": {"key": "value"}}, {"key": "value"})
    assert nothing.status == 404


async def test_lists_of_nothing_are_empty() -> None:
    served = HttpRig()
    async with served.serving():
        found = [(await served.get(path)).json() for path in ("/topics", "/clusters", "/brokers", "/kv")]
    assert found == [{"count": 0, "next": None, "topics": []}, {}, [], {}]


@pytest.mark.parametrize("path", _NONSENSE)
async def test_a_question_that_makes_no_sense_is_refused_with_what_is_expected(path: str) -> None:
    served = _committed()
    async with served.serving():
        found = await served.get(path)
    assert found.status == 400
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json()["detail"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_only_questions_are_answered(method: str) -> None:
    served = _committed()
    async with served.serving():
        found = await served.get("/kv", method)
    assert (found.status, found.headers["allow"]) == (405, "GET, HEAD")
    assert found.json()["title"] == "Method Not Allowed"


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    served = _committed()
    async with served.serving():
        for path in ("/routes/TopicTest", "/topics", "/healthz", "/changes", "/openapi.json"):
            get, head = await served.get(f"{path}?wait=0"), await served.get(path, "HEAD")
            assert (head.status, head.body) == (200, b""), path
            assert head.headers["content-type"] == get.headers["content-type"]


@pytest.mark.parametrize("headers", [{"Content_Length": "5"}, {"Transfer_Encoding": "chunked"}])
async def test_a_question_with_a_body_is_refused_and_the_connection_closed(headers: dict[str, str]) -> None:
    served = _committed()
    async with served.serving():
        found = await served.get("/kv", body=b"hello", **headers)
    assert (found.status, found.headers["connection"]) == (413, "close")


async def test_what_is_nowhere_is_a_problem_that_says_where_to_look() -> None:
    served = _committed()
    async with served.serving():
        found = await served.get("/nowhere")
    assert found.status == 404
    assert "/openapi.json" in found.json()["detail"]


async def test_what_is_no_http_is_a_problem_too() -> None:
    served = _committed()
    host, _, port = served.http.address.rpartition(":")
    async with served.serving():
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x00\x00\x01\x02 no http\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer


async def test_a_fault_of_ours_is_a_problem_and_the_server_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = _committed()

    def fail(*_: object, **__: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(served.rig.server.answers, "route_body", fail)
    async with served.serving():
        found = await served.get("/routes/TopicTest")
        other = await served.get("/kv")
    assert (found.status, found.headers["content-type"], other.status) == (500, "application/problem+json", 200)
    assert "HTTP request failed unexpectedly path=/routes/TopicTest" in caplog.text


def test_every_path_is_answered_by_one_endpoint() -> None:
    http: HttpServer = HttpRig().http
    paths = [route.path for route in http.routes]
    assert len(paths) == len(set(paths))
