"""Decoding of answers: strict JSON, fastjson's dialect, and invalid answers."""

import pytest

from namesrv_stream.client import BrokerData, QueueData, UnexpectedAnswer
from namesrv_stream.client.route import decode_cluster_info, decode_topic_list, decode_topic_route

STRICT = (
    b'{"brokerDatas":[{"brokerAddrs":{"1":"h:2","0":"h:1"},"brokerName":"b","cluster":"c","enableActingMaster":true,'
    b'"zoneName":"z"},{"brokerAddrs":{"0":"h:3"},"brokerName":"a","cluster":"c","enableActingMaster":false}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":4,"readQueueNums":8,"topicSysFlag":1,'
    b'"writeQueueNums":4},{"brokerName":"a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}'
)


def test_a_route_is_in_order_of_broker_names() -> None:
    route = decode_topic_route("t", STRICT)
    assert route.topic == "t"
    assert route.broker_datas == (
        BrokerData("c", "a", {0: "h:3"}),
        BrokerData("c", "b", {0: "h:1", 1: "h:2"}, zone_name="z", enable_acting_master=True),
    )
    assert route.queue_datas == (QueueData("a", 2, 2, 6), QueueData("b", 8, 4, 4, 1))
    assert route.broker_names == {"a", "b"}
    assert route.order_topic_conf is None


def test_broker_ids_without_quotes_are_read_too() -> None:
    legacy = b'{"brokerDatas":[{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"b","cluster":"c"}],"queueDatas":[]}'
    assert decode_topic_route("t", legacy).broker_datas[0].broker_addrs == {0: "h:1", 1: "h:2"}


def test_spelling_of_old_servers_is_accepted() -> None:
    old = b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1,"topicSynFlag":2,"writeQueueNums":1}]}'
    assert decode_topic_route("t", old).queue_datas[0].topic_sys_flag == 2


def test_permissions_determine_whether_queues_are_readable_and_writable() -> None:
    allowed = {
        perm: (QueueData("b", 1, 1, perm).is_readable, QueueData("b", 1, 1, perm).is_writeable) for perm in (4, 2, 6)
    }
    assert allowed == {4: (True, False), 2: (False, True), 6: (True, True)}


def test_a_group_without_a_master_has_no_master_address() -> None:
    assert BrokerData("c", "b", {1: "h:2"}).master_addr is None


def test_clusters_list_their_brokers_in_order() -> None:
    info = decode_cluster_info(
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{"0":"h:1"},"brokerName":"a","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["b","a",null]}}'
    )
    assert info.clusters == {"c": ("a", "b")}
    assert info.brokers["a"].master_addr == "h:1"


def test_one_cluster_can_be_selected() -> None:
    info = decode_cluster_info(
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{"0":"h:1"},"brokerName":"a","cluster":"c"},'
        b'"x":{"brokerAddrs":{"0":"h:2"},"brokerName":"x","cluster":"d"}},"clusterAddrTable":{"c":["a"],"d":["x"]}}'
    )
    assert set(info.of_cluster("d").brokers) == {"x"}
    assert set(info.of_cluster("d").raw["brokerAddrTable"]) == {"x"}
    assert info.of_cluster("e").brokers == {}


def test_topics_are_sorted() -> None:
    assert decode_topic_list(206, b'{"topicList":["b","a"]}') == ("a", "b")


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"[]",
        b"nonsense",
        b'{"brokerDatas":[{}]}',
        b'{"brokerDatas":[{"brokerName":"a","cluster":[]}]}',
        b'{"brokerDatas":[{"brokerName":"a","zoneName":7}]}',
        b'{"queueDatas":[7]}',
        b'{"orderTopicConf":{}}',
        b'{"topicQueueMappingByBroker":{"a":{"scope":[1]}}}',
    ],
)
def test_invalid_route_is_an_unexpected_answer(body: bytes | None) -> None:
    with pytest.raises(UnexpectedAnswer) as caught:
        decode_topic_route("t", body)
    assert caught.value.request_code == 105
