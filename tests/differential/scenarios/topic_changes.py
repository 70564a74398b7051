"""216 and 217. Source: rocketmq 5.3.3, RouteInfoManager.deleteTopic, registerTopic."""

from typing import Final

from tests.differential.broker_requests import (
    Broker,
    as_json,
    data_version,
    query_data_version,
    register,
    register_topic,
    topic,
    unregister,
)
from tests.differential.client_requests import delete_topic
from tests.differential.request import Request
from tests.differential.scenario import Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
B: Final = Broker("~b", "10.0.0.9:10911", cluster="~d")
_BOTH: Final = (ask(register(A), over="a"), ask(register(B), over="b"))

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("delete a topic", *_BOTH, ask(delete_topic("~T"))),
    scenario("delete a topic in one cluster", *_BOTH, ask(delete_topic("~T", "~c"))),
    scenario("delete a topic in its only cluster", ask(register(A)), ask(delete_topic("~T", "~c"))),
    scenario("delete a topic in an unknown cluster", *_BOTH, ask(delete_topic("~T", "~none"))),
    scenario("delete a topic with an empty cluster", *_BOTH, ask(delete_topic("~T", ""))),
    scenario("delete an unknown topic", *_BOTH, ask(delete_topic("~V"), delete_topic("~V", "~c"))),
    scenario("delete without a topic", *_BOTH, ask(Request(216), Request(216, {})), is_observed=False),
    scenario("delete all topics", ask(register(A)), ask(delete_topic("~T")), ask(delete_topic("~U"))),
    scenario(
        "a deleted topic returns with the next registration",
        ask(register(A)),
        ask(delete_topic("~T")),
        ask(register(A)),
        ask(register(A)),
    ),
    scenario(
        "a deleted topic returns with a new version",
        ask(register(A)),
        ask(delete_topic("~T")),
        ask(register(A, version=data_version(2))),
    ),
    scenario(
        "a topic deleted in one cluster returns", *_BOTH, ask(delete_topic("~T", "~c")), ask(register(A), over="a")
    ),
    scenario(
        "delete a topic in one cluster of a broker name that is in two",
        ask(register(A), over="a"),
        ask(register(A.slave().but(cluster="~d")), over="s"),
        ask(delete_topic("~T", "~d")),
    ),
    scenario("delete oneway", ask(register(A)), ask(delete_topic("~T").oneway())),
    scenario("register a topic", *_BOTH, ask(register_topic("~V", {"~a": topic(3), "~b": topic(5, perm=4, flag=1)}))),
    scenario("register a topic of one broker", *_BOTH, ask(register_topic("~V", {"~b": topic(5)}))),
    scenario("register a topic that is known", *_BOTH, ask(register_topic("~T", {"~a": topic(1)}))),
    scenario("register a topic of an unknown broker", *_BOTH, ask(register_topic("~V", {"~none": topic(3)}))),
    scenario(
        "register a new topic, one of its brokers unknown",
        *_BOTH,
        ask(register_topic("~V", {"~a": topic(3), "~none": topic(3)})),
    ),
    scenario(
        "register a known topic, the first of its brokers unknown",
        *_BOTH,
        ask(register_topic("~T", {"~none": topic(3), "~a": topic(3)})),
    ),
    scenario(
        "register a known topic, the last of its brokers unknown",
        *_BOTH,
        ask(register_topic("~T", {"~a": topic(3), "~none": topic(3)})),
    ),
    scenario("register a topic before any broker", ask(register_topic("~V", {"~a": topic(3)}))),
    scenario(
        "a registered topic does not change the version",
        *_BOTH,
        ask(register_topic("~V", {"~a": topic(3)})),
        ask(query_data_version(A)),
    ),
    scenario(
        "the next registration keeps a registered topic",
        *_BOTH,
        ask(register_topic("~V", {"~a": topic(3)})),
        ask(register(A), over="a"),
    ),
    scenario(
        "a registration with the same version keeps a registered change of a topic",
        *_BOTH,
        ask(register_topic("~T", {"~a": topic(3)})),
        ask(register(A), over="a"),
        ask(register(A, version=data_version(2)), over="a"),
    ),
    scenario(
        "a registered topic is removed with its broker",
        *_BOTH,
        ask(register_topic("~V", {"~a": topic(3)})),
        ask(unregister(A), over="a"),
    ),
    scenario(
        "register without a topic",
        *_BOTH,
        ask(Request(217, {}, as_json({"queueDatas": []})), differs="missing-field"),
        is_observed=False,
    ),
    scenario(
        "register a topic without queues", *_BOTH, ask(Request(217, {"topic": "~V"}, as_json({"queueDatas": []})))
    ),
    scenario(
        "register a known topic without queues", *_BOTH, ask(Request(217, {"topic": "~T"}, as_json({"queueDatas": []})))
    ),
    scenario("register a topic without a body", *_BOTH, ask(Request(217, {"topic": "~V"}))),
    scenario("register a topic with an empty body", *_BOTH, ask(Request(217, {"topic": "~V"}, b"{}"))),
    scenario(
        "register a topic with a body that is no JSON",
        *_BOTH,
        ask(Request(217, {"topic": "~V"}, b"x"), differs="exception-remark"),
    ),
    scenario(
        "register a topic twice for one broker",
        *_BOTH,
        ask(
            Request(
                217,
                {"topic": "~V"},
                b'{"queueDatas":[{"brokerName":"~a","perm":6,"readQueueNums":1,"writeQueueNums":1},{"brokerName":"~a","perm":4,"readQueueNums":2,"writeQueueNums":2}]}',
            )
        ),
    ),
    scenario("register a topic oneway", *_BOTH, ask(register_topic("~V", {"~a": topic(3)}).oneway())),
)
