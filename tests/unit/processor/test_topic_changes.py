"""216 and 217. Answers and stored topics equal those of the Java NameServer.

Source: rocketmq 5.3.3, RouteInfoManager.deleteTopic, registerTopic.
"""

from typing import Any

import orjson
import pytest

from namesrv_stream.processor.name_server import Answer
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.route.events import Origin, TopicDeleted, TopicRegistered
from namesrv_stream.route.model import QueueData
from tests.support.name_server import SLAVE, Exchange, a_registration_request, a_route_request

ORIGIN = Origin("s1", 1, 1)


def two_clusters() -> Exchange:
    """broker-a in c0 and broker-b in c1, both with TopicTest."""
    server = Exchange()
    server.send(a_registration_request())
    server.send(a_registration_request(SLAVE, 0, brokerName="broker-b", clusterName="c1"), connection=2)
    return server


def queues(server: Exchange, topic: str) -> dict[str, QueueData] | None:
    """Return the queues of a topic at each broker; None without a route."""
    response = server.send(a_route_request(topic)).response
    if response.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    route = fastjson.loads(response.body or b"")
    names = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
    return {q["brokerName"]: QueueData(*(q[n] for n in names)) for q in route["queueDatas"]}


# ---- 216 ----


def delete(server: Exchange, **fields: str) -> Answer:
    return server.send(RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, opaque=5, ext_fields=fields))


@pytest.mark.parametrize("fields", [{}, {"clusterName": ""}])
def test_a_topic_is_deleted_in_all_clusters(fields: dict[str, str]) -> None:
    server = two_clusters()

    answer = delete(server, topic="TopicTest", **fields)

    event = TopicDeleted(ORIGIN, "TopicTest", None, "127.0.0.1")
    assert (answer.response.code, answer.response.remark) == (ResponseCode.SUCCESS, None)
    assert (answer.accepted, answer.is_logged_first) == (((event, event),), True)
    assert queues(server, "TopicTest") is None


def test_a_topic_is_deleted_in_one_cluster_only() -> None:
    server = two_clusters()

    delete(server, topic="TopicTest", clusterName="c0")

    assert queues(server, "TopicTest") == {"broker-b": QueueData(8, 8, 6, 0)}


def test_nothing_is_deleted_in_an_unknown_cluster() -> None:
    server = two_clusters()

    assert delete(server, topic="TopicTest", clusterName="c9").response.code == ResponseCode.SUCCESS
    assert len(queues(server, "TopicTest") or {}) == 2


def test_a_deletion_without_a_topic_deletes_and_logs_nothing() -> None:
    answer = delete(two_clusters(), clusterName="c0")

    assert (answer.response.code, answer.accepted) == (ResponseCode.SUCCESS, ())


# ---- 217 ----


def a_queue_data(broker_name: str = "broker-a", **changes: Any) -> dict[str, Any]:
    numbers = {"perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 3}
    return {"brokerName": broker_name, **numbers, **changes}


def register(server: Exchange, topic: str, *entries: Any, body: bytes | None = None) -> Answer:
    body = orjson.dumps({"queueDatas": entries}) if body is None else body
    return server.send(
        RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, opaque=5, ext_fields={"topic": topic}, body=body)
    )


def test_a_topic_is_registered_for_each_broker_of_the_body() -> None:
    server = two_clusters()

    answer = register(server, "new", a_queue_data(), a_queue_data("broker-b", perm=4))

    events = [
        TopicRegistered(ORIGIN, "broker-a", "new", QueueData(4, 3, 6, 0), "127.0.0.1"),
        TopicRegistered(ORIGIN, "broker-b", "new", QueueData(4, 3, 4, 0), "127.0.0.1"),
    ]
    assert (answer.response.code, answer.response.remark) == (ResponseCode.SUCCESS, None)
    assert (answer.accepted, answer.is_logged_first) == (tuple((e, e) for e in events), True)
    assert queues(server, "new") == {"broker-a": QueueData(4, 3, 6, 0), "broker-b": QueueData(4, 3, 4, 0)}


def test_the_last_entry_of_a_broker_is_stored() -> None:
    server = two_clusters()

    register(server, "new", a_queue_data(perm=4), a_queue_data(perm=2))

    assert queues(server, "new") == {"broker-a": QueueData(4, 3, 2, 0)}


def test_a_new_topic_with_an_unknown_broker_is_not_stored_at_all() -> None:
    server = two_clusters()

    answer = register(server, "new", a_queue_data(), a_queue_data("broker-z"))

    assert (answer.response.code, answer.accepted, answer.is_logged_first) == (ResponseCode.SUCCESS, (), False)


def test_entries_of_a_known_topic_are_stored_up_to_an_unknown_broker() -> None:
    server = two_clusters()

    register(server, "TopicTest", a_queue_data(perm=4), a_queue_data("broker-z"), a_queue_data("broker-b", perm=4))

    assert queues(server, "TopicTest") == {"broker-a": QueueData(4, 3, 4, 0), "broker-b": QueueData(8, 8, 6, 0)}


def test_an_entry_without_a_broker_name_is_not_stored() -> None:
    assert register(two_clusters(), "new", {"perm": 6}).accepted == ()


def test_absent_numbers_are_zero_and_numbers_may_be_text() -> None:
    server = two_clusters()

    register(server, "new", {"brokerName": "broker-a", "readQueueNums": "3", "topicSynFlag": 1, "perm": None})

    assert queues(server, "new") == {"broker-a": QueueData(3, 0, 0, 0)}


def test_an_entry_without_a_list_around_it_is_read_as_fastjson_does() -> None:
    server = two_clusters()

    register(server, "new", body=b'{"queueDatas":{"brokerName":"broker-a","perm":6}}')

    assert queues(server, "new") == {"broker-a": QueueData(0, 0, 6, 0)}


def test_a_topic_name_of_more_than_1024_characters_is_refused() -> None:
    server = two_clusters()

    assert register(server, "t" * 1_024, a_queue_data()).accepted
    refused = register(server, "t" * 1_025, a_queue_data())

    assert (refused.response.code, refused.accepted) == (ResponseCode.SYSTEM_ERROR, ())
    assert refused.response.remark == "a topic of 1025 characters exceeds 1024"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"queueDatas":{}}', b'{"queueDatas":null}', b'{"queueDatas":[]}', b'{"brokerDatas":[]}']
)
def test_a_body_without_entries_stores_nothing(body: bytes) -> None:
    answer = register(two_clusters(), "new", body=body)

    assert (answer.response.code, answer.accepted) == (ResponseCode.SUCCESS, ())


@pytest.mark.parametrize(
    "body",
    [
        b"{{{",
        b"[1]",
        b"null",
        b'{"queueDatas":"x"}',
        b'{"queueDatas":[null]}',
        b'{"queueDatas":[{"brokerName":"broker-a","perm":"x"}]}',
        b'{"queueDatas":[{"brokerName":"broker-a","perm":2147483648}]}',
        b'{"queueDatas":[{"brokerName":{}}]}',
        b"[" * 2_000,
        b'{"queueDatas":[' + b'{"brokerName":"broker-a"},' * 10_001 + b"]}",
    ],
)
def test_an_invalid_body_is_refused(body: bytes) -> None:
    answer = register(two_clusters(), "new", body=body)

    assert (answer.response.code, answer.accepted) == (ResponseCode.SYSTEM_ERROR, ())
    assert (answer.response.remark or "").startswith("body of request 217 cannot be decoded: ")
