"""What clients and tools ask. Source: rocketmq 5.3.3, ClientRequestProcessor, DefaultRequestProcessor."""

from dataclasses import replace
from typing import Any

import pytest

from namesrv_stream.processor.name_server import Options
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, SerializeType
from namesrv_stream.route.events import Origin, WritePermChanged
from namesrv_stream.server.net.cached_answers import CachedRouteAnswers
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
    """A server with one master in zone z1 and one in z2, of whom the second has a filter server."""
    server = Exchange(options)
    body = a_body().replace(b'"filterServerList":[]', b'"filterServerList":["f:1"]')
    server.send(a_registration_request("1.1.1.1:1", brokerName="b1", zone_name="z1"))
    server.send(a_registration_request("2.2.2.2:2", brokerName="b2", zone_name="z2", body=body), connection=2)
    return server


def names_in(body: bytes | None, part: str = "brokerDatas") -> list[str]:
    return [entry["brokerName"] for entry in fastjson.loads(body or b"")[part]]


# ---- 105 ----


def test_topic_that_nobody_has_is_not_there_in_javas_words() -> None:
    response = a_pair().send(a_route_request("NoSuchTopic")).response

    assert (response.code, response.body, response.ext_fields) == (ResponseCode.TOPIC_NOT_EXIST, None, None)
    assert response.remark == (
        "No topic route info in name server for the topic: NoSuchTopic\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


def test_route_query_without_a_topic_is_answered() -> None:
    response = a_pair().send(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC)).response

    assert response.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("version", "standard_only", "expected"),
    [(400, "", LEGACY), (401, "", STRICT), (479, "", STRICT), (0, "", LEGACY), (317, "true", STRICT),
     (317, "TRUE", STRICT), (317, "false", LEGACY), (479, "false", STRICT)],
)  # fmt: skip
def test_form_of_the_route_follows_the_clients_release_and_wish(
    version: int, standard_only: str, expected: bytes
) -> None:
    fields = {"acceptStandardJsonOnly": standard_only} if standard_only else {}

    response = a_pair().send(a_route_request(version=version, **fields)).response

    assert (response.code, response.remark, response.body) == (ResponseCode.SUCCESS, None, expected)


def test_both_forms_follow_the_table() -> None:
    server = a_pair()
    requests = [a_route_request(version=v) for v in (317, 479)]
    before = [server.send(r).response.body for r in requests]

    server.send(a_registration_request(body=a_body({"TopicTest": a_topic(perm=4), "b": a_topic()}, counter=2)))

    after = [server.send(r).response.body for r in requests]
    assert after == [(b or b"").replace(b'"perm":6', b'"perm":4') for b in before]


def test_last_brokers_leaving_takes_the_route_away_and_its_return_brings_it_back() -> None:
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


def test_right_after_the_start_no_route_is_told_where_that_is_wanted() -> None:
    server = a_waiting_server()

    for server.now_ms in (10_000, 54_999):
        for topic in ("TopicTest", "NoSuchTopic"):
            response = server.send(a_route_request(topic)).response
            assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
            assert (response.ext_fields, response.body) == (None, None)


def test_after_the_wait_routes_are_told_again_and_again() -> None:
    server = a_waiting_server()
    server.now_ms = 55_000

    # 5.1.0 to 5.3.1 were "not ready" for ever after the first (apache/rocketmq#9182).
    assert [server.send(a_route_request()).response.body for _ in range(3)] == [STRICT] * 3


@pytest.mark.parametrize("options", [{"wait_seconds_for_service": 0}, {"need_wait_for_service": False}])
def test_without_a_wait_routes_are_told_at_once(options: dict[str, Any]) -> None:
    server = a_waiting_server()
    server.server.options = replace(server.server.options, **options)

    assert server.send(a_route_request()).response.body == STRICT


def test_brokers_register_while_routes_wait() -> None:
    server = a_waiting_server()

    assert server.send(a_registration_request()).response.code == ResponseCode.SUCCESS


# ---- 105: order topics ----


@pytest.mark.parametrize("enable", [True, False])
def test_order_conf_is_told_only_where_enabled(enable: bool) -> None:
    server = a_pair(Options(order_message_enable=enable))
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"TopicTest": "broker-a:4", "Other": "x"}

    body = server.send(a_route_request()).response.body or b""

    assert (b'"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":' in body) == enable


def test_topic_without_order_conf_has_none() -> None:
    server = a_pair(Options(order_message_enable=True))
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"Other": "x"}

    assert server.send(a_route_request()).response.body == STRICT


def test_an_order_conf_that_is_put_or_deleted_is_told_or_not_from_then_on() -> None:
    server = a_pair(Options(order_message_enable=True))
    entry = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicTest"}
    bodies = [server.send(a_route_request()).response.body]
    for code in (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
        server.send(RemotingCommand(code, ext_fields={**entry, "value": "broker-a:4"}))
        bodies.append(server.send(a_route_request()).response.body)

    with_order = STRICT.replace(b'"queueDatas"', b'"orderTopicConf":"broker-a:4","queueDatas"')
    assert bodies == [STRICT, with_order, STRICT]


def test_switching_order_confs_on_leaves_no_answer_without_one() -> None:
    server = a_pair()
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"TopicTest": "x"}
    server.send(a_route_request())
    server.server.options = Options(order_message_enable=True)

    assert b"orderTopicConf" in (server.send(a_route_request()).response.body or b"")


def test_order_conf_makes_no_route() -> None:
    server = Exchange(Options(order_message_enable=True))
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"TopicTest": "x"}

    assert server.send(a_route_request()).response.code == ResponseCode.TOPIC_NOT_EXIST


# ---- 105: zones ----


@pytest.mark.parametrize("zone", ["z1", "Z1"])
def test_zone_mode_leaves_only_brokers_of_the_zone_in_the_legacy_form(zone: str) -> None:
    response = two_zones().send(a_route_request(__ZONE_MODE="true", __ZONE_NAME=zone)).response

    assert names_in(response.body) == names_in(response.body, "queueDatas") == ["b1"]
    assert fastjson.loads(response.body or b"")["filterServerTable"] == {}
    assert b'"brokerAddrs":{0:' in (response.body or b"")  # though a 5.3.3 client asked


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
def test_without_mode_and_name_no_zone_is_filtered(fields: dict[str, str]) -> None:
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


def test_unknown_topic_in_zone_mode_is_not_there() -> None:
    response = two_zones().send(a_route_request("x", 479, __ZONE_MODE="true", __ZONE_NAME="z1")).response

    assert response.code == ResponseCode.TOPIC_NOT_EXIST


def test_zone_answers_are_not_remembered_for_others() -> None:
    server = two_zones()
    server.send(a_route_request(__ZONE_MODE="true", __ZONE_NAME="z1"))

    assert sorted(names_in(server.send(a_route_request()).response.body)) == ["b1", "b2"]


def test_order_conf_is_in_zone_answers_too() -> None:
    server = two_zones(Options(order_message_enable=True))
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"TopicTest": "b1:4"}

    body = server.send(a_route_request(__ZONE_MODE="true", __ZONE_NAME="z1")).response.body

    assert fastjson.loads(body or b"")["orderTopicConf"] == "b1:4"


# ---- 105: acting master ----


@pytest.mark.parametrize("support", [True, False])
def test_slave_acts_as_master_only_where_supported(support: bool) -> None:
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


def test_zone_is_told_where_there_is_one() -> None:
    body = two_zones().send(CLUSTER_REQUEST).response.body or b""

    assert b'"enableActingMaster":false,"zoneName":"z1"}' in body


def test_cluster_info_follows_brokers_and_is_kept_otherwise() -> None:
    server = a_pair()
    server.server.answers = CachedRouteAnswers(server.view)
    first = server.send(CLUSTER_REQUEST).response.body
    server.accept(WritePermChanged(ORIGIN, "broker-a", writable=False))

    assert server.send(CLUSTER_REQUEST).response.body is first
    server.close(2)
    assert SLAVE.encode() not in (server.send(CLUSTER_REQUEST).response.body or b"")


# ---- other codes ----


@pytest.mark.parametrize("code", [0, -1, 7, 99_999, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, 1001])
def test_unknown_code_is_not_supported_in_javas_words(code: int) -> None:
    answer = Exchange().send(RemotingCommand(code, opaque=9))

    assert answer.response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (answer.response.remark, answer.response.opaque) == (f" request type {code} not supported", 9)
    assert answer.accepted == ()
