"""Which brokers are notified of a new smallest brokerId. Source: rocketmq 5.3.3, RouteInfoManager and its answers."""

from dataclasses import replace

import pytest

from namesrv_stream.route.group import BrokerGroup, unregister
from namesrv_stream.route.model import Registration
from namesrv_stream.route.registration import register
from namesrv_stream.route.topic_route import MinBrokerIdChange, min_broker_id_change
from tests.support.builders import HOLDER, NAME, RW, a_key, a_registration

A, B, C, D = (f"10.0.0.{n}:10911" for n in range(1, 5))
HA_OF_A = "10.0.0.1:10912"


def a_group(members: dict[int, str], *, acting_master: bool = True) -> BrokerGroup:
    group = BrokerGroup(NAME)
    for broker_id, addr in members.items():
        group = registered(group, addr, broker_id, enable_acting_master=acting_master)
    assert group.broker_addrs == members
    return group


def registered(group: BrokerGroup, addr: str, broker_id: int, **changes: object) -> BrokerGroup:
    registration: Registration = a_registration(addr, broker_id, **({"enable_acting_master": True} | changes))
    return register(group, registration, "s1", HOLDER).group


def change_of(before: BrokerGroup, after: BrokerGroup) -> MinBrokerIdChange:
    change = min_broker_id_change(before, after)
    assert change is not None
    return change


# ---- a broker with a smaller id registers ----


@pytest.mark.parametrize(
    ("before", "addr", "broker_id", "recipients"),
    [
        pytest.param({1: B}, A, 0, (B,), id="master joins its slave"),
        pytest.param({1: B, 2: C}, A, 0, (B, C), id="master joins its slaves"),
        pytest.param({2: C, 3: D}, B, 1, (C, D), id="smaller slave joins a group without master"),
        pytest.param({1: A, 2: B}, A, 0, (B,), id="slave becomes master"),
        pytest.param({1: A}, A, 0, (A,), id="the only member becomes master, and is notified itself"),
        pytest.param({0: B}, A, -1, (B,), id="node before its election joins a master"),
        pytest.param({}, A, -1, (A,), id="node before its election is the first of its group"),
    ],
)
def test_the_other_brokers_are_notified_of_a_smaller_id(
    before: dict[int, str], addr: str, broker_id: int, recipients: tuple[str, ...]
) -> None:
    group = a_group(before)

    assert change_of(group, registered(group, addr, broker_id)) == MinBrokerIdChange(
        NAME, broker_id, addr, None, addr.replace(":10911", ":10912"), recipients
    )


def test_brokers_are_notified_of_a_smaller_id_without_acting_master_too() -> None:
    before = a_group({1: B}, acting_master=False)

    assert change_of(before, registered(before, A, 0, enable_acting_master=False)).recipients == (B,)


def test_brokers_are_notified_of_a_smaller_id_of_a_broker_older_than_5() -> None:
    before = a_group({1: B})

    assert change_of(before, registered(before, A, 0, enable_acting_master=None)).min_broker_addr == A


def test_the_ha_address_is_found_although_the_broker_names_another_cluster_than_its_group() -> None:
    before = a_group({1: B})

    assert change_of(before, registered(before, A, 0, cluster="c1")).ha_broker_addr == HA_OF_A


def test_notification_has_no_ha_address_if_the_broker_sent_none() -> None:
    before = a_group({1: B})

    assert change_of(before, registered(before, A, 0, ha_server_addr="")).ha_broker_addr is None


@pytest.mark.parametrize(
    ("before", "addr", "broker_id"),
    [
        pytest.param({}, A, 0, id="first master of a new group"),
        pytest.param({}, A, 1, id="first slave of a new group"),
        pytest.param({0: A}, B, 1, id="slave joins its master"),
        pytest.param({0: A, 1: B}, A, 0, id="unchanged registration"),
        pytest.param({0: A, 1: B}, C, 0, id="address of the master replaced"),
        pytest.param({0: A, 1: B}, C, 1, id="address of a slave replaced"),
        pytest.param({0: A, 1: B}, A, 2, id="master becomes slave"),
        pytest.param({0: A, 1: B}, A, 1, id="master takes the id of its slave"),
        pytest.param({0: A}, A, 1, id="the only member takes a greater id"),
    ],
)
def test_a_registration_without_a_smaller_id_notifies_no_broker(
    before: dict[int, str], addr: str, broker_id: int
) -> None:
    group = a_group(before)

    assert min_broker_id_change(group, registered(group, addr, broker_id)) is None


def test_a_refused_registration_notifies_no_broker() -> None:
    group = a_group({1: B})

    assert min_broker_id_change(group, registered(group, A, 0, topics={"TopicTest": RW})) is None


# ---- the broker with the smallest id unregisters or is removed ----


@pytest.mark.parametrize(
    ("before", "leaves", "min_id", "recipients"),
    [
        pytest.param({0: A, 1: B}, A, 1, (B,), id="master of one slave"),
        pytest.param({0: A, 1: B, 2: C}, A, 1, (B, C), id="master of two slaves"),
        pytest.param({1: B, 2: C}, B, 2, (C,), id="acting master"),
        pytest.param({0: A, 20: D, 3: C}, A, 3, (C, D), id="ids with gaps, registered in another order"),
        pytest.param({-1: A, 0: B}, A, 0, (B,), id="node before its election"),
    ],
)
def test_all_remaining_brokers_are_notified_when_the_smallest_id_leaves(
    before: dict[int, str], leaves: str, min_id: int, recipients: tuple[str, ...]
) -> None:
    group = a_group(before)

    assert change_of(group, unregister(group, a_key(leaves))) == MinBrokerIdChange(
        NAME, min_id, before[min_id], leaves, None, recipients
    )


def test_a_departure_without_acting_master_notifies_no_broker() -> None:
    group = a_group({0: A, 1: B}, acting_master=False)

    assert min_broker_id_change(group, unregister(group, a_key(A))) is None


def test_the_last_registration_says_whether_the_group_has_an_acting_master() -> None:
    group = registered(a_group({0: A, 1: B}), B, 1, enable_acting_master=None)

    assert min_broker_id_change(group, unregister(group, a_key(A))) is None


@pytest.mark.parametrize(
    ("before", "leaves"),
    [
        pytest.param({0: A, 1: B}, B, id="slave"),
        pytest.param({0: A}, A, id="last member"),
        pytest.param({0: A, 1: B}, D, id="no member of the group"),
    ],
)
def test_a_departure_of_a_larger_id_notifies_no_broker(before: dict[int, str], leaves: str) -> None:
    group = a_group(before)

    assert min_broker_id_change(group, unregister(group, a_key(leaves))) is None


# ---- several changes at once, as in the rows of one commit ----


def test_when_several_leave_at_once_the_notification_names_the_former_smallest_id() -> None:
    before = a_group({0: A, 1: B, 2: C, 3: D})

    after = unregister(unregister(before, a_key(A)), a_key(B))

    assert change_of(before, after) == MinBrokerIdChange(NAME, 2, C, A, None, (C, D))


def test_when_one_leaves_and_another_joins_at_once_both_members_are_notified() -> None:
    before = a_group({0: A, 1: B})

    after = registered(unregister(before, a_key(A)), C, 2)

    assert change_of(before, after) == MinBrokerIdChange(NAME, 1, B, A, None, (B, C))


def test_when_the_smallest_leaves_and_a_smaller_one_joins_at_once_the_arrival_is_notified() -> None:
    before = a_group({1: B, 2: C})

    after = registered(unregister(before, a_key(B)), A, 0)

    assert change_of(before, after) == MinBrokerIdChange(NAME, 0, A, None, HA_OF_A, (C,))


def test_a_master_that_left_and_came_back_within_one_step_notifies_no_broker() -> None:
    before = a_group({0: A, 1: B})

    assert min_broker_id_change(before, registered(unregister(before, a_key(A)), A, 0)) is None


def test_a_step_that_changes_no_member_notifies_no_broker() -> None:
    before = a_group({0: A, 1: B})

    assert min_broker_id_change(before, replace(before, topics={})) is None
