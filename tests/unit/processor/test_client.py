"""Requests of clients and tools. Source: rocketmq 5.3.3, ClientRequestProcessor, DefaultRequestProcessor."""

from dataclasses import replace
from typing import Any

import pytest

from namesrv_stream.processor.name_server import Options
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, SerializeType
from namesrv_stream.route.events import Origin
from tests.support.name_server import (
    MASTER,
    SLAVE,
    Exchange,
    a_body,
    a_registration_request,
    a_route_request,
    a_topic,
)

CLUSTER_REQUEST = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=3)
ORIGIN = Origin("s1", 1, 1)

LEGACY = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"c0",'
    b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
    b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
)
STRICT = LEGACY.replace(b'{0:"', b'{"0":"').replace(b',1:"', b',"1":"')


def a_pair(options: Options | None = None) -> Exchange:
    """A server with a master and its slave."""
    server = Exchange(options)
    server.send(a_registration_request(MASTER, 0))
    server.send(a_registration_request(SLAVE, 1), connection=2)
    return server


def two_zones(options: Options | None = None) -> Exchange:
    """A server with one master in zone z1 and one in z2, of which the second has a filter server."""
    server = Exchange(options)
    body = a_body().replace(b'"filterServerList":[]', b'"filterServerList":["f:1"]')
    server.send(a_registration_request("1.1.1.1:1", brokerName="b1", zone_name="z1"))
    server.send(a_registration_request("2.2.2.2:2", brokerName="b2", zone_name="z2", body=body), connection=2)
    return server


def names_in(body: bytes | None, part: str = "brokerDatas") -> list[str]:
    return [entry["brokerName"] for entry in fastjson.loads(body or b"")[part]]


# ---- 105 ----


def test_unknown_topic_is_answered_in_javas_words() -> None:
    response = a_pair().send(a_route_request("NoSuchTopic")).response

    assert (response.code, response.body, response.ext_fields) == (ResponseCode.TOPIC_NOT_EXIST, None, None)
    assert response.remark == (
        "No topic route info in name server for the topic: NoSuchTopic\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


def test_route_query_without_a_topic_is_answered_as_for_an_unknown_topic() -> None:
    response = a_pair().send(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC)).response

    assert response.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("version", "standard_only", "expected"),
    [(400, "", LEGACY), (401, "", STRICT), (479, "", STRICT), (0, "", LEGACY), (317, "true", STRICT),
     (317, "TRUE", STRICT), (317, "false", LEGACY), (479, "false", STRICT)],
)  # fmt: skip
def test_form_of_a_route_depends_on_the_clients_release_and_request(
    version: int, standard_only: str, expected: bytes
) -> None:
    fields = {"acceptStandardJsonOnly": standard_only} if standard_only else {}

    response = a_pair().send(a_route_request(version=version, **fields)).response

    assert (response.code, response.remark, response.body) == (ResponseCode.SUCCESS, None, expected)


def test_both_forms_of_a_route_follow_a_change() -> None:
    server = a_pair()
    requests = [a_route_request(version=v) for v in (317, 479)]
    before = [server.send(r).response.body for r in requests]

    server.send(a_registration_request(body=a_body({"TopicTest": a_topic(perm=4), "b": a_topic()}, counter=2)))

    after = [server.send(r).response.body for r in requests]
    assert after == [(b or b"").replace(b'"perm":6', b'"perm":4') for b in before]


def test_route_is_removed_with_its_last_broker_and_restored_when_the_broker_returns() -> None:
    server = a_pair()
    codes = [server.send(a_route_request()).response.code]
    server.close(1)
    server.close(2)
    codes.append(server.send(a_route_request()).response.code)
    server.send(a_registration_request(), connection=3)
    codes.append(server.send(a_route_request()).response.code)

    assert codes == [ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS]


def test_binary_request_is_answered_in_binary() -> None:
    request = RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        version=479,
        ext_fields={"topic": "TopicTest"},
        serialize_type=SerializeType.ROCKETMQ,
    )

    response = a_pair().send(request).response

    assert (response.serialize_type, response.body) == (SerializeType.ROCKETMQ, STRICT)


# ---- 105: readiness ----


def a_waiting_server(**options: Any) -> Exchange:
    """A server that started at 10 s and has a route."""
    server = a_pair(Options(need_wait_for_service=True, **options))
    server.server.started_ms = server.now_ms = 10_000
    return server


def test_routes_are_refused_right_after_the_start_if_the_wait_is_enabled() -> None:
    server = a_waiting_server()

    for server.now_ms in (10_000, 54_999):
        for topic in ("TopicTest", "NoSuchTopic"):
            response = server.send(a_route_request(topic)).response
            assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
            assert (response.ext_fields, response.body) == (None, None)


def test_routes_are_answered_repeatedly_after_the_wait() -> None:
    server = a_waiting_server()
    server.now_ms = 55_000

    # 5.1.0 to 5.3.1 were "not ready" for ever after the first (apache/rocketmq#9182).
    assert [server.send(a_route_request()).response.body for _ in range(3)] == [STRICT] * 3


@pytest.mark.parametrize("options", [{"wait_seconds_for_service": 0}, {"need_wait_for_service": False}])
def test_routes_are_answered_at_once_without_a_wait(options: dict[str, Any]) -> None:
    server = a_waiting_server()
    server.server.options = replace(server.server.options, **options)

    assert server.send(a_route_request()).response.body == STRICT


def test_brokers_can_register_during_the_wait() -> None:
    server = a_waiting_server()

    assert server.send(a_registration_request()).response.code == ResponseCode.SUCCESS


# ---- 105: order topics ----


@pytest.mark.parametrize("enable", [True, False])
def test_order_configuration_is_sent_only_if_enabled(enable: bool) -> None:
    server = a_pair(Options(order_message_enable=enable))
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"TopicTest": "broker-a:4", "Other": "x"}

    body = server.send(a_route_request()).response.body or b""

    assert (b'"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":' in body) == enable


def test_route_of_a_topic_without_an_order_configuration_contains_none() -> None:
    server = a_pair(Options(order_message_enable=True))
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"Other": "x"}

    assert server.send(a_route_request()).response.body == STRICT


def test_routes_follow_a_stored_and_a_deleted_order_configuration_at_once() -> None:
    server = a_pair(Options(order_message_enable=True))
    entry = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicTest"}
    bodies = [server.send(a_route_request()).response.body]
    for code in (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
        server.send(RemotingCommand(code, ext_fields={**entry, "value": "broker-a:4"}))
        bodies.append(server.send(a_route_request()).response.body)

    with_order = STRICT.replace(b'"queueDatas"', b'"orderTopicConf":"broker-a:4","queueDatas"')
    assert bodies == [STRICT, with_order, STRICT]


def test_order_configuration_is_sent_as_soon_as_it_is_enabled() -> None:
    server = a_pair()
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"TopicTest": "x"}
    server.send(a_route_request())
    server.server.options = Options(order_message_enable=True)

    assert b"orderTopicConf" in (server.send(a_route_request()).response.body or b"")


def test_order_configuration_alone_makes_no_route() -> None:
    server = Exchange(Options(order_message_enable=True))
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"TopicTest": "x"}

    assert server.send(a_route_request()).response.code == ResponseCode.TOPIC_NOT_EXIST


# ---- 105: zones ----


@pytest.mark.parametrize("zone", ["z1", "Z1"])
def test_zone_mode_leaves_only_brokers_of_the_zone_in_the_legacy_form(zone: str) -> None:
    response = two_zones().send(a_route_request(__ZONE_MODE="true", __ZONE_NAME=zone)).response

    assert names_in(response.body) == names_in(response.body, "queueDatas") == ["b1"]
    assert fastjson.loads(response.body or b"")["filterServerTable"] == {}
    assert b'"brokerAddrs":{0:' in (response.body or b"")  # although a 5.3.3 client sent the request


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"__ZONE_NAME": "z1"},
        {"__ZONE_MODE": "true"},
        {"__ZONE_MODE": "true", "__ZONE_NAME": "  "},
        {"__ZONE_MODE": "yes", "__ZONE_NAME": "z1"},
    ],
)
def test_route_is_not_filtered_without_zone_mode_and_zone_name(fields: dict[str, str]) -> None:
    response = two_zones().send(a_route_request("TopicTest", 479, **fields)).response

    assert sorted(names_in(response.body)) == ["b1", "b2"]
    assert b'"brokerAddrs":{"0":' in (response.body or b"")


def test_zone_name_is_compared_as_written() -> None:
    response = two_zones().send(a_route_request(__ZONE_MODE="true", __ZONE_NAME=" z1 ")).response

    assert (response.code, names_in(response.body)) == (ResponseCode.SUCCESS, [])


def test_zone_without_brokers_is_an_empty_route_and_no_error() -> None:
    response = two_zones().send(a_route_request(__ZONE_MODE="true", __ZONE_NAME="z9")).response

    assert response.code == ResponseCode.SUCCESS
    assert response.body == b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'


def test_unknown_topic_in_zone_mode_is_answered_topic_not_exist() -> None:
    response = two_zones().send(a_route_request("x", 479, __ZONE_MODE="true", __ZONE_NAME="z1")).response

    assert response.code == ResponseCode.TOPIC_NOT_EXIST


def test_answer_for_a_zone_is_not_cached_for_other_clients() -> None:
    server = two_zones()
    server.send(a_route_request(__ZONE_MODE="true", __ZONE_NAME="z1"))

    assert sorted(names_in(server.send(a_route_request()).response.body)) == ["b1", "b2"]


def test_answer_for_a_zone_contains_the_order_configuration() -> None:
    server = two_zones(Options(order_message_enable=True))
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"TopicTest": "b1:4"}

    body = server.send(a_route_request(__ZONE_MODE="true", __ZONE_NAME="z1")).response.body

    assert fastjson.loads(body or b"")["orderTopicConf"] == "b1:4"


# ---- 105: acting master ----


@pytest.mark.parametrize("support", [True, False])
def test_slave_acts_as_master_only_if_supported(support: bool) -> None:
    server = Exchange(Options(support_acting_master=support))
    for connection, addr, broker_id in ((1, MASTER, 0), (2, SLAVE, 1)):
        server.send(a_registration_request(addr, broker_id, enableActingMaster="true"), connection)
    server.close(1)

    route = fastjson.loads(server.send(a_route_request()).response.body or b"")

    assert route["brokerDatas"][0]["brokerAddrs"] == {"0" if support else "1": SLAVE}
    assert route["queueDatas"][0]["perm"] == 4


# ---- 106 ----


def test_cluster_info_lists_brokers_by_name_and_names_by_cluster() -> None:
    response = a_pair().send(CLUSTER_REQUEST).response

    assert response.code == ResponseCode.SUCCESS
    assert response.body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"c0","enableActingMaster":false}},"clusterAddrTable":{"c0":["broker-a"]}}'
    )


def test_cluster_info_of_an_empty_server_has_both_tables() -> None:
    assert Exchange().send(CLUSTER_REQUEST).response.body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_cluster_info_contains_the_zone_of_a_broker() -> None:
    body = two_zones().send(CLUSTER_REQUEST).response.body or b""

    assert b'"enableActingMaster":false,"zoneName":"z1"}' in body


# ---- other codes ----


@pytest.mark.parametrize("code", [0, -1, 7, 99_999, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, 1001])
def test_unknown_code_is_refused_in_javas_words(code: int) -> None:
    answer = Exchange().send(RemotingCommand(code, opaque=9))

    assert answer.response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (answer.response.remark, answer.response.opaque) == (f" request type {code} not supported", 9)
    assert answer.accepted == ()
