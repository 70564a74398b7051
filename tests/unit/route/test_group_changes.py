"""RocketMQ's rules for unregistration, holders, permissions and topics.

Source of the cases: rocketmq 5.3.3, RouteInfoManager and its own tests.
"""

from collections.abc import Mapping

import pytest

from namesrv_stream.route.group import (
    BrokerGroup,
    add_write_perm,
    delete_topic,
    register_topic,
    remove_holder,
    unregister,
    wipe_write_perm,
)
from namesrv_stream.route.model import Holder, QueueData
from namesrv_stream.route.registration import register
from namesrv_stream.route.registration_json import retained
from tests.support.broker_groups import (
    MASTER,
    SLAVE,
    THIRD,
    V2,
    acting,
    group_after,
    perms_of,
)
from tests.support.builders import BASE, HOLDER, NAME, RW, a_key, a_registration, topics_of

# ---- unregistering ----


def test_last_broker_removes_name_topics_and_clusters() -> None:
    group = unregister(group_after(a_registration()), a_key())

    assert not group.is_registered
    assert (group.topics, group.clusters, group.live_brokers) == ({}, frozenset(), {})


def test_the_registration_is_retained() -> None:
    assert unregister(group_after(a_registration()), a_key()).registrations == {a_key(): retained(a_registration())}


def test_unregistering_is_by_address_whatever_the_id() -> None:
    """rocketmq #5374: a late unregister of the old master removed the new one."""
    group = group_after(a_registration(MASTER), a_registration(SLAVE, 1), a_registration(SLAVE, 0))

    assert unregister(group, a_key(MASTER)).broker_addrs == {0: SLAVE}


def test_unregistering_a_replaced_address_only_ends_its_live_entry() -> None:
    group = unregister(group_after(a_registration(MASTER), a_registration(THIRD)), a_key(MASTER))

    assert group.broker_addrs == {0: THIRD}
    assert set(group.live_brokers) == {a_key(THIRD)}


def test_unregistering_a_slave_keeps_the_topics_writable() -> None:
    assert perms_of(unregister(group_after(acting(MASTER, 0), acting(SLAVE, 1)), a_key(SLAVE))) == {6}


def test_masterless_group_without_acting_master_keeps_write() -> None:
    group = unregister(group_after(a_registration(MASTER), a_registration(SLAVE, 1)), a_key(MASTER))

    assert group.broker_addrs == {1: SLAVE}
    assert perms_of(group) == {6}


def test_group_left_with_a_negative_id_keeps_write() -> None:
    """The smallest id must be above the master's."""
    assert perms_of(unregister(group_after(acting(MASTER, 0), a_registration(SLAVE, -1)), a_key(MASTER))) == {6}


def test_unregistering_an_unknown_broker_changes_nothing() -> None:
    group = group_after(a_registration())

    assert unregister(group, a_key(THIRD)) is group
    assert unregister(group, a_key(cluster="c1")).live_brokers == group.live_brokers


def test_a_replaced_address_may_outlive_the_route() -> None:
    group = unregister(group_after(a_registration(MASTER), a_registration(THIRD)), a_key(THIRD))

    assert not group.is_registered
    assert set(group.live_brokers) == {a_key(MASTER)}
    assert unregister(group, a_key(MASTER)).live_brokers == {}


# ---- holders ----


def test_a_broker_can_have_two_servers_as_holders() -> None:
    group = register(group_after(a_registration()), a_registration(), "s2", Holder(3, 9)).group

    assert group.live_brokers[a_key()].holders == {"s1": HOLDER, "s2": Holder(3, 9)}
    assert remove_holder(group, a_key(), "s1").live_brokers[a_key()].holders == {"s2": Holder(3, 9)}


@pytest.mark.parametrize(("addr", "server"), [(MASTER, "s9"), (THIRD, "s1")])
def test_ending_an_unknown_holder_changes_nothing(addr: str, server: str) -> None:
    group = group_after(a_registration(MASTER))

    assert remove_holder(group, a_key(addr), server) is group


# ---- permissions and topics ----


@pytest.mark.parametrize(("before", "wiped", "added"), [(6, 4, 6), (4, 4, 6), (7, 5, 6), (2, 0, 6), (15, 13, 6)])
def test_wiping_removes_the_write_permission_and_adding_permits_reading_and_writing(
    before: int, wiped: int, added: int
) -> None:
    group = group_after(a_registration(topics={"t": QueueData(1, 1, before, 3), **BASE}))

    assert wipe_write_perm(group).topics["t"] == QueueData(1, 1, wiped, 3)
    assert add_write_perm(group).topics["t"] == QueueData(1, 1, added, 3)


def test_a_wiped_permission_survives_the_same_version_and_not_another() -> None:
    wiped = wipe_write_perm(group_after(a_registration()))

    assert perms_of(group_after(a_registration(), group=wiped)) == {4}
    assert perms_of(group_after(a_registration(data_version=V2), group=wiped)) == {6}


def test_unchanged_permissions_change_nothing() -> None:
    group = group_after(a_registration())
    wiped = wipe_write_perm(group)

    assert add_write_perm(group) is group
    assert wipe_write_perm(wiped) is wiped


def test_a_deleted_topic_is_added_back_by_the_same_registration() -> None:
    group = delete_topic(group_after(a_registration()), "TopicTest")
    assert topics_of(group) == {}

    assert topics_of(group_after(a_registration(), group=group)) == {"TopicTest": RW}


def test_registering_a_topic_before_any_broker_is_ignored() -> None:
    empty = BrokerGroup(NAME)

    assert register_topic(empty, "t", RW) is empty


def test_a_registered_topic_is_offered_until_a_full_registration_that_deletes_absent_topics() -> None:
    group = register_topic(group_after(a_registration()), "t", RW)

    assert group.topics["t"] == RW
    assert "t" in group_after(a_registration(data_version=V2), group=group).topics
    assert "t" not in group_after(a_registration(data_version=V2), group=group, delete=True).topics


# ---- arguments ----


def test_rules_do_not_change_their_arguments() -> None:
    group = group_after(a_registration(MASTER), a_registration(SLAVE, 1))
    addrs: Mapping[int, str] = dict(group.broker_addrs)

    unregister(group, a_key(MASTER))
    group_after(a_registration(SLAVE, 0), group=group)
    wipe_write_perm(group)

    assert group.broker_addrs == addrs
    assert perms_of(group) == {6}
