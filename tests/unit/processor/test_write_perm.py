"""205 and 327. Answers equal those of the Java NameServer. Source: RouteInfoManager.operateWritePermOfBrokerByLock."""

import pytest

from namesrv_stream.processor.name_server import Answer
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.route.events import Origin, WritePermChanged
from tests.support.name_server import Exchange, a_body, a_registration_request, a_route_request, a_topic

WIPE, ADD = RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER


def a_server() -> Exchange:
    server = Exchange()
    server.send(a_registration_request(body=a_body({"all": a_topic(perm=7), "readable": a_topic(perm=4)})))
    return server


def ask(server: Exchange, code: RequestCode, broker_name: str = "broker-a") -> Answer:
    return server.send(RemotingCommand(code, opaque=5, ext_fields={"brokerName": broker_name}))


def perm(server: Exchange, topic: str) -> int:
    body = server.send(a_route_request(topic)).response.body
    return int(fastjson.loads(body or b"")["queueDatas"][0]["perm"])


@pytest.mark.parametrize(("code", "field", "writable"), [(WIPE, "wipeTopicCount", False), (ADD, "addTopicCount", True)])
def test_all_topics_of_the_broker_are_counted_and_the_change_is_logged_before_the_answer(
    code: RequestCode, field: str, writable: bool
) -> None:
    answer = ask(a_server(), code)

    event = WritePermChanged(Origin("s1", 1, 1), "broker-a", writable, "127.0.0.1")
    assert (answer.response.code, answer.response.remark) == (ResponseCode.SUCCESS, None)
    assert answer.response.ext_fields == {field: "2"}
    assert (answer.accepted, answer.is_logged_first) == (((event, event),), True)


def test_wiping_removes_only_the_write_bit() -> None:
    server = a_server()
    ask(server, WIPE)

    assert (perm(server, "all"), perm(server, "readable")) == (5, 4)


def test_topics_without_write_permission_are_counted_when_wiped_again() -> None:
    server = a_server()
    ask(server, WIPE)

    assert ask(server, WIPE).response.ext_fields == {"wipeTopicCount": "2"}


def test_adding_grants_only_reading_and_writing() -> None:
    server = a_server()
    ask(server, ADD)

    assert (perm(server, "all"), perm(server, "readable")) == (6, 6)


@pytest.mark.parametrize(("code", "field"), [(WIPE, "wipeTopicCount"), (ADD, "addTopicCount")])
def test_an_unknown_broker_has_no_topics_and_nothing_is_logged(code: RequestCode, field: str) -> None:
    answer = ask(a_server(), code, "broker-z")

    assert (answer.response.code, answer.response.ext_fields) == (ResponseCode.SUCCESS, {field: "0"})
    assert (answer.accepted, answer.is_logged_first) == ((), False)
