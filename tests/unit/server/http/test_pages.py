"""The answers of the HTTP port, over real sockets."""

import html
import re

import pytest

from namesrv_stream.processor.name_server import Accepted
from namesrv_stream.route.events import BrokerRegistered, KvPut
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import DataVersion
from namesrv_stream.route.registration_json import RetainedRegistration
from namesrv_stream.server.http import routes_page
from namesrv_stream.server.http.http_server import HttpServer, document
from tests.support.builders import NAME, READ_ONLY, RW, S1, Log, a_registration, over
from tests.support.http_rig import HttpRig

_NONSENSE = (
    *("/topics?limit=0", "/topics?limit=x", "/topics?limit=-1", "/topics?limit=1e3", "/brokers?state=dead"),
    *("/changes?since=x", "/changes?kind=x", "/changes?wait=61", "/changes?wait=x", "/changes/state?kind=x"),
    *("/state/keys?partition=1", "/state/rows?partition=0"),
)


def _log() -> Log:
    log = Log(FoldSettings(guard_known_ms=0, guard_min_brokers=2))
    log.register(a_registration())
    log.register(a_registration("10.0.0.2:1", broker_name="broker-b", cluster="c1", topics={"B": RW, "C": RW}))
    log.say(KvPut(S1, "ns", "key", "value"))
    return log


def _committed() -> HttpRig:
    served, log = HttpRig(), _log()
    served.commit(log.output.changes, {0: len(log.records)})
    return served


async def test_a_known_route_is_sent_again_only_when_it_has_changed() -> None:
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


async def test_a_topic_without_a_route_is_answered_404_with_the_reason() -> None:
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


async def test_pages_of_many_topics_contain_every_topic_once() -> None:
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


async def test_lists_of_an_empty_server_are_empty() -> None:
    served = HttpRig()
    async with served.serving():
        found = [(await served.get(path)).json() for path in ("/topics", "/clusters", "/brokers", "/kv")]
    assert found == [{"count": 0, "next": None, "topics": []}, {}, [], {}]


@pytest.mark.parametrize("path", _NONSENSE)
async def test_an_invalid_parameter_is_refused_with_a_detail(path: str) -> None:
    served = _committed()
    async with served.serving():
        found = await served.get(path)
    assert found.status == 400
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json()["detail"]


@pytest.mark.parametrize("path", sorted(path for path in document()["paths"] if "subgroup" not in path))
async def test_an_unknown_parameter_is_refused_on_every_path(path: str) -> None:
    served = _committed()
    async with served.serving():
        found = await served.get(re.sub(r"{\w+}", "x", path) + "?nonsense=1")
    assert (found.status, found.headers["content-type"]) == (400, "application/problem+json")
    assert found.json()["detail"].startswith("nonsense: unknown parameter")


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/routes/TopicTest?asof=-1h", "asof: unknown parameter; did you mean as_of?"),
        ("/routes/TopicTest?as-of=-1h", "as-of: unknown parameter; did you mean as_of?"),
        ("/topics?Prefix=a", "Prefix: unknown parameter; did you mean prefix?"),
        ("/changes?broker=a", "broker: unknown parameter; did you mean broker_name?"),
        ("/readyz?foo=1", "foo: unknown parameter; known: format"),
        ("/clusters?cluster=c0", "cluster: unknown parameter; this path takes none"),
        ("/healthz?format=xml", "format: expected one of text, json"),
        ("/topics?limit=0", "limit: expected a whole number from 1 to 999999999"),
        ("/topics?prefix=a&prefix=b", "prefix: given more than once"),
        ("/?Past=1h", "Past: unknown parameter; did you mean past?"),
    ],
)
async def test_a_mistyped_parameter_is_named_with_the_one_that_was_meant(path: str, detail: str) -> None:
    served = _committed()
    async with served.serving():
        found = await served.get(path)
    assert (found.status, found.json()["detail"]) == (400, detail)


@pytest.mark.parametrize("subgroup", ["nsaddr", "nsaddr4client-internet", "", "a/b"])
@pytest.mark.parametrize("rest", ["", "-hz?nofix=1", "?zone=a&", "-hz?nofix=1&zone=a&"])
async def test_clients_learn_the_name_servers_with_any_subgroup_unit_and_parameters(subgroup: str, rest: str) -> None:
    served = _committed()
    async with served.serving():
        found = await served.get(f"/rocketmq/{subgroup}{rest}")
        labels = re.findall(
            r'http_requests_total{route="(/rocketmq[^"]*)"', (await served.get("/metrics")).body.decode()
        )
    assert (found.status, found.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert re.fullmatch(r"\S+:\d+\n", found.body.decode())
    assert labels == ["/rocketmq/{subgroup}"]


async def test_metrics_name_paths_as_the_document_does() -> None:
    served = _committed()
    async with served.serving():
        for path in ("/routes/TopicTest", "/routes/%25RETRY%25/x", "/kv/ns"):
            await served.get(path)
        metrics = (await served.get("/metrics")).body.decode()
    labels = set(re.findall(r'http_requests_total{route="([^"]*)"', metrics))
    assert labels == {"/routes/{topic}", "/kv/{namespace}"} <= document()["paths"].keys()


@pytest.mark.parametrize("path", ["/?past=99h", "/nope", "/?foo=<b>1</b>", "/routes/no%20such"])
async def test_a_browser_gets_a_page_with_the_error(path: str) -> None:
    served = _committed()
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    async with served.serving():
        page = await served.get(path.replace("<", "%3C").replace(">", "%3E"), Accept=browser)
        problem = await served.get(path.replace("<", "%3C").replace(">", "%3E"))
        for_script = await served.get("/console/parts/nope", Accept="text/html, application/problem+json")
    assert page.status == problem.status
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["vary"] == problem.headers["vary"] == "Accept"
    assert f'<p class="missing">{html.escape(problem.json()["detail"])}</p>' in page.body.decode()
    assert "<b>" not in page.body.decode()
    assert "default-src 'none'; style-src 'self'" in page.headers["content-security-policy"]
    assert for_script.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_only_get_and_head_are_answered(method: str) -> None:
    served = _committed()
    async with served.serving():
        found = await served.get("/kv", method)
    assert (found.status, found.headers["allow"]) == (405, "GET, HEAD")
    assert found.json()["title"] == "Method Not Allowed"


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    served = _committed()
    async with served.serving():
        for path in ("/routes/TopicTest", "/topics", "/healthz", "/changes", "/openapi.json"):
            query = "?wait=0" if path == "/changes" else ""
            get, head = await served.get(f"{path}{query}"), await served.get(path, "HEAD")
            assert (head.status, head.body) == (200, b""), path
            assert head.headers["content-type"] == get.headers["content-type"]


@pytest.mark.parametrize("headers", [{"Content_Length": "5"}, {"Transfer_Encoding": "chunked"}])
async def test_a_request_with_a_body_is_refused_and_its_connection_closed(headers: dict[str, str]) -> None:
    served = _committed()
    async with served.serving():
        found = await served.get("/kv", body=b"hello", **headers)
    assert (found.status, found.headers["connection"]) == (413, "close")


async def test_an_unknown_path_is_answered_404_with_a_hint() -> None:
    served = _committed()
    async with served.serving():
        found = await served.get("/nowhere")
    assert found.status == 404
    assert "/openapi.json" in found.json()["detail"]


async def test_bytes_that_are_not_http_are_answered_400() -> None:
    served = _committed()
    async with served.serving():
        answer = await served.send_raw(b"\x00\x00\x01\x02 no http\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer


async def test_a_bug_is_answered_500_and_the_server_continues(
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


async def test_the_start_of_a_broker_is_unknown_until_the_job_has_folded_its_registration() -> None:
    served, log = HttpRig(), Log()
    served.rig.talk()
    old = a_registration("10.0.0.2:1", broker_name="old")
    served.commit(log.register(old), {0: len(log.records)})  # before the server reads the recent events
    new = a_registration("10.0.0.3:1", broker_name="new")
    served.rig.gateway.accept([Accepted(*[BrokerRegistered(over(S1, 1), new)] * 2)])
    async with served.serving():
        before = (await served.get("/brokers?state=any")).json()
        page = (await served.get("/console/parts/brokers")).body.decode()
        served.commit(log.register(new), {0: len(log.records)})
        after = (await served.get("/brokers?state=any")).json()
    assert [(b["broker_name"], b["since_ms"], b["is_older"]) for b in before] == [
        ("new", None, False),
        ("old", None, True),
    ]
    assert [(b["since_ms"], b["is_older"]) for b in after] == [(log.now_ms, False), (None, True)]
    assert "start not known yet; heartbeats at 1 server" in page


async def test_no_look_at_brokers_decodes_a_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log()
    ended = a_registration("10.0.0.3:1", broker_name="broker-c", timeout_ms=7_000)
    log.register(ended)
    log.unregister(ended)
    served = HttpRig()
    await served.recent_events.begin({})
    served.commit(log.output.changes, {0: len(log.records)})
    monkeypatch.setattr(RetainedRegistration, "read", None)
    async with served.serving():
        for path in ("/orphans", "/metrics", "/console/parts/brokers", "/console/parts/summary", "/"):
            assert (await served.get(path)).status == 200, path
        found = (await served.get("/brokers?state=ended")).json()
    assert [(each["broker_name"], each["timeout_ms"], each["expires_after_ms"]) for each in found] == [
        ("broker-c", 7_000, 7_000)
    ]


@pytest.mark.parametrize("path", ["/routes/{}", "/why/topics/{}", "/why/brokers/{}", "/kv/{}", "/topics?cluster={}"])
async def test_a_parameter_that_is_too_long_is_refused_by_name_and_limit(path: str) -> None:
    served = _committed()
    async with served.serving():
        allowed = await served.get(path.format("x" * 1_024))
        refused = await served.get(path.format("x" * 1_025))
    assert allowed.status in (200, 404)
    assert refused.status == 400
    assert refused.json()["detail"].endswith(": expected at most 1,024 characters, got 1,025")


async def test_a_page_of_topics_may_follow_a_name_that_is_longer_than_usual() -> None:
    served, log = HttpRig(), Log()
    log.register(a_registration(topics={"t" * 5_000: RW, "u": RW}))
    served.commit(log.output.changes, {0: 1})
    async with served.serving():
        first = (await served.get("/topics?limit=1")).json()
        second = (await served.get(f"/topics?limit=1&after={first['next']}")).json()
    assert (first["topics"], second["topics"], second["next"]) == (["t" * 5_000], ["u"], None)


async def test_the_route_of_many_brokers_is_the_same_as_that_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    served = _committed()
    async with served.serving():
        few = await served.get("/routes/TopicTest")
        monkeypatch.setattr(routes_page, "_FEW_BROKERS", 0)
        many = await served.get("/routes/TopicTest")
        newer = a_registration(topics={"TopicTest": READ_ONLY, "Other": RW}, data_version=DataVersion(2, 2_000, 0))
        served.rig.served.accept(BrokerRegistered(over(S1, 1), newer))
        changed = await served.get("/routes/TopicTest")
        none = await served.get("/routes/none")
    assert (many.body, many.headers["etag"]) == (few.body, few.headers["etag"])
    assert changed.json()["queueDatas"][0]["perm"] == READ_ONLY.perm
    assert none.status == 404
