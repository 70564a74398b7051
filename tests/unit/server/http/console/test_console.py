"""The console: what it shows, that names are only text in it, and that its pages are valid."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from namesrv_stream.instants import instant
from namesrv_stream.route.model import DataVersion
from namesrv_stream.server.http.console.console_page import PARTS
from namesrv_stream.server.http.console.summary import pipeline
from namesrv_stream.server.http.status_page import StatusPage
from namesrv_stream.settings import Settings
from namesrv_stream.tables.job_commits import JobFigures
from tests.support.builders import READ_ONLY, RW, Log, a_registration
from tests.support.clocks import ManualClock
from tests.support.history_tables import HistoryOfLogs
from tests.support.http_rig import JOB, Answer, HttpRig, a_served_fleet
from tests.support.name_server import a_registration_request
from tests.support.tables import settings_in

HOSTILE = ("<script>alert(1)</script>", "two\nlines", '"><img src=x onerror=alert(1)>', "\u202egnp.exe", "a&b' \"c")
_VOID = {"meta", "link", "input", "img", "br"}
Attributes = dict[str, str]


class Page(HTMLParser):
    """The elements and texts of a page, and the elements that are still open."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, Attributes]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(answer.body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        optional = ("option", "p", "li")
        while self.open and self.open[-1] != tag and self.open[-1] in optional:
            self.open.pop()
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, *tags: str) -> Iterator[Attributes]:
        return (attributes for tag, attributes in self.elements if tag in tags)


def _rig(tmp_path: Path, log: Log | None = None, **http: object) -> HttpRig:
    settings = settings_in(tmp_path)
    values = settings.model_dump()
    values["http"] |= http
    served = HttpRig(Settings.model_validate(values))
    if log is not None:
        served.commit(log.output.changes, {0: len(log.records)})
    return served


def _log() -> Log:
    log = Log()
    log.register(a_registration(topics={name: RW for name in HOSTILE}))
    log.register(a_registration("10.0.0.2:1", broker_name="<b>gone</b>", cluster="<i>c1</i>", zone_name="z"))
    return log


def _topics_log() -> Log:
    log = Log()
    log.register(a_registration(topics={"Orders": RW, "rmq_sys_x": RW, "c0": RW}))
    few = RW._replace(read_queue_nums=4, write_queue_nums=2)
    log.register(
        a_registration("10.0.0.2:1", broker_name="broker-b", cluster="c1", topics={"Orders": few, "Payments": RW})
    )
    return log


async def _page(served: HttpRig, path: str = "/") -> Page:
    found = await served.get(path)
    assert found.status == 200, found.body
    return Page(found)


async def _ended(served: HttpRig, log: Log) -> None:
    """Disconnect a broker while the console is open."""
    await served.get("/")
    changes = log.disconnect(a_registration("10.0.0.2:1", broker_name="<b>gone</b>", cluster="<i>c1</i>"))
    served.commit(changes, {0: len(log.records)})
    served.rig.clock.advance(1_000)


@pytest.mark.parametrize("path", ["/", *(f"/console/parts/{part}" for part in PARTS)])
async def test_a_page_may_load_and_run_only_files_of_the_console(tmp_path: Path, path: str) -> None:
    served = _rig(tmp_path, _log())
    async with served.serving():
        found = await served.get(path)
    policy = dict(item.strip().split(" ", 1) for item in found.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src", "form-action")} == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    page = Page(found)
    for tag, attributes in page.elements:
        assert tag not in ("style", "iframe", "object", "embed", "base", "img"), tag
        assert not [name for name in attributes if name.startswith("on") or name == "style"], attributes
        for name in ("src", "href", "action"):
            value = attributes.get(name, "/")
            assert re.match(r"[/#](?!/)", value), f"{name}={value} leads to another server"
    assert all(attributes.get("src", "").startswith("/console/static/") for attributes in page.of("script"))


@pytest.mark.parametrize("part", ["", *PARTS])
async def test_names_of_peers_are_shown_as_text(tmp_path: Path, part: str) -> None:
    served, log = _rig(tmp_path, log := _log()), log
    async with served.serving():
        await _ended(served, log)
        for topic in HOSTILE:
            query = "?" + urlencode({"topic": topic, "cluster": "<i>c1</i>", "find": '"><x>'})
            page = await _page(served, f"/console/parts/{part}{query}" if part else f"/{query}")
            assert {tag for tag, _ in page.elements}.isdisjoint({"b", "i", "x", "img"})
            assert not any("alert" in attributes.get("src", "") for attributes in page.of("script"))
            assert "\u202e" not in page.text


async def test_a_page_has_landmarks_and_every_field_a_label(tmp_path: Path) -> None:
    served = _rig(tmp_path, _log())
    async with served.serving():
        page = await _page(served, "/?topic=baseTopic&past=1h")
    tags = [tag for tag, _ in page.elements]
    assert [tags.count(tag) for tag in ("main", "header", "nav", "footer", "h1")] == [1, 1, 1, 1, 1]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert not page.open
    named = {attributes.get("for") for attributes in page.of("label")}
    for attributes in page.of("input"):
        assert attributes.get("type") == "hidden" or attributes["id"] in named
    for attributes in page.of("section"):
        assert attributes["aria-labelledby"] in ids
    for attributes in page.of("nav"):
        assert attributes["aria-label"]
    for attributes in page.of("svg"):
        assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label")
    assert next(iter(page.of("html")))["lang"] == "en"
    assert {a["href"].removeprefix("#") for a in page.of("a") if a["href"].startswith("#")} <= set(ids)


async def test_the_page_contains_its_parts_unchanged(tmp_path: Path) -> None:
    served = _rig(tmp_path, _log())
    async with served.serving():
        whole = (await served.get("/")).body
        for part in ("summary", "brokers", "route", "timeline", "pipeline"):
            assert (await served.get(f"/console/parts/{part}")).body.strip() in whole


async def test_a_broker_is_shown_with_its_age_and_timeout(tmp_path: Path) -> None:
    served = _rig(tmp_path)
    served.rig.talk()
    served.rig.ask(served.rig.connect(), a_registration_request(heartbeatTimeoutMillis="10000"))
    served.rig.beat(12)
    async with served.serving():
        page = await _page(served, "/console/parts/brokers")
        brokers = (await served.get("/brokers")).json()
    [age] = [attributes for attributes in page.of("p") if "data-age-ms" in attributes]
    assert (age["data-age-ms"], age["data-timeout-ms"]) == ("6000", "10000")
    assert "last heartbeat 6 s ago, expires after 10 s" in page.text
    assert "late" in page.text
    assert [(b["state"], b["age_ms"], b["expires_after_ms"]) for b in brokers] == [("alive", 6_000, 10_000)]


async def test_the_age_of_a_broker_without_a_heartbeat_at_this_server_is_shown_as_unknown(tmp_path: Path) -> None:
    served = _rig(tmp_path, _log())
    async with served.serving():
        page = await _page(served, "/console/parts/brokers")
        brokers = (await served.get("/brokers")).json()
    assert "no heartbeat at this server since its start, but at s1; expires after 2 min 00 s without one" in page.text
    assert [b["age_ms"] for b in brokers] == [None, None]


async def test_a_removed_broker_is_still_shown_with_its_cause(tmp_path: Path) -> None:
    log = _log()
    served = _rig(tmp_path, log)
    served.rig.talk()
    async with served.serving():
        await _ended(served, log)
        page = await _page(served, "/?state=ended")
        [ended] = (await served.get("/brokers?state=ended")).json()
        alive = (await served.get("/brokers")).json()
    assert "its connection was closed" in page.text
    assert "Serving; 1 broker needs attention" in page.text
    assert (ended["broker_name"], ended["state"], ended["ended"]["cause"]) == ("<b>gone</b>", "ended", "disconnected")
    assert ended["ended"]["offset"] == 2
    assert [b["broker_name"] for b in alive] == ["broker-a"]


async def test_a_removed_broker_whose_id_has_another_address_is_shown_as_replaced(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    served = _rig(tmp_path, log)
    async with served.serving():
        await served.get("/")
        log.disconnect(a_registration())
        log.register(a_registration("10.0.0.9:10911"))
        served.commit([c for c in log.output.changes if c.offset > 0], {0: len(log.records)})
        served.rig.clock.advance(1_000)
        page = await _page(served, "/console/parts/brokers")
        summary = await _page(served, "/console/parts/summary")
        [ended] = (await served.get("/brokers?state=ended")).json()
        [alive] = (await served.get("/brokers?state=alive")).json()
    assert alive["since_ms"] == max(c.at_ms for c in log.output.changes if c.kind == "broker_live" and not c.gone)
    assert ended["since_ms"] is None
    assert "back at 10.0.0.9:10911" in page.text
    assert "attention" not in summary.text
    assert ended["ended"]["replaced_by"] == "10.0.0.9:10911"


async def test_a_broker_of_another_cluster_with_the_same_name_and_address_is_no_replacement(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    served = _rig(tmp_path, log)
    async with served.serving():
        await served.get("/")
        log.unregister(a_registration())
        log.register(a_registration(cluster="another"))
        served.commit([c for c in log.output.changes if c.offset > 0], {0: len(log.records)})
        [ended] = (await served.get("/brokers?state=ended")).json()
    assert ended["ended"]["cause"] == "unregistered"
    assert ended["ended"]["replaced_by"] is None


async def test_many_brokers_are_shown_in_part_and_the_rest_is_counted(tmp_path: Path) -> None:
    log = Log()
    for n in range(100):
        log.register(a_registration(f"10.0.1.{n}:1", broker_name=f"b{n:03d}"))
    served = _rig(tmp_path, log)
    async with served.serving():
        page = await _page(served, "/console/parts/brokers")
        found = await _page(served, "/console/parts/brokers?find=B09")
        more = await _page(served, "/console/parts/brokers?shown=300")
    assert len([1 for a in page.of("li") if "card" in a.get("class", "")]) == 60
    assert "60 of 100 are shown" in page.text
    assert "40 are left out" in page.text
    assert len([1 for a in found.of("li") if "card" in a.get("class", "")]) == 10
    assert len([1 for a in more.of("li") if "card" in a.get("class", "")]) == 100


@pytest.mark.parametrize("path", ["/?state=dead", "/?window=2h", "/?shown=7", "/?past=9d", f"/?find={'x' * 600}"])
async def test_an_invalid_parameter_is_refused(tmp_path: Path, path: str) -> None:
    served = _rig(tmp_path)
    async with served.serving():
        found = await served.get(path)
    assert found.status == 400
    assert "expected" in found.json()["detail"]


@pytest.mark.parametrize(
    "path", ["/console/parts/none", "/console/static/none.js", "/console/static/..%2Fconsole_page.py", "/console"]
)
async def test_an_unknown_path_is_answered_404(tmp_path: Path, path: str) -> None:
    served = _rig(tmp_path)
    async with served.serving():
        assert (await served.get(path)).status == 404


async def test_files_of_the_console_have_an_etag_and_refer_to_no_other_server(tmp_path: Path) -> None:
    served = _rig(tmp_path)
    async with served.serving():
        page = await _page(served)
        names = {a.get("src") or a["href"] for a in page.of("script", "link")}
        imported = {
            "/console/static/parts.js",
            "/console/static/feed.js",
            "/console/static/ages.js",
            "/console/static/slider.js",
        }
        for name in names | imported:
            found = await served.get(name)
            assert found.status == 200
            assert found.headers["content-type"].split(";")[0] in ("text/css", "text/javascript", "image/svg+xml")
            named = found.body.replace(b"http://www.w3.org/2000/svg", b"")
            assert not re.search(rb"\w+://|[\"'(]//", named)
            again = await served.get(name, If_None_Match=found.headers["etag"])
            assert again.status == 304


async def test_the_what_if_first_shows_when_figures_are_expected_and_later_what_is_missing(tmp_path: Path) -> None:
    served = _rig(tmp_path, _log())
    async with served.serving():
        first = await _page(served, "/console/parts/what-if?past=1h")
        served.rig.clock.advance(181_000)
        later = await _page(served, "/console/parts/what-if?past=1h")
    due = instant(served.rig.clock.now_ms() - 1_000)
    expected = f"no heartbeat figures for this period yet. The history process writes the first ones by {due}."
    assert expected in first.text
    assert "There are no heartbeat figures: there is no table heartbeat_minutes" in later.text
    assert "`namesrv-stream status` says whether the history process runs" in later.text


async def test_topics_are_listed_with_their_brokers_and_queues(tmp_path: Path) -> None:
    served = _rig(tmp_path, _topics_log())
    async with served.serving():
        page = await _page(served, "/console/parts/topics")
        whole = await _page(served, "/")
    lines = " ".join(page.text.split())
    since = "not since the server started"
    assert f"Orders broker-a 8/8 broker-b 4/2 {since} Payments broker-b 8/8 {since}" in lines
    assert "rmq_sys_x" not in page.text
    assert "application topics 2 all 4" in lines
    assert "/?topic=Orders#route" in [attributes["href"] for attributes in page.of("a")]
    assert "find_topic" in [attributes.get("name") for attributes in whole.of("input")]


@pytest.mark.parametrize(
    ("query", "counts", "shown"),
    [
        ("topics=all", "application topics 2 all 4", ["Orders", "Payments", "c0", "rmq_sys_x"]),
        ("find_topic=ORD", "application topics 1 all 1", ["Orders"]),
        ("find_topic=s", "application topics 2 all 3", ["Orders", "Payments"]),
        ("find_topic=s&topics=all", "application topics 2 all 3", ["Orders", "Payments", "rmq_sys_x"]),
        ("cluster=c1", "application topics 2 all 2", ["Orders", "Payments"]),
        ("cluster=none", "application topics 0 all 0", []),
        ("find_topic=none", "application topics 0 all 0", []),
    ],
)
async def test_topics_are_found_and_counted_by_search_cluster_and_kind(
    tmp_path: Path, query: str, counts: str, shown: list[str]
) -> None:
    served = _rig(tmp_path, _topics_log())
    async with served.serving():
        page = await _page(served, f"/console/parts/topics?{query}")
    assert counts in " ".join(page.text.split())
    links = [a["href"] for a in page.of("a") if a.get("data-for") == "route" and a["id"] != "why-topic"]
    assert [parse_qs(urlsplit(link).query)["topic"][0] for link in links] == shown
    assert ("No topic matches" in page.text) is (not shown)


async def test_many_topics_are_shown_in_part_and_the_rest_is_counted(tmp_path: Path) -> None:
    log = Log()
    for n in range(8):
        log.register(a_registration(f"10.0.1.{n}:1", broker_name=f"b{n}", topics={f"T{m:03d}": RW for m in range(120)}))
    served = _rig(tmp_path, log)
    async with served.serving():
        page = await _page(served, "/console/parts/topics")
    assert "The first 50 by name are shown, 70 more are not" in page.text
    assert page.text.count("and 2 more") == 50


async def test_the_counts_of_states_follow_search_and_cluster(tmp_path: Path) -> None:
    log = _log()
    log.register(a_registration("10.0.0.3:1", broker_name="broker-c"))
    served = _rig(tmp_path, log)
    async with served.serving():
        await _ended(served, log)
        found = {
            query: " ".join((await _page(served, f"/console/parts/brokers?{query}")).text.split())
            for query in ("", "find=broker-c", "find=gone", "find=gone&state=held", "cluster=c0")
        }
    assert "all 3 needs attention 1 late 0 protected 0 ended 1 age unknown 2" in found[""]
    assert "all 1 needs attention 0 late 0 protected 0 ended 0 age unknown 1" in found["find=broker-c"]
    assert "all 1 needs attention 1 late 0 protected 0 ended 1 age unknown 0" in found["find=gone"]
    assert "all 1 needs attention 1 late 0 protected 0 ended 1 age unknown 0" in found["find=gone&state=held"]
    assert "No broker matches" in found["find=gone&state=held"]
    assert "all 2 needs attention 0" in found["cluster=c0"]


@pytest.mark.parametrize(
    "path", ["/console/parts/summary", "/console/parts/topics", "/console/parts/route?topic=Orders"]
)
async def test_a_table_that_is_stacked_on_a_phone_has_a_label_for_every_value(tmp_path: Path, path: str) -> None:
    served = _rig(tmp_path, _topics_log())
    async with served.serving():
        page = await _page(served, path)
    assert ["stack" in attributes.get("class", "").split() for attributes in page.of("table")] == [True]
    values = list(page.of("td"))
    assert values
    assert all("data-label" in value or value.get("class") == "shares" for value in values)


async def test_a_route_is_compared_with_another_time(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration(topics={"T": RW, "U": RW}))
    log.register(a_registration("10.0.0.2:1", broker_name="broker-b", topics={"T": RW, "U": RW}))
    tables = HistoryOfLogs(tmp_path, log)
    before_ms = log.now_ms
    newer = a_registration(topics={"T": READ_ONLY, "U": RW}, data_version=DataVersion(2, 2_000, 0))
    log.register(newer, after_ms=60_000)
    log.unregister(a_registration("10.0.0.2:1", broker_name="broker-b"))
    tables.write_all()
    served = HttpRig(tables.settings, past_clock=ManualClock(log.now_ms + 1_000))
    served.commit(log.output.changes, {0: len(log.records)})
    async with served.serving():
        page = await _page(served, f"/console/parts/route?topic=T&as_of={before_ms}")
        bad = await _page(served, "/console/parts/route?topic=T&as_of=soon")
    assert "0 new, 1 gone, 1 changed" in page.text
    assert "± changed" in page.text
    assert "\u2212 gone" in page.text
    assert "'soon' is not a point in time" in bad.text
    assert "broker-a" in bad.text


async def test_other_servers_are_compared_or_shown_without_an_answer(tmp_path: Path) -> None:
    log = _log()
    other = _rig(tmp_path / "other", log)
    async with other.serving():
        served = _rig(tmp_path, log, console_servers=(other.http.address, "127.0.0.1:1"))
        async with served.serving():
            page = await _page(served, "/console/parts/servers")
    assert "same offsets, same digest" in page.text
    assert "no answer" in page.text
    assert "127.0.0.1:1" in page.text


def test_dead_letters_are_marked_only_if_the_job_refused_a_record() -> None:
    served, log = a_served_fleet()

    def tones() -> dict[str, str]:
        parts = StatusPage(served.figures, served.state, served.rig.clock).parts()
        shown = pipeline(served.figures, parts, served.rig.clock)["figures"]
        return {figure["label"]: figure["tone"] for figure in shown}

    served.rig.clock.advance(60_000)
    stopped = tones()
    served.commit([], {0: len(log.records)}, JobFigures(JOB.started_ms, 2, dead_letters=1))
    served.rig.clock.advance(60_000)
    refused = tones()
    assert (stopped["snapshot"], stopped["dead letters"], refused["dead letters"]) == ("warn", "calm", "warn")
