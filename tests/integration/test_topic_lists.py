"""The same brokers at the Java NameServer 5.3.3 and at ours: the same lists of topics."""

import json
from pathlib import Path

import pytest

from namesrv_stream.remoting.codes import RequestCode
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.settings import Settings
from tests.integration.test_server import Serve, beside
from tests.support.name_server import MASTER, SLAVE, a_body, a_registration_request, a_topic
from tests.support.remoting_client import Answer, RemotingClient
from tests.support.rocketmq import JavaNameServer

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

_REQUESTS: tuple[tuple[RequestCode, dict[str, str]], ...] = (
    (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
    (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c0"}),
    (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c1"}),
    (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "unknown"}),
    (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}),
    (RequestCode.GET_UNIT_TOPIC_LIST, {}),
    (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, {}),
    (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}),
)


def _answers(addr: str) -> list[tuple[int, str | None, object]]:
    with RemotingClient(addr) as client:
        for request in _registrations():
            assert client.ask(request.code, request.ext_fields, request.body or b"").code == 0
        return [_told(client.ask(code, fields)) for code, fields in _REQUESTS]


def _registrations() -> list[RemotingCommand]:
    flagged = {f"flag-{flag}": a_topic(flag=flag) for flag in range(4)}
    return [
        a_registration_request(),
        a_registration_request(SLAVE, 0, body=a_body(flagged), brokerName="broker-b", clusterName="c1"),
    ]


def _told(answer: Answer) -> tuple[int, str | None, object]:
    body = json.loads(answer.body)
    # Which broker is named is anyone's choice; Java's lists are in hash order.
    asked_broker = body.pop("brokerAddr", None)
    assert asked_broker in {None, MASTER, SLAVE}
    return answer.code, answer.remark, (asked_broker is None, sorted(body.pop("topicList")), body)


def test_topic_lists_are_javas(kafka_settings: Settings, tmp_path: Path) -> None:
    server = Serve(beside(kafka_settings, tmp_path, "listed-events"), tmp_path)
    server.start()
    try:
        with JavaNameServer(tmp_path / "java") as java:
            assert _answers(server.addr) == _answers(java.addr)
    finally:
        server.process.close()
