"""Tables in mqadmin's columns and widths."""

from namesrv_stream.client import ConnectionLost, Outcome
from namesrv_stream.client.commands import answer_text
from namesrv_stream.client.route import decode_cluster_info, decode_topic_route

CLUSTERS = decode_cluster_info(
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a",'
    b'"cluster":"c","enableActingMaster":true}},"clusterAddrTable":{"c":["broker-a"]}}'
)


def test_cluster_list_has_one_line_per_process() -> None:
    assert answer_text.cluster_list(CLUSTERS).splitlines() == [
        "#Cluster Name           #Broker Name            #BID  #Addr",
        "c                       broker-a                0     10.0.0.1:10911",
        "c                       broker-a                1     10.0.0.2:10911",
    ]


def test_a_route_ends_with_the_queues_of_all_brokers() -> None:
    route = decode_topic_route(
        "t",
        b'{"brokerDatas":[{"brokerAddrs":{"0":"h:1"},"brokerName":"a","cluster":"c"},{"brokerAddrs":{"0":"h:2"},'
        b'"brokerName":"b","cluster":"c"}],"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,'
        b'"writeQueueNums":4},{"brokerName":"b","perm":4,"readQueueNums":2,"writeQueueNums":1}]}',
    )
    lines = answer_text.topic_route(route).splitlines()
    assert lines[1].split() == ["c", "a", "{0=h:1}", "8", "4", "6"]
    assert lines[2].split() == ["c", "b", "{0=h:2}", "2", "1", "4"]
    assert lines[-1].split() == ["Total:", "2", "10", "5"]


def test_control_characters_of_a_peer_do_not_reach_the_terminal() -> None:
    assert answer_text.topic_list(["a\x1b[2J"]) == "a\\x1b[2J\n"


def test_long_values_are_not_truncated() -> None:
    assert answer_text.kv_table({"k": "v" * 1_000}).splitlines()[1].split() == ["k", "v" * 1_000]


def test_a_configuration_is_in_order_of_its_keys() -> None:
    assert answer_text.name_server_config({"h:1": {"b": "2", "a": "1"}}).splitlines() == [
        "============h:1============",
        "a                                                 =  1",
        "b                                                 =  2",
    ]


def test_failed_server_has_a_line_too() -> None:
    outcomes: list[Outcome[int]] = [Outcome("h:1", 3), Outcome("h:2", error=ConnectionLost("h:2", "gone"))]
    assert answer_text.write_perm("wipe", "b", outcomes).splitlines() == [
        "wipe write perm of broker[b] in name server[h:1] OK, 3",
        "wipe write perm of broker[b] in name server[h:2] Failed",
    ]
