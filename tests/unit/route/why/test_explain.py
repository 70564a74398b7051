"""Every cause that ``why`` reports, from a log that produces it."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from namesrv_stream.route import reducer
from namesrv_stream.route.address_views import parse_view
from namesrv_stream.route.changes import KEY_COLUMNS, ChangeKind, RouteChange
from namesrv_stream.route.events import KvPut, TopicDeleted, WritePermChanged
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import DRAINED_BROKERS, DataVersion, DrainRecord, QueueData, Registration
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.why.explain import explain
from namesrv_stream.route.why.facts import Facts, Known, Question, Refusal
from namesrv_stream.route.why.findings import CATALOGUE, Explanation, Finding, Why, finding
from namesrv_stream.settings import project_home
from tests.support.builders import BASE, RW, S1, Log, a_registration

TOPIC = "TopicTest"
WITH_DEFAULT = {TOPIC: RW, "TBW102": RW, **BASE}
EXPIRY_MS = 130_000
LONG_MS = 60_000


def a_broker(name: str = "broker-a", number: int = 1, **changes: Any) -> Registration:
    return a_registration(f"10.0.0.{number}:10911", broker_name=name, **changes)


def why(
    log: Log,
    name: str = TOPIC,
    subject: Literal["topic", "broker"] = "topic",
    near: Sequence[str] = (),
    cluster: str | None = None,
    zone: str | None = None,
    **more: Any,
) -> Explanation:
    """Answer from all rows of the log, as if they had just been read from the tables."""
    table = RouteTable()
    reducer.apply(table, log.output.changes)
    has_brokers = any(True for _ in table.registered_groups())
    rows = _topic_rows(log, name) if subject == "topic" else _broker_rows(log, name)
    known = Known(rows, near, [] if rows else _topic_rows(log, "TBW102"), has_brokers)
    return explain(Facts(Question(subject, name, cluster, zone), known, table, log.now_ms, **more))


def _newest(rows: Sequence[RouteChange]) -> list[RouteChange]:
    newest = {(r.kind, *(getattr(r, c) for c in KEY_COLUMNS[ChangeKind(r.kind)])): r for r in rows}
    return list(newest.values())


def _topic_rows(log: Log, topic: str) -> list[RouteChange]:
    changes = log.output.changes
    queues = [r for r in changes if r.kind == "queue_data" and r.topic == topic]
    names = {r.broker_name for r in queues}
    brokers = [r for r in changes if r.kind in ("broker_data", "broker_live", "guard") and r.broker_name in names]
    return _newest([*queues, *brokers, *(r for r in changes if r.kind == "kv" and r.key == topic)])


def _broker_rows(log: Log, name: str) -> list[RouteChange]:
    rows = [
        r for r in log.output.changes if r.broker_name == name and r.kind in ("broker_data", "broker_live", "guard")
    ]
    queues = [r for r in log.output.changes if r.broker_name == name and r.kind == "queue_data"]
    return [*_newest(rows), *queues[-1:]]


def first(answer: Explanation) -> Finding:
    return answer.findings[0]


def causes(answer: Explanation) -> list[str]:
    return [each.cause for each in answer.findings]


def assert_evidence(found: Finding, rows: Sequence[RouteChange], cause: str) -> None:
    """The newest evidence is a row of these, with its cause, time and place in the log."""
    (row,) = {r for r in rows if r.cause == cause and (r.partition, r.offset, r.seq) == _place(found)}
    assert found.since_ms == row.at_ms == found.evidence[0].at_ms
    assert found.evidence[0].cause == cause


def _place(found: Finding) -> tuple[int, int, int]:
    newest = found.evidence[0]
    return newest.partition, newest.offset, newest.seq


def test_why_reports_a_topic_that_was_never_registered() -> None:
    log = Log()
    log.register(a_broker(topics=WITH_DEFAULT))
    answer = why(log, "Orders")
    assert causes(answer) == [Why.NEVER_REGISTERED]
    assert not answer.is_known
    assert "updateTopic -t Orders" in first(answer).advice


def test_why_reports_that_no_broker_has_the_default_topic() -> None:
    log = Log()
    log.register(a_broker())
    assert causes(why(log, "Orders")) == [Why.AUTO_CREATION_OFF]


def test_why_reports_that_the_broker_of_the_default_topic_was_removed() -> None:
    log, creating = Log(), a_broker("broker-b", 2, topics=WITH_DEFAULT)
    log.register(a_broker())
    log.register(creating)
    rows = log.unregister(creating)
    answer = why(log, "Orders")
    assert causes(answer) == [Why.DEFAULT_TOPIC_GONE]
    assert "broker-b" in first(answer).text
    assert_evidence(first(answer), rows, "unregistered")


def test_why_reports_that_there_are_no_brokers() -> None:
    assert causes(why(Log())) == [Why.NO_BROKERS]


def test_why_suggests_a_similar_topic_name() -> None:
    log = Log()
    log.register(a_broker(topics=WITH_DEFAULT))
    answer = why(log, "topictest", near=[TOPIC])
    assert causes(answer) == [Why.NEAR_MISS, Why.NEVER_REGISTERED]
    assert TOPIC in first(answer).text


def test_why_reports_who_deleted_the_topic() -> None:
    log = Log()
    log.register(a_broker())
    rows = log.say(TopicDeleted(S1, TOPIC, None, "10.1.1.1"), after_ms=1_000)
    answer = why(log)
    assert causes(answer) == [Why.TOPIC_DELETED]
    assert "by 10.1.1.1 at s1" in first(answer).text
    assert_evidence(first(answer), rows, "topic_deleted")


@pytest.mark.parametrize(
    ("end", "cause", "row_cause"),
    [
        ("expire", Why.BROKER_EXPIRED, "expired"),
        ("disconnect", Why.BROKER_DISCONNECTED, "disconnected"),
        ("unregister", Why.BROKER_UNREGISTERED, "unregistered"),
    ],
)
def test_why_reports_how_the_last_broker_of_the_topic_was_removed(end: str, cause: Why, row_cause: str) -> None:
    log, first_broker, last_broker = Log(), a_broker(), a_broker("broker-b", 2)
    log.register(first_broker)
    log.register(last_broker, connection=2)
    log.unregister(first_broker)
    log.tick(1_000)
    if end == "expire":
        rows = log.pass_time(EXPIRY_MS)
    else:
        rows = log.disconnect(last_broker, connection=2) if end == "disconnect" else log.unregister(last_broker, S1, 2)
    for answer in (why(log), why(log, "broker-b", "broker")):
        assert causes(answer) == [cause]
        assert "broker-b" in first(answer).text
        assert_evidence(first(answer), rows, row_cause)
    assert {row.broker_name for row in first(why(log)).evidence} == {"broker-a", "broker-b"}


def test_why_reports_a_broker_that_registered_again_without_the_topic() -> None:
    log = Log()
    log.register(a_broker())
    rows = log.unregister(a_broker())
    log.register(a_broker(topics={"Other": RW, **BASE}), connection=2, after_ms=1_000)
    answer = why(log)
    assert causes(answer) == [Why.TOPIC_LEFT_OUT]
    assert_evidence(first(answer), rows, "unregistered")


def test_why_reports_that_only_slaves_are_left() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker(number=2, broker_id=1), connection=2)
    log.tick(LONG_MS)
    rows = log.disconnect(a_broker())
    for answer in (why(log), why(log, "broker-a", "broker")):
        assert causes(answer) == [Why.ONLY_SLAVES]
        assert answer.is_routed
        assert_evidence(first(answer), rows, "disconnected")


def test_why_reports_a_wiped_write_permission_and_who_wiped_it() -> None:
    log = Log()
    log.register(a_broker())
    rows = log.say(WritePermChanged(S1, "broker-a", False, "10.1.1.1"), after_ms=LONG_MS)
    for answer in (why(log), why(log, "broker-a", "broker")):
        assert causes(answer) == [Why.WRITE_PERM_WIPED]
        assert "10.1.1.1" in first(answer).text
        assert_evidence(first(answer), rows, "write_perm_wiped")


def test_why_reports_that_the_broker_is_being_drained() -> None:
    log = Log()
    log.register(a_broker())
    record = DrainRecord("2026-11-25T10:00:00.000Z", "ada@host", {TOPIC: 6})
    log.say(KvPut(S1, DRAINED_BROKERS, "broker-a", record.encode()))
    log.say(WritePermChanged(S1, "broker-a", False, "10.1.1.1"), after_ms=LONG_MS)
    for answer in (why(log), why(log, "broker-a", "broker")):
        assert causes(answer) == [Why.WRITE_PERM_WIPED]
        assert "broker-a has been drained since 2026-11-25T10:00:00.000Z by ada@host, broker-a" in first(answer).text


@pytest.mark.parametrize(("perm", "cause"), [(0, Why.NO_PERMISSION), (4, Why.READ_ONLY), (2, Why.WRITE_ONLY)])
def test_why_reports_a_missing_permission_of_the_topic(perm: int, cause: Why) -> None:
    log = Log()
    rows = log.register(a_broker(topics={TOPIC: QueueData(8, 8, perm), **BASE}))
    answer = why(log)
    assert causes(answer) == [cause]
    assert_evidence(first(answer), rows, "registered")


def test_why_reports_a_topic_that_only_another_cluster_has() -> None:
    log = Log()
    log.register(a_broker())
    assert causes(why(log, cluster="c9")) == [Why.OTHER_CLUSTER]
    assert Why.OTHER_CLUSTER not in causes(why(log, cluster="c0"))


def test_why_reports_a_topic_that_only_another_name_server_has() -> None:
    log = Log()
    log.register(a_broker())
    log.unregister(a_broker())
    answer = why(log, elsewhere=["http://ns2:9880"])
    assert causes(answer) == [Why.OTHER_SERVER, Why.BROKER_UNREGISTERED]
    assert "http://ns2:9880" in first(answer).text


def test_why_reports_a_topic_hidden_by_the_zone_of_the_client() -> None:
    log = Log()
    log.register(a_broker(zone_name="east"))
    assert causes(why(log, zone="west")) == [Why.HIDDEN_BY_ZONE]
    assert Why.HIDDEN_BY_ZONE not in causes(why(log, zone="East"))


@pytest.mark.parametrize(("unmapped", "effect"), [("keep", "passed on unchanged"), ("omit", "left out")])
def test_why_reports_an_address_that_the_view_of_the_client_does_not_map(unmapped: str, effect: str) -> None:
    log = Log()
    rows = log.register(a_broker())
    view = parse_view("outside", json.dumps({"networks": ["203.0.113.0/24"], "unmapped": unmapped}))
    answer = why(log, view=view)
    assert causes(answer) == [Why.ADDRESS_NOT_MAPPED]
    assert f"({effect} in view outside)" in first(answer).text
    assert_evidence(first(answer), rows, "registered")
    mapped = {"networks": ["203.0.113.0/24"], "mappings": [{"to": "{broker_name}.example.org:{port}"}]}
    assert Why.ADDRESS_NOT_MAPPED not in causes(why(log, view=parse_view("outside", json.dumps(mapped))))


def test_why_reports_an_order_configuration_that_names_a_removed_broker() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker("broker-b", 2), connection=2)
    log.say(KvPut(S1, "ORDER_TOPIC_CONFIG", TOPIC, "broker-a:4;broker-b:4"))
    log.tick(LONG_MS)
    assert causes(why(log, with_order=True)) == [Why.NOTHING_WRONG]
    rows = log.unregister(a_broker("broker-b", 2), connection=2)
    answer = why(log, with_order=True)
    assert causes(answer) == [Why.ORDER_NAMES_GONE]
    assert first(answer).since_ms == rows[0].at_ms
    assert causes(why(log)) == [Why.CLIENT_CACHE], "clients receive no order configuration"


def test_why_reports_brokers_that_the_guard_holds() -> None:
    log = Log(FoldSettings(guard_known_ms=0, guard_min_brokers=2))
    brokers = [a_broker(f"broker-{n}", n) for n in range(1, 6)]
    for number, broker in enumerate(brokers):
        log.register(broker, connection=number)
    log.pass_time(LONG_MS)
    for number, broker in enumerate(brokers[:4]):
        log.disconnect(broker, connection=number)
    for answer in (why(log), why(log, "broker-4", "broker")):
        assert causes(answer) == [Why.HELD_BY_GUARD]
        assert first(answer).evidence[0].cause == "guard_held"


def test_why_reports_a_late_heartbeat() -> None:
    log = Log()
    log.register(a_broker())
    log.tick(LONG_MS)
    late = ["10.0.0.1:10911 61 s ago"]
    assert causes(why(log, "broker-a", "broker", late=late)) == [Why.HEARTBEAT_LATE]
    assert causes(why(log, late=late)) == [Why.HEARTBEAT_LATE]


def test_why_reports_a_contradiction_for_its_topic_and_its_broker_only() -> None:
    log = Log()
    log.register(a_broker())
    rows = log.register(a_broker(topics={TOPIC: QueueData(4, 4, 6), **BASE}, registration_hash="other"))
    log.now_ms += LONG_MS

    of_topic, of_broker = why(log), why(log, "broker-a", "broker")

    assert causes(of_topic) == causes(of_broker) == [Why.CONTRADICTION]
    assert_evidence(first(of_topic), rows, "contradiction")
    assert_evidence(first(of_broker), rows, "contradiction")
    assert first(of_broker).text.endswith("broker-a (TopicTest)")
    assert causes(why(log, "baseTopic")) == [Why.NOTHING_WRONG]


def test_a_route_that_has_just_lost_a_broker_may_not_have_reached_clients() -> None:
    log = Log()
    log.register(a_broker())
    lost = a_broker("broker-b", 2)
    log.register(lost, connection=2)
    log.now_ms += LONG_MS
    rows = log.unregister(lost, connection=2)
    answer = why(log)
    assert causes(answer) == [Why.CLIENT_CACHE]
    assert rows[0].offset in [row.offset for row in first(answer).evidence]
    log.now_ms += LONG_MS
    assert causes(why(log)) == [Why.NOTHING_WRONG]


def test_a_new_route_may_not_have_reached_clients() -> None:
    log = Log()
    rows = log.register(a_broker())
    answer = why(log)
    assert causes(answer) == [Why.CLIENT_CACHE]
    assert_evidence(first(answer), rows, "registered")
    log.tick(LONG_MS)
    assert causes(why(log)) == [Why.NOTHING_WRONG]


def test_why_finds_nothing_wrong_with_a_usable_topic_and_broker() -> None:
    log = Log()
    rows = log.register(a_broker())
    log.tick(LONG_MS)
    for answer in (why(log), why(log, "broker-a", "broker")):
        assert causes(answer) == [Why.NOTHING_WRONG]
        assert_evidence(first(answer), rows, "registered")


def test_why_reports_a_broker_whose_registration_was_refused() -> None:
    log = Log()
    log.register(a_broker(topics=WITH_DEFAULT))
    refused = {"broker-x": Refusal("REGISTER_BROKER from 10.9.9.9: it is not signed", 5, 7)}
    answer = why(log, "broker-x", "broker", refusals=refused)
    assert causes(answer) == [Why.ACCESS_DENIED, Why.BROKER_NEVER_REGISTERED]
    assert first(answer).since_ms == 5
    assert "10.9.9.9" in first(answer).text
    assert causes(why(log, "Orders", refusals=refused)) == [Why.NEVER_REGISTERED, Why.ACCESS_DENIED]


def test_a_refusal_before_the_broker_was_accepted_is_not_reported() -> None:
    log = Log()
    log.register(a_broker())
    log.unregister(a_broker())
    refused = {"broker-a": Refusal("it is not signed", 5, log.now_ms - 1)}
    assert causes(why(log, refusals=refused)) == [Why.BROKER_UNREGISTERED]


@pytest.mark.parametrize("cause", [Why.SERVER_STALE, Why.SERVER_BLIND])
def test_a_problem_of_the_server_is_reported_first_unless_another_cause_is_older(cause: Why) -> None:
    log = Log()
    log.register(a_broker())
    log.unregister(a_broker())
    newer = finding(cause, "ns1", ["Kafka is away"], since_ms=log.now_ms + 1)
    older = finding(cause, "ns1", ["Kafka is away"], since_ms=log.now_ms - 1)
    assert causes(why(log, of_server=[newer])) == [Why.BROKER_UNREGISTERED, cause]
    assert causes(why(log, of_server=[older])) == [cause, Why.BROKER_UNREGISTERED]
    assert causes(why(log, "Orders", of_server=[newer]))[0] == cause, "it may not have heard of the topic"


def test_why_reports_a_change_that_is_not_committed_yet() -> None:
    log = Log()
    log.register(a_broker())
    known = Known(_topic_rows(log, TOPIC))
    answer = explain(Facts(Question("topic", TOPIC), known, RouteTable(), log.now_ms))
    assert causes(answer) == [Why.BROKER_REMOVED]
    assert "not committed" in first(answer).text


def test_a_partly_unusable_topic_is_usable() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker("broker-b", 2, topics={TOPIC: QueueData(8, 8, 4), **BASE}), connection=2)
    log.tick(LONG_MS)
    assert causes(why(log)) == [Why.NOTHING_WRONG]


def test_every_cause_has_a_text_and_an_advice_and_is_documented() -> None:
    page = (project_home() / "docs" / "why.md").read_text(encoding="utf-8")
    assert set(CATALOGUE) == set(Why)
    assert [cause for cause in Why if f"`{cause}`" not in page] == []


def test_an_advice_quotes_the_name_for_the_shell() -> None:
    found = finding(Why.NEVER_REGISTERED, "x; rm -rf /")
    assert "'x; rm -rf /'" in found.advice


def test_evidence_is_bounded() -> None:
    log = Log()
    for number in range(30):
        log.register(a_broker(f"broker-{number:02}", number), connection=number)
    log.tick(LONG_MS)
    found = first(why(log))
    assert len(found.evidence) == 10
    assert "and 25 more" in found.text


def test_a_registration_with_a_new_version_keeps_the_evidence() -> None:
    log = Log()
    log.register(a_broker())
    log.tick(LONG_MS)
    log.register(a_broker(data_version=DataVersion(2, 2_000, 0)), after_ms=1_000)
    assert causes(why(log)) == [Why.NOTHING_WRONG]
