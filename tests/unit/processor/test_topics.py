"""Lists of topics. Source: rocketmq 5.3.3, DefaultRequestProcessor and RouteInfoManager."""

from typing import Any

import pytest

from namesrv_stream.processor.name_server import Options
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from tests.support.name_server import MASTER, SLAVE, Exchange, a_body, a_registration_request, a_topic

UNIT, UNIT_SUB = 1, 2


def two_clusters() -> Exchange:
    """broker-a in c0 with plain topics, broker-b in c1 with one of each unit flag."""
    server = Exchange()
    server.send(a_registration_request())
    flagged = {name: a_topic(flag=flag) for name, flag in (("u", UNIT), ("s", UNIT_SUB), ("us", UNIT | UNIT_SUB))}
    body = a_body({**flagged, "TopicTest": a_topic()})
    server.send(a_registration_request(SLAVE, 0, body=body, brokerName="broker-b", clusterName="c1"), connection=2)
    return server


ALL = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
GATED = (
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
)


def asked(server: Exchange, code: RequestCode, **fields: str) -> Any:
    response = server.send(RemotingCommand(code, opaque=4, ext_fields=fields)).response
    assert response.code == ResponseCode.SUCCESS
    return fastjson.loads(response.body or b"")


def test_all_topics_are_listed_once() -> None:
    listed = asked(two_clusters(), RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)

    assert listed == {"topicList": ["TopicTest", "baseTopic", "s", "u", "us"]}


def test_topics_of_a_cluster_are_those_of_its_brokers() -> None:
    assert asked(two_clusters(), RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c0") == {
        "topicList": ["TopicTest", "baseTopic"]
    }


def test_an_unknown_cluster_has_no_topics() -> None:
    assert asked(two_clusters(), RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c9") == {"topicList": []}


def test_system_topics_are_cluster_and_broker_names_with_the_address_of_a_broker() -> None:
    listed = asked(two_clusters(), RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)

    assert listed["topicList"] == ["broker-a", "broker-b", "c0", "c1"]
    assert listed["brokerAddr"] in {MASTER, SLAVE}


def test_system_topics_without_brokers_have_no_address() -> None:
    assert asked(Exchange(), RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {"topicList": []}


@pytest.mark.parametrize(
    ("code", "topics"),
    [
        (RequestCode.GET_UNIT_TOPIC_LIST, ["u", "us"]),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, ["s", "us"]),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, ["s"]),
    ],
)
def test_unit_topics_are_selected_by_their_flags(code: RequestCode, topics: list[str]) -> None:
    assert asked(two_clusters(), code) == {"topicList": topics}


@pytest.mark.parametrize(
    ("options", "off"),
    [
        (Options(enable_all_topic_list=False), (ALL,)),
        (Options(enable_topic_list=False), GATED),
    ],
)
def test_only_lists_that_are_switched_off_are_refused_in_javas_words(
    options: Options, off: tuple[RequestCode, ...]
) -> None:
    server = two_clusters()
    server.server.options = options

    for code in (ALL, *GATED, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS):
        response = server.send(RemotingCommand(code, opaque=4)).response
        if code in off:
            assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "disable")
            assert (response.ext_fields, response.body) == (None, None)
        else:
            assert response.code == ResponseCode.SUCCESS
