"""What ends the state that a registration adds. Tables survive restarts, so each part of it has an end (ADR 0067)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.events import TopicDeleted
from namesrv_stream.route.group import BrokerGroup, delete_topic, unregister
from namesrv_stream.route.model import LiveKey, QueueData
from tests.support.broker_groups import MASTER, SLAVE, THIRD, V2, acting, group_after, perms_of
from tests.support.builders import BASE, NAME, RW, S1, Log, a_key, a_mapping, a_registration
from tests.support.examples import examples
from tests.support.strategies_route import Entry, logs

STATIC = {"static": RW, **BASE}
MAPPED = a_registration(topics=STATIC, topic_mappings={"static": a_mapping()})


# ---- laws ----


@settings(max_examples=examples(60))
@given(logs(), st.sampled_from(("t1", "t2", "t3")))
def test_nothing_of_a_deleted_topic_remains_but_what_its_brokers_registered(entries: list[Entry], topic: str) -> None:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)

    log.say(TopicDeleted(S1, topic, None))

    for group in log.groups.groups.values():
        assert repr(topic) not in repr(replace(group, registrations={}))


@settings(max_examples=examples(60))
@given(logs())
def test_nothing_of_a_name_remains_after_its_last_process_but_what_it_registered(entries: list[Entry]) -> None:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)

    for group in log.groups.groups.values():
        ended = group
        for key in group.live_brokers:
            ended = unregister(ended, key)
        assert ended == BrokerGroup(group.broker_name, registrations=group.registrations)


# ---- static mappings ----


def test_a_static_topic_that_is_deleted_and_created_again_is_an_ordinary_topic() -> None:
    group = delete_topic(group_after(MAPPED), "static")
    assert (group.topics, group.topic_mappings) == (BASE, {})

    group = group_after(a_registration(topics={"static": RW}, data_version=V2), group=group)

    assert (group.topics, group.topic_mappings) == (STATIC, {})


def test_a_broker_that_keeps_a_deleted_static_topic_adds_it_back_with_its_mapping() -> None:
    group = delete_topic(group_after(MAPPED), "static")

    assert group_after(MAPPED, group=group) == group_after(MAPPED)


@pytest.mark.parametrize("topics", [STATIC, {"static": RW}], ids=["full", "single"])
def test_a_new_version_without_the_mapping_of_its_topic_ends_the_mapping(topics: dict[str, QueueData]) -> None:
    group = group_after(MAPPED, a_registration(topics=topics, data_version=V2))

    assert (group.topics, group.topic_mappings) == (STATIC, {})


def test_the_same_version_without_the_mapping_keeps_it() -> None:
    assert group_after(MAPPED, a_registration(topics=STATIC)).topic_mappings == {"static": a_mapping()}


def test_a_new_version_without_the_topic_keeps_its_mapping() -> None:
    group = group_after(MAPPED, a_registration(data_version=V2))

    assert group.topic_mappings == {"static": a_mapping()}


@pytest.mark.parametrize("versions", [(1, 2, 3, 4), (1, 1, 2, 2)], ids=["5.3: of each part", "5.5: of all parts"])
def test_parts_of_a_split_registration_keep_the_mappings_that_the_last_part_has(versions: tuple[int, ...]) -> None:
    group = BrokerGroup(NAME)
    for number, version in enumerate(versions):
        is_last = number % 2
        part = a_registration(
            topics=BASE | {"other": RW} if is_last else {"static": RW, "more": RW},
            topic_mappings={"static": a_mapping()} if is_last else None,
            data_version=V2._replace(counter=version),
            registration_hash=str(number),
        )
        group = group_after(part, group=group)
        assert number == 0 or group.topic_mappings == {"static": a_mapping()}


def test_a_mapping_ends_with_a_topic_that_a_registration_drops() -> None:
    dropped = group_after(MAPPED, a_registration(data_version=V2), delete=True)

    assert "static" not in dropped.topics
    assert dropped.topic_mappings == {}


def test_a_mapping_that_an_earlier_release_kept_ends_when_its_broker_returns() -> None:
    kept = BrokerGroup(NAME, topic_mappings={"static": a_mapping()})

    assert group_after(a_registration(topics=STATIC), group=kept).topic_mappings == {}


def test_a_mapping_that_an_earlier_release_kept_ends_when_its_topic_is_deleted_in_any_cluster() -> None:
    log = Log()
    log.groups.put(BrokerGroup(NAME, topic_mappings={"static": a_mapping()}))

    [row] = log.say(TopicDeleted(S1, "static", "c0"))

    assert (row.kind, row.gone, row.topic) == ("topic_mapping", True, "static")


def test_a_deleted_topic_contradicts_nothing() -> None:
    log = Log()
    log.register(a_registration())
    log.register(a_registration(topics={"TopicTest": QueueData(1, 1, 6), **BASE}, registration_hash="2"))
    assert log.group().live_brokers[a_key()].contradictions == ("TopicTest",)

    log.say(TopicDeleted(S1, "TopicTest", None))

    assert log.group().live_brokers[a_key()].contradictions == ()


# ---- clusters ----


def test_a_cluster_ends_with_its_last_process() -> None:
    group = group_after(a_registration(MASTER), a_registration(SLAVE, 1), a_registration(MASTER, cluster="c1"))
    assert (group.cluster, group.clusters) == ("c0", frozenset({"c0", "c1"}))

    group = unregister(group, a_key(SLAVE))
    assert (group.cluster, group.clusters) == ("c0", frozenset({"c0", "c1"}))
    group = group_after(a_registration(SLAVE, 1, cluster="c1"), group=group)
    group = unregister(group, a_key(MASTER))

    assert set(group.live_brokers) == {LiveKey("c1", MASTER), LiveKey("c1", SLAVE)}
    assert (group.cluster, group.clusters) == ("c1", frozenset({"c1"}))


# ---- permissions that an acting master leaves behind ----


def test_a_node_that_acted_before_its_election_leaves_no_permission_behind() -> None:
    """rocketmq #7626: a node without an id yet is the smallest, and takes write from the topics of its master."""
    taken = group_after(acting(MASTER, 0), acting(SLAVE, -1))
    assert perms_of(taken) == {4}

    for left in (unregister(taken, a_key(SLAVE)), group_after(acting(SLAVE, 2), group=taken)):
        assert perms_of(group_after(acting(MASTER, 0), group=left)) == {6}


def test_an_unchanged_registration_of_the_master_restores_what_such_a_node_took() -> None:
    log = Log()
    log.register(acting(MASTER, 0))
    log.register(acting(SLAVE, -1), connection=2)
    log.unregister(acting(SLAVE, -1), connection=2)
    assert perms_of(log.group()) == {4}

    log.heard(acting(MASTER, 0))

    assert perms_of(log.group()) == {6}
    assert log.group().live_brokers[a_key(MASTER)].data_version == acting(MASTER, 0).data_version


def test_a_node_that_is_elected_leaves_no_permission_behind() -> None:
    taken = group_after(acting(MASTER, 0), acting(SLAVE, -1))

    assert perms_of(group_after(acting(SLAVE, 0), group=taken)) == {6}


def test_a_slave_that_does_not_act_any_more_leaves_no_permission_behind() -> None:
    taken = unregister(group_after(acting(MASTER, 0), acting(SLAVE, 1), acting(THIRD, 2)), a_key(MASTER))
    assert perms_of(group_after(acting(SLAVE, 1), group=taken)) == {4}

    assert perms_of(group_after(a_registration(SLAVE, 1), group=taken)) == {6}
