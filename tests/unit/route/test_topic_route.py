"""The route of a topic. Source: rocketmq 5.3.3, RouteInfoManager.pickupTopicRouteData and ZoneRouteRPCHook."""

import pytest

from namesrv_stream.route.address_views import parse_view
from namesrv_stream.route.group import delete_topic, register_topic, unregister, wipe_write_perm
from namesrv_stream.route.model import MASTER_ID, QueueData, Registration
from namesrv_stream.route.registration import register
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import (
    BrokerData,
    TopicRoute,
    in_view,
    in_zone,
    is_system_topic,
    pickup_topic_route,
)
from tests.support.builders import HOLDER, READ_ONLY, RW, a_key, a_mapping, a_registration

MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"
THIRD = "10.0.0.3:10911"
TOPIC = "TopicTest"
MEMBER_TOPIC = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"


def table_of(*registrations: Registration) -> RouteTable:
    table = RouteTable()
    for registration in registrations:
        group = table.group(registration.broker_name)
        table.replace_group(register(group, registration, "s1", HOLDER).group)
    return table


def route_of(table: RouteTable, topic: str = TOPIC, *, acting: bool = False) -> TopicRoute:
    route = pickup_topic_route(table, topic, support_acting_master=acting)
    assert route is not None
    return route


def masterless(perm: int = 4, *, enable_acting_master: bool = True, topic: str = TOPIC) -> RouteTable:
    """Return a group of the ids 1 and 2 that offers ``topic`` with ``perm``."""
    changes = {"enable_acting_master": enable_acting_master, "topics": {topic: QueueData(8, 8, perm), "other": RW}}
    table = table_of(
        a_registration(MASTER, 0, **changes), a_registration(THIRD, 2, **changes), a_registration(SLAVE, 1, **changes)
    )
    table.replace_group(unregister(table.group("broker-a"), a_key(MASTER)))
    return table


# ---- contents of a route ----


def test_route_names_brokers_and_queues() -> None:
    route = route_of(table_of(a_registration(zone_name="z1"), a_registration(SLAVE, 1, zone_name="z1")))

    assert route == TopicRoute(
        (BrokerData("broker-a", "c0", {0: MASTER, 1: SLAVE}, False, "z1"),), {"broker-a": RW}, {}, None, None
    )


def test_route_has_every_broker_that_offers_the_topic_and_no_other() -> None:
    route = route_of(
        table_of(
            a_registration("1.1.1.1:1", broker_name="b1"),
            a_registration("2.2.2.2:2", broker_name="b2", topics={TOPIC: READ_ONLY, "x": RW}),
            a_registration("3.3.3.3:3", broker_name="b3", topics={"x": RW, "y": RW}),
        )
    )

    assert [b.broker_name for b in route.broker_datas] == ["b1", "b2"]
    assert route.queue_datas == {"b1": RW, "b2": READ_ONLY}


def test_unknown_topic_has_no_route() -> None:
    assert pickup_topic_route(table_of(a_registration()), "NoSuchTopic") is None


def test_topic_whose_brokers_all_left_has_no_route() -> None:
    table = table_of(a_registration())
    table.replace_group(unregister(table.group("broker-a"), a_key()))

    assert pickup_topic_route(table, TOPIC) is None


def test_deleted_topic_has_no_route_and_registered_one_has() -> None:
    table = table_of(a_registration())
    table.replace_group(delete_topic(table.group("broker-a"), TOPIC))
    assert pickup_topic_route(table, TOPIC) is None

    table.replace_group(register_topic(table.group("broker-a"), TOPIC, READ_ONLY))
    assert route_of(table).queue_datas == {"broker-a": READ_ONLY}


def test_wiped_permission_is_in_the_route() -> None:
    table = table_of(a_registration())
    table.replace_group(wipe_write_perm(table.group("broker-a")))

    assert route_of(table).queue_datas["broker-a"].perm == 4


# ---- filter servers ----


def test_filter_servers_are_listed_by_address() -> None:
    table = table_of(a_registration(filter_servers=("f:1", "f:2")), a_registration(SLAVE, 1))

    assert route_of(table).filter_server_table == {MASTER: ("f:1", "f:2")}


def test_filter_servers_of_a_replaced_address_are_left_out() -> None:
    table = table_of(a_registration(filter_servers=("f:1",)), a_registration(THIRD, 0))

    assert a_key(MASTER) in table.group("broker-a").live_brokers
    assert route_of(table).filter_server_table == {}


def test_filter_servers_of_other_brokers_are_left_out() -> None:
    other = a_registration("9.9.9.9:9", broker_name="b", filter_servers=("f:1",), topics={"x": RW, "y": RW})

    assert route_of(table_of(a_registration(), other)).filter_server_table == {}


# ---- static topics ----


def test_static_topic_has_each_brokers_share() -> None:
    table = table_of(
        a_registration(topic_mappings={TOPIC: a_mapping(TOPIC)}),
        a_registration("2.2.2.2:2", broker_name="b2", topic_mappings={TOPIC: a_mapping(TOPIC, "b2")}),
    )

    assert route_of(table).topic_queue_mapping == {"broker-a": a_mapping(TOPIC), "b2": a_mapping(TOPIC, "b2")}


def test_share_of_a_broker_that_left_is_not_in_the_route() -> None:
    table = table_of(
        a_registration(topic_mappings={TOPIC: a_mapping(TOPIC)}), a_registration("2.2.2.2:2", broker_name="b2")
    )
    table.replace_group(unregister(table.group("broker-a"), a_key()))

    route = route_of(table)

    assert [b.broker_name for b in route.broker_datas] == ["b2"]
    assert route.topic_queue_mapping is None


def test_static_shares_without_queues_are_not_a_route() -> None:
    table = table_of(a_registration(topic_mappings={"static": a_mapping()}))

    assert pickup_topic_route(table, "static") is None


def test_share_is_listed_under_the_name_that_it_states() -> None:
    table = table_of(a_registration(topic_mappings={TOPIC: a_mapping(TOPIC, "logical")}))

    assert route_of(table).topic_queue_mapping == {"logical": a_mapping(TOPIC, "logical")}


# ---- acting master ----


def test_slave_with_the_lowest_id_is_listed_as_master_and_no_longer_with_its_own_id() -> None:
    (broker,) = route_of(masterless(), acting=True).broker_datas

    assert broker.broker_addrs == {MASTER_ID: SLAVE, 2: THIRD}


def test_promotion_of_a_slave_does_not_change_the_table() -> None:
    table = masterless()
    route_of(table, acting=True)

    assert table.group("broker-a").broker_addrs == {1: SLAVE, 2: THIRD}


def test_without_the_setting_no_slave_acts_as_master() -> None:
    (broker,) = route_of(masterless()).broker_datas

    assert broker.broker_addrs == {1: SLAVE, 2: THIRD}


def test_group_that_did_not_enable_acting_master_has_none() -> None:
    (broker,) = route_of(masterless(enable_acting_master=False), acting=True).broker_datas

    assert broker.broker_addrs == {1: SLAVE, 2: THIRD}


def test_addresses_of_a_group_with_a_master_are_unchanged() -> None:
    table = table_of(
        a_registration(enable_acting_master=True, topics={TOPIC: READ_ONLY, "x": RW}),
        a_registration(SLAVE, 1, enable_acting_master=True),
    )

    assert route_of(table, acting=True).broker_datas[0].broker_addrs == {0: MASTER, 1: SLAVE}


def test_writable_topic_has_no_acting_master() -> None:
    table = masterless()
    table.replace_group(register_topic(table.group("broker-a"), TOPIC, RW))

    assert route_of(table, acting=True).broker_datas[0].broker_addrs == {1: SLAVE, 2: THIRD}


def test_the_member_topic_of_a_group_lists_no_acting_master() -> None:
    table = masterless(topic=MEMBER_TOPIC)

    assert route_of(table, MEMBER_TOPIC, acting=True).broker_datas[0].broker_addrs == {1: SLAVE, 2: THIRD}


def test_only_the_masterless_of_two_groups_gets_an_acting_master() -> None:
    table = masterless()
    registration = a_registration("2.2.2.2:2", broker_name="b2", enable_acting_master=True)
    table.replace_group(register(table.group("b2"), registration, "s1", HOLDER).group)

    addrs = {b.broker_name: b.broker_addrs for b in route_of(table, acting=True).broker_datas}

    assert addrs == {"broker-a": {0: SLAVE, 2: THIRD}, "b2": {0: "2.2.2.2:2"}}


# ---- zones ----


def two_zones() -> RouteTable:
    return table_of(
        a_registration("1.1.1.1:1", broker_name="b1", zone_name="z1", filter_servers=("f:1",)),
        a_registration("2.2.2.2:2", broker_name="b2", zone_name="z2", filter_servers=("f:2",)),
    )


@pytest.mark.parametrize("zone", ["z1", "Z1"])
def test_brokers_of_other_zones_are_removed_with_queues_and_filter_servers(zone: str) -> None:
    route = in_zone(route_of(two_zones()), zone)

    assert [b.broker_name for b in route.broker_datas] == ["b1"]
    assert route.queue_datas == {"b1": RW}
    assert route.filter_server_table == {"1.1.1.1:1": ("f:1",)}


def test_zones_are_compared_char_by_char_as_java_does() -> None:
    table = table_of(a_registration("1.1.1.1:1", broker_name="b1", zone_name="straße"))
    assert in_zone(route_of(table), "STRAßE").broker_datas
    assert not in_zone(route_of(table), "STRASSE").broker_datas


def test_broker_without_a_zone_is_removed() -> None:
    route = in_zone(route_of(table_of(a_registration())), "z1")

    assert (route.broker_datas, route.queue_datas) == ((), {})


def test_group_without_a_master_stays_whatever_its_zone() -> None:
    route = in_zone(route_of(table_of(a_registration(SLAVE, 1, zone_name="z2"))), "z1")

    assert [b.broker_name for b in route.broker_datas] == ["broker-a"]


def test_promoted_slave_counts_as_a_master() -> None:
    route = in_zone(route_of(masterless(), acting=True), "z1")

    assert route.broker_datas == ()


def test_queues_of_a_name_without_broker_data_stay() -> None:
    route = TopicRoute((), {"gone": RW}, {"1.1.1.1:1": ("f:1",)})

    assert in_zone(route, "z1") == route


def test_static_shares_and_order_conf_are_not_filtered() -> None:
    mappings = {"b1": a_mapping(TOPIC, "b1"), "b2": a_mapping(TOPIC, "b2")}
    brokers = route_of(two_zones()).broker_datas
    route = in_zone(TopicRoute(brokers, {}, {}, "b1:4", mappings), "z1")

    assert (route.order_topic_conf, route.topic_queue_mapping) == ("b1:4", mappings)


def test_the_zone_filter_does_not_change_the_route_that_it_filters() -> None:
    route = route_of(two_zones())
    in_zone(route, "z1")

    assert len(route.broker_datas) == len(route.queue_datas) == 2


def test_a_view_maps_the_keys_of_filter_servers_and_removes_brokers_without_an_address() -> None:
    table = table_of(
        a_registration(MASTER, broker_name="b1", filter_servers=("10.0.0.1:1",)),
        a_registration(THIRD, broker_name="b2", filter_servers=("10.0.0.3:1",)),
    )
    view = parse_view("v", '{"unmapped": "omit", "mappings": [{"broker_name": "b1", "to": "outer:1"}]}')
    route = in_view(route_of(table), table, view)

    assert route is not None
    assert [dict(data.broker_addrs) for data in route.broker_datas] == [{0: "outer:1"}]
    assert route.queue_datas.keys() == {"b1"}
    assert route.filter_server_table == {"outer:1": ("10.0.0.1:1",)}


@pytest.mark.parametrize(
    "topic",
    [
        # Source: rocketmq 5.5.0, TopicValidator.SYSTEM_TOPIC_SET.
        *("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
        *("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        *("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"),
        *("TRANS_CHECK_MAX_TIME_TOPIC", "CHECKPOINT_TOPIC"),
        *("rmq_sys_SYNC_BROKER_MEMBER_b", "%RETRY%group", "%DLQ%group"),
        *("east", "broker-a", "east_REPLY_TOPIC"),
    ],
)
def test_topics_that_brokers_create_themselves_are_not_user_topics(topic: str) -> None:
    assert is_system_topic(topic, {"east"}, {"broker-a"})


@pytest.mark.parametrize("topic", ["Orders", "rmq", "broker-b", "other_REPLY_TOPIC", "tbw102"])
def test_topics_other_than_brokers_own_are_user_topics(topic: str) -> None:
    assert not is_system_topic(topic, {"east"}, {"broker-a"})
