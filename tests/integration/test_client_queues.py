"""RocketMQ's client and the client of namesrv-stream derive the same queues from random routes."""

import os
import random
import subprocess
from typing import Any

import orjson
import pytest

from namesrv_stream.client import MessageQueue, TopicRouteData, UnexpectedAnswer, readable_queues, writable_queues
from namesrv_stream.client.route import decode_topic_route
from tests.support.jvm import JAVA_SOURCES, java_tool, rocketmq_jars

pytestmark = pytest.mark.integration

NAMES = ("a", "b", "c", "Z", "long-name")
ORDER_CONFS = ("a:2;b:1", "", "c:1;", "a:1;a:2", "b:0", "a", "a:x")


def a_route(dice: random.Random) -> dict[str, Any]:
    route: dict[str, Any] = {
        "brokerDatas": [
            {"brokerName": name, "cluster": "c", "brokerAddrs": {i: f"{name}:{i}" for i in some(dice, "012")}}
            for name in some(dice, NAMES)
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": name,
                "readQueueNums": dice.randint(0, 3),
                "writeQueueNums": dice.randint(0, 3),
                "perm": dice.choice([0, 2, 4, 6, 7]),
                "topicSysFlag": 0,
            }
            for name in some(dice, NAMES)
        ],
    }
    if dice.random() < 0.3:
        route["orderTopicConf"] = dice.choice(ORDER_CONFS)
    if dice.random() < 0.4:
        # Epochs differ, because Java's hash order decides between equal ones. There is one scope, because Java's order
        # of several scopes is random.
        scope = dice.choice(["__global__", "mine", None])
        route["topicQueueMappingByBroker"] = {
            name: {
                "bname": name,
                "scope": scope,
                "epoch": epoch,
                "totalQueues": dice.randint(0, 4),
                "currIdMap": dict.fromkeys(some(dice, "01234"), 0),
                "topic": "t",
                "dirty": False,
            }
            for epoch, name in enumerate(some(dice, NAMES))
        }
    return route


def some(dice: random.Random, things: str | tuple[str, ...]) -> list[str]:
    return dice.sample(list(things), dice.randint(0, len(things)))


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]


def writable(route: TopicRouteData) -> list[str]:
    try:
        return names(writable_queues(route))
    except UnexpectedAnswer:
        return ["error"]


def test_queues_equal_those_of_rocketmqs_client() -> None:
    dice = random.Random(4)
    routes = [orjson.dumps(a_route(dice)) for _ in range(1_000)]
    printed = subprocess.run(
        [java_tool("java"), "-Xmx128m", f"-Drmq.logback.configurationFile={JAVA_SOURCES / 'logback.xml'}",
         "-Dtests.log.level=OFF", str(JAVA_SOURCES / "QueuesOfRoute.java")],
        input=b"\n".join(routes), env=os.environ | {"CLASSPATH": os.pathsep.join(map(str, rocketmq_jars()))},
        stdout=subprocess.PIPE, check=True, timeout=120,
    ).stdout.decode()  # fmt: skip
    javas = [line.split("\t") for line in printed.splitlines()[-len(routes) :]]
    for body, (to_write, to_read) in zip(routes, javas, strict=True):
        route = decode_topic_route("t", body)
        assert writable(route) == to_write.split(), body
        assert sorted(names(readable_queues(route))) == sorted(to_read.split()), body
    assert sum(to_write not in ("", "error") for to_write, _ in javas) > 300
