"""Orphans of small logs, one test for every kind."""

from itertools import chain

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.events import KvPut, TopicDeleted, TopicRegistered
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import DataVersion
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.why.orphans import Orphan, OrphanSearch
from tests.support.builders import BASE, NAME, RW, S1, Log, a_mapping, a_registration

V2 = DataVersion(2, 2_000, 0)
ALL = {"TopicTest", "baseTopic"}


def orphans(log: Log, asked: set[str] | None = None) -> list[Orphan]:
    table = RouteTable()
    reducer.apply(table, log.output.changes)
    search = OrphanSearch(table, sorted(table.topics()), (ALL if asked is None else asked).__contains__)
    found = chain(search.held(), search.others(), search.topics_not_asked(), search.brokers_not_asked())
    return [orphan for orphan in found if orphan is not None]


def test_a_topic_that_its_broker_registers_is_not_an_orphan() -> None:
    log = Log()
    log.register(a_registration())

    assert orphans(log) == []


def test_a_topic_that_was_deleted_only_at_its_broker_is_an_orphan() -> None:
    log = Log()
    log.register(a_registration(topics={"TopicTest": RW, "kept": RW, **BASE}))
    log.register(a_registration(data_version=V2, registration_hash="2"))

    assert orphans(log, {*ALL, "kept"}) == [Orphan("not_registered", "kept", NAME)]


def test_a_new_topic_is_not_an_orphan_before_the_next_full_registration() -> None:
    log = Log()
    log.register(a_registration())
    log.register(a_registration(topics={"new": RW}, data_version=V2))

    assert orphans(log, {*ALL, "new"}) == []


def test_a_topic_that_only_an_operator_registered_is_an_orphan() -> None:
    log = Log()
    log.register(a_registration())
    log.say(TopicRegistered(S1, NAME, "extra", RW))

    assert orphans(log, {*ALL, "extra"}) == [Orphan("not_registered", "extra", NAME)]


def test_a_topic_that_only_a_slave_registers_is_an_orphan() -> None:
    log = Log()
    log.register(a_registration())
    log.register(a_registration("10.0.0.2:1", 1, topics={"TopicTest": RW, "old": RW, **BASE}), connection=2)
    log.say(TopicRegistered(S1, NAME, "old", RW))

    assert orphans(log, {*ALL, "old"}) == [Orphan("not_registered", "old", NAME)]


def test_a_static_mapping_of_a_topic_without_queues_is_an_orphan() -> None:
    log = Log()
    log.register(a_registration(topics={"static": RW, **BASE}, topic_mappings={"static": a_mapping()}))
    assert orphans(log, {"static", "TopicTest", "baseTopic"}) == []
    log.say(TopicDeleted(S1, "static", None))
    log.register(a_registration(data_version=V2, topic_mappings={"static": a_mapping()}, registration_hash="2"))

    assert orphans(log) == [Orphan("static_mapping", "static", NAME)]


def test_an_order_configuration_that_names_a_broker_without_the_topic_is_an_orphan() -> None:
    log = Log()
    log.register(a_registration())
    log.say(KvPut(S1, "ORDER_TOPIC_CONFIG", "TopicTest", f"{NAME}:8;broker-z:8"))

    assert orphans(log) == [Orphan("order", "TopicTest", "broker-z")]


def test_topics_that_only_held_brokers_have_are_orphans() -> None:
    log = Log(FoldSettings(guard_known_ms=0))
    numbers = range(1, 6)
    for number in numbers:
        log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"), connection=number)
    for number in numbers:
        log.disconnect(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"), connection=number)
    assert [row for row in log.output.changes if row.kind == ChangeKind.GUARD and row.cause == Cause.GUARD_HELD]

    assert {o.topic for o in orphans(log) if o.kind == "held"} == ALL


def test_topics_and_brokers_that_no_client_requested_are_orphans() -> None:
    log = Log()
    log.register(a_registration(topics={"TopicTest": RW, "TBW102": RW, NAME: RW}))
    log.register(a_registration("10.0.0.2:1", broker_name="b2", topics={"TopicTest": RW, "own": RW}), connection=2)

    assert orphans(log, {"own", "TBW102"}) == [
        Orphan("topic_not_asked", "TopicTest", ""),
        Orphan("broker_not_asked", "", NAME),
    ]
