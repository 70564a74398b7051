"""The queues of a route, derived as by MQClientInstance."""

from typing import Any

import orjson
import pytest

from namesrv_stream.client import MessageQueue, TopicRouteData, UnexpectedAnswer, readable_queues, writable_queues
from namesrv_stream.client.queues import next_queue
from namesrv_stream.client.route import decode_topic_route

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def a_route(*queues: tuple[str, int, int, int], brokers: dict[str, dict[int, str]], **more: Any) -> TopicRouteData:
    """Return a route; queues are (broker name, read queues, write queues, perm)."""
    body = {
        "brokerDatas": [
            {"brokerName": name, "cluster": "c", "brokerAddrs": {str(k): v for k, v in addrs.items()}}
            for name, addrs in brokers.items()
        ],
        "queueDatas": [
            {"brokerName": name, "readQueueNums": reads, "writeQueueNums": writes, "perm": perm}
            for name, reads, writes, perm in queues
        ],
        **more,
    }
    return decode_topic_route("t", orjson.dumps(body))


def a_mapping(name: str, epoch: int, total: int, ids: list[int], scope: str | None = "__global__") -> dict[str, Any]:
    current = {str(queue_id): 0 for queue_id in ids}
    return {"bname": name, "scope": scope, "epoch": epoch, "totalQueues": total, "currIdMap": current}


def as_tuples(queues: tuple[MessageQueue, ...]) -> list[tuple[str, int, str | None]]:
    return [(queue.broker_name, queue.queue_id, queue.broker_addr) for queue in queues]


def test_writable_queues_are_those_of_masters_with_write_permission() -> None:
    route = a_route(
        ("a", 2, 1, 6), ("readonly", 2, 2, 4), ("slave-only", 2, 2, 6), ("unknown", 2, 2, 6), ("b", 1, 2, 2),
        brokers={"b": {0: B}, "a": {0: A, 1: "x:1"}, "readonly": {0: "y:1"}, "slave-only": {1: "z:1"}},
    )  # fmt: skip
    assert as_tuples(writable_queues(route)) == [("a", 0, A), ("b", 0, B), ("b", 1, B)]


def test_readable_queues_do_not_need_a_master() -> None:
    route = a_route(("a", 2, 1, 6), ("b", 1, 1, 4), ("c", 1, 1, 2), brokers={"a": {0: A}, "b": {2: "s:2", 1: "s:1"}})
    assert as_tuples(readable_queues(route)) == [("a", 0, A), ("a", 1, A), ("b", 0, "s:1")]


def test_order_configuration_has_priority_and_keeps_queues_of_absent_brokers() -> None:
    route = a_route(("a", 8, 8, 6), brokers={"a": {0: A}}, orderTopicConf="b:1;a:2")
    assert as_tuples(writable_queues(route)) == [("b", 0, None), ("a", 0, A), ("a", 1, A)]


def test_empty_order_configuration_is_ignored() -> None:
    route = a_route(("a", 1, 1, 6), brokers={"a": {0: A}}, orderTopicConf="")
    assert as_tuples(writable_queues(route)) == [("a", 0, A)]


@pytest.mark.parametrize("conf", ["a", "a:", "a:x", ":1", "a:-1", "a:99999999", "a:1;b"])
def test_invalid_order_configuration_is_an_unexpected_answer(conf: str) -> None:
    with pytest.raises(UnexpectedAnswer):
        writable_queues(a_route(("a", 1, 1, 6), brokers={"a": {0: A}}, orderTopicConf=conf))


def test_an_absurd_number_of_queues_is_an_unexpected_answer() -> None:
    with pytest.raises(UnexpectedAnswer):
        writable_queues(a_route(("a", 1, 2_000_000_000, 6), brokers={"a": {0: A}}))


def test_a_static_topic_has_its_logical_queues_where_the_newest_epoch_puts_them() -> None:
    mappings = {"a": a_mapping("a", 1, 4, [0, 1, 2]), "b": a_mapping("b", 2, 4, [1])}
    route = a_route(
        ("a", 3, 3, 6), ("b", 1, 1, 6), brokers={"a": {0: A}, "b": {0: B}}, topicQueueMappingByBroker=mappings
    )
    name = "__syslo__global__"
    queues = [(name, 0, A), (name, 1, B), (name, 2, A), (name, 3, None)]
    assert as_tuples(writable_queues(route)) == queues
    assert as_tuples(readable_queues(route)) == queues


def test_mapping_without_a_scope_is_ignored() -> None:
    mappings = {"a": a_mapping("a", 1, 4, [0], scope=None)}
    route = a_route(("a", 1, 1, 6), brokers={"a": {0: A}}, topicQueueMappingByBroker=mappings)
    assert writable_queues(route) == ()


def test_rotation_skips_queues_without_an_address() -> None:
    queues = [MessageQueue("t", "a", 0, A), MessageQueue("t", "away", 0, None), MessageQueue("t", "b", 0, B)]
    chosen, turn = [], 0
    for _ in range(4):
        queue, turn = next_queue(queues, turn, ())
        assert queue is not None
        chosen.append(queue.broker_name)
    assert chosen == ["a", "b", "a", "b"]


def test_failed_brokers_are_avoided_while_there_are_others() -> None:
    queues = [MessageQueue("t", "a", 0, A), MessageQueue("t", "a", 1, A), MessageQueue("t", "b", 0, B)]
    assert {next_queue(queues, turn, {"a"})[0] for turn in range(6)} == {queues[2]}
    assert next_queue(queues, 1, {"a", "b"})[0] == queues[1]


def test_without_an_address_no_queue_is_chosen() -> None:
    assert next_queue([MessageQueue("t", "a", 0, None)], 5, ()) == (None, 5)
    assert next_queue([], 5, ()) == (None, 5)
