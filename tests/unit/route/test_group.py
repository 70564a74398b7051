"""RocketMQ's registration rules. Source of the cases: rocketmq 5.3.3, RouteInfoManager and its own tests."""

import pytest

from namesrv_stream.route.group import (
    BrokerGroup,
    master_of,
    unregister,
    wipe_write_perm,
)
from namesrv_stream.route.model import DataVersion, QueueData
from namesrv_stream.route.registration_json import retained
from tests.support.broker_groups import (
    MASTER,
    SLAVE,
    THIRD,
    V2,
    acting,
    group_after,
    perms_of,
    register_in,
)
from tests.support.builders import BASE, HOLDER, NAME, READ_ONLY, RW, a_key, a_mapping, a_registration, topics_of

# ---- the first registration ----


def test_first_registration_of_a_master_adds_broker_and_topics() -> None:
    group = group_after(a_registration(MASTER, zone_name="z1", timeout_ms=10_000, filter_servers=("f:1",)))

    live = group.live_brokers[a_key(MASTER)]
    assert (group.cluster, group.clusters, group.zone_name) == ("c0", frozenset({"c0"}), "z1")
    assert group.broker_addrs == {0: MASTER}
    assert topics_of(group) == {"TopicTest": RW}
    assert (live.data_version, live.timeout_ms, live.filter_servers) == (DataVersion(1, 1_000, 0), 10_000, ("f:1",))
    assert live.ha_server_addr == "10.0.0.1:10912"
    assert live.holders == {"s1": HOLDER}


def test_registering_the_same_again_changes_nothing() -> None:
    group = group_after(a_registration())

    assert register_in(group, a_registration()).group is group


def test_registering_one_topic_before_any_registration_is_refused_and_changes_nothing() -> None:
    empty = BrokerGroup(NAME)

    refused = register_in(empty, a_registration(topics={"TopicTest": RW}))

    assert refused.refused
    assert refused.ignored is not None
    assert refused.group is empty


def test_registering_one_topic_with_a_new_id_of_a_known_address_is_refused_and_the_id_stays() -> None:
    group = group_after(a_registration(MASTER, 1))

    refused = register_in(group, a_registration(MASTER, 0, topics={"TopicTest": RW}))

    assert refused.refused
    assert refused.group.broker_addrs == {1: MASTER}


def test_a_first_registration_without_topics_is_accepted() -> None:
    assert group_after(a_registration(topics={})).broker_addrs == {0: "10.0.0.1:10911"}


def test_registering_one_topic_after_the_first_registration_adds_it() -> None:
    group = group_after(a_registration(), a_registration(topics={"new": RW}, data_version=V2))

    assert topics_of(group) == {"TopicTest": RW, "new": RW}


def test_registering_one_topic_does_not_replace_the_retained_registration() -> None:
    full = a_registration()

    group = group_after(full, a_registration(topics={"new": RW}, data_version=V2))

    assert group.registrations == {full.live_key: retained(full)}


# ---- topics and DataVersion ----


@pytest.mark.parametrize(
    "version",
    [DataVersion(2, 1_000, 0), DataVersion(1, 2_000, 0), DataVersion(1, 1_000, 1), DataVersion(0, 500, 0)],
    ids=["counter", "timestamp", "state version", "older"],
)
def test_another_data_version_rewrites_the_topics_of_the_payload(version: DataVersion) -> None:
    changed = {"TopicTest": QueueData(4, 4, 6), **BASE}

    group = group_after(a_registration(), a_registration(topics=changed, data_version=version))

    assert group.topics == changed


def test_the_same_data_version_only_adds_missing_topics() -> None:
    group = group_after(a_registration(), a_registration(topics={"TopicTest": QueueData(4, 4, 6), "new": RW}))

    assert topics_of(group) == {"TopicTest": RW, "new": RW}


def test_second_chunk_of_a_split_registration_adds_and_does_not_update() -> None:
    chunk_1 = a_registration(data_version=V2, topics={"a": RW, "b": RW})
    chunk_2 = a_registration(data_version=V2, topics={"TopicTest": QueueData(4, 4, 6), "c": RW})

    group = group_after(a_registration(), chunk_1, chunk_2)

    assert topics_of(group) == {"TopicTest": RW, "a": RW, "b": RW, "c": RW}


def test_a_payload_that_omits_topics_keeps_them() -> None:
    group = group_after(a_registration(), a_registration(topics=dict(BASE), data_version=V2))

    assert topics_of(group) == {"TopicTest": RW}


def test_a_new_address_is_not_compared_with_the_data_version_of_the_address_that_it_replaces() -> None:
    """Java compares with the live entry of the registering address, which a replacing address does not have."""
    replacing = a_registration(THIRD, topics={"TopicTest": QueueData(4, 4, 6), **BASE})

    assert group_after(a_registration(MASTER), replacing).topics["TopicTest"] == QueueData(4, 4, 6)


def test_another_cluster_has_its_own_data_version() -> None:
    group = group_after(a_registration(), a_registration(cluster="c1", data_version=V2))

    assert group.live_brokers[a_key()].data_version == DataVersion(1, 1_000, 0)
    assert group.live_brokers[a_key(cluster="c1")].data_version == V2


def test_cluster_of_an_existing_name_is_never_updated() -> None:
    group = group_after(a_registration(), a_registration(cluster="c1"))

    assert group.cluster == "c0"
    assert group.clusters == {"c0", "c1"}


# ---- roles ----


def test_a_slave_joins_without_touching_topics() -> None:
    group = group_after(a_registration(MASTER), a_registration(SLAVE, 1, topics={"other": RW, **BASE}, data_version=V2))

    assert group.broker_addrs == {0: MASTER, 1: SLAVE}
    assert topics_of(group) == {"TopicTest": RW}
    assert group.live_brokers[a_key(SLAVE)].data_version == V2


def test_a_slave_that_is_not_prime_does_not_touch_static_mappings() -> None:
    group = group_after(a_registration(MASTER), a_registration(SLAVE, 1, topic_mappings={"static": a_mapping()}))

    assert group.topic_mappings == {}


def test_role_switch_by_the_same_address_leaves_one_record() -> None:
    group = group_after(a_registration(MASTER, 0), a_registration(SLAVE, 1), a_registration(SLAVE, 0))

    assert group.broker_addrs == {0: SLAVE}


def test_old_master_returns_as_slave_after_a_switch() -> None:
    group = group_after(a_registration(MASTER, 0), a_registration(SLAVE, 1), a_registration(SLAVE, 0))

    assert group_after(a_registration(MASTER, 1), group=group).broker_addrs == {0: SLAVE, 1: MASTER}


def test_newest_address_wins_an_id() -> None:
    group = group_after(a_registration(MASTER), a_registration(THIRD))

    assert group.broker_addrs == {0: THIRD}
    assert set(group.live_brokers) == {a_key(MASTER), a_key(THIRD)}


def test_a_stale_state_version_is_ignored_and_its_own_live_entry_removed() -> None:
    elected = a_registration(MASTER, data_version=DataVersion(1, 1, 5))
    group = group_after(elected, a_registration(THIRD, 1))

    stale = register_in(group, a_registration(THIRD, 0, data_version=DataVersion(9, 9, 4)))

    assert stale.ignored is not None
    assert not stale.refused
    assert a_key(THIRD) not in stale.group.live_brokers
    assert stale.group.topics == group.topics


def test_a_stale_registration_leaves_no_address_without_a_holder() -> None:
    elected = a_registration(MASTER, data_version=DataVersion(1, 1, 5))
    group = group_after(elected, a_registration(THIRD, 1))

    stale = register_in(group, a_registration(THIRD, 0, data_version=DataVersion(9, 9, 4)))

    assert stale.group.broker_addrs == {0: MASTER}


@pytest.mark.parametrize("state_version", [5, 6])
def test_an_equal_or_higher_state_version_takes_the_id(state_version: int) -> None:
    group = group_after(
        a_registration(MASTER, data_version=DataVersion(1, 1, 5)),
        a_registration(THIRD, data_version=DataVersion(1, 1, state_version)),
    )

    assert group.broker_addrs == {0: THIRD}


def test_state_version_of_an_address_in_another_cluster_does_not_count() -> None:
    group = group_after(a_registration(MASTER, data_version=DataVersion(1, 1, 5)), a_registration(THIRD, cluster="c1"))

    assert group.broker_addrs == {0: THIRD}


def test_state_version_of_an_address_that_is_not_live_does_not_count() -> None:
    group = unregister(group_after(a_registration(MASTER, data_version=DataVersion(1, 1, 5))), a_key(MASTER))

    assert group_after(a_registration(THIRD), group=group).broker_addrs == {0: THIRD}


def test_the_slave_with_the_smallest_id_offers_topics_while_there_is_no_master() -> None:
    group = group_after(a_registration(SLAVE, 2), a_registration(THIRD, 1, topics={"of prime": RW, **BASE}))

    assert topics_of(group) == {"TopicTest": RW, "of prime": RW}


def test_only_slave_with_acting_master_offers_without_write() -> None:
    assert perms_of(group_after(acting(SLAVE, 1))) == {4}


def test_only_slave_without_acting_master_keeps_write() -> None:
    assert perms_of(group_after(a_registration(SLAVE, 1))) == {6}


def test_candidate_with_id_minus_one_keeps_write_without_acting_master() -> None:
    """rocketmq #7626: a DLedger candidate became prime slave and turned every permission to 4."""
    assert perms_of(group_after(a_registration(MASTER), a_registration(SLAVE, -1, data_version=V2))) == {6}


def test_clearing_write_keeps_other_perm_bits() -> None:
    assert group_after(acting(SLAVE, 1, topics={"t": QueueData(1, 1, 7), **BASE})).topics["t"].perm == 5


def test_old_slave_never_offers_topics() -> None:
    group = group_after(a_registration(SLAVE, 1, enable_acting_master=None))

    assert group.topics == {}
    assert group.broker_addrs == {1: SLAVE}


def test_old_master_offers_topics() -> None:
    assert topics_of(group_after(a_registration(enable_acting_master=None))) == {"TopicTest": RW}


def test_acting_master_flag_and_zone_are_of_the_last_registration() -> None:
    group = group_after(acting(MASTER, 0, zone_name="z1"), a_registration(SLAVE, 1, enable_acting_master=None))

    assert not group.enable_acting_master
    assert group.zone_name is None


def test_write_permission_removed_when_the_master_unregisters_is_restored_when_it_returns() -> None:
    group = unregister(group_after(acting(MASTER, 0), acting(SLAVE, 1)), a_key(MASTER))
    assert perms_of(group) == {4}

    assert perms_of(group_after(acting(MASTER, 0), group=group)) == {6}


# ---- deleteTopicWithBrokerRegistration ----


def test_with_topic_deletion_topics_absent_from_the_payload_are_removed() -> None:
    group = group_after(a_registration(), a_registration(topics={"new": RW, **BASE}), delete=True)

    assert topics_of(group) == {"new": RW}


def test_with_topic_deletion_a_payload_of_static_topics_deletes_nothing() -> None:
    chunk = a_registration(topics={"new": RW, **BASE}, topic_mappings={"static": a_mapping()})

    assert topics_of(group_after(a_registration(), chunk, delete=True)) == {"TopicTest": RW, "new": RW}


def test_with_topic_deletion_a_slave_deletes_nothing() -> None:
    group = group_after(a_registration(MASTER), a_registration(SLAVE, 1, topics=dict(BASE)), delete=True)

    assert topics_of(group) == {"TopicTest": RW}


def test_with_topic_deletion_kept_topics_are_not_rewritten_by_an_equal_version() -> None:
    group = wipe_write_perm(group_after(a_registration(topics={"a": RW, "b": RW, **BASE})))

    group = group_after(a_registration(topics={"a": RW, **BASE}), group=group, delete=True)

    assert topics_of(group) == {"a": READ_ONLY}


# ---- static mappings and filter servers ----


def test_static_mappings_are_merged() -> None:
    group = group_after(
        a_registration(topic_mappings={"one": a_mapping("one")}),
        a_registration(topic_mappings={"two": a_mapping("two")}, data_version=V2),
    )

    assert set(group.topic_mappings) == {"one", "two"}


def test_an_equal_version_adds_static_mappings_and_updates_none() -> None:
    group = group_after(
        a_registration(topic_mappings={"one": a_mapping("one")}),
        a_registration(topic_mappings={"one": a_mapping("one", epoch=8), "two": a_mapping("two")}),
    )

    assert group.topic_mappings == {"one": a_mapping("one"), "two": a_mapping("two")}


@pytest.mark.parametrize(
    ("sent", "known"), [(None, ("f:1",)), ((), ()), (("f:2",), ("f:2",))], ids=["none", "empty", "other"]
)
def test_filter_servers_are_kept_removed_or_changed(sent: tuple[str, ...] | None, known: tuple[str, ...]) -> None:
    group = group_after(a_registration(filter_servers=("f:1",)), a_registration(filter_servers=sent))

    assert group.live_brokers[a_key()].filter_servers == known


# ---- the master that a slave receives ----


def test_a_slave_receives_the_live_master() -> None:
    assert master_of(group_after(a_registration(MASTER), a_registration(SLAVE, 1)), "c0") == (MASTER, "10.0.0.1:10912")


def test_no_broker_receives_a_master_of_another_cluster() -> None:
    assert master_of(group_after(a_registration(MASTER)), "c1") is None


def test_no_broker_receives_a_master_that_is_absent() -> None:
    assert master_of(group_after(a_registration(SLAVE, 1)), "c0") is None
