"""Requests with missing or empty fields have Java's answer, or a clear error where Java's is misleading.

A Java NameServer 5.3.3 with a registered broker-a gave the answers in ``AS_JAVA``. docs/differences.md has the others.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from namesrv_stream.processor.dispatch import PROCESSORS
from namesrv_stream.processor.name_server import Access
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from tests.support.name_server import MASTER, Exchange, a_body, a_broker_header, a_registration_request

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Odd(NamedTuple):
    """A request and the code, remark, ext fields and body of its answer."""

    request: RequestCode
    fields: Mapping[str, str] | None
    code: ResponseCode
    remark: str | None = None
    ext_fields: Mapping[str, str] | None = None
    body: bytes | None = None
    sent: bytes | None = None


R, OK, ERROR, NOT_FOUND = RequestCode, ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.QUERY_NOT_FOUND
NO_TOPIC = "No topic route info in name server for the topic: "
MEMBERS = b'{"brokerMemberGroup":{"brokerAddrs":{}'
SLIP = "not set any response code"

AS_JAVA = [
    Odd(R.PUT_KV_CONFIG, None, ERROR, "namespace or key is null"),
    Odd(R.PUT_KV_CONFIG, {"key": "k", "value": "v"}, ERROR, "namespace or key is null"),
    Odd(R.PUT_KV_CONFIG, {"namespace": "n", "value": "v"}, ERROR, "namespace or key is null"),
    Odd(R.PUT_KV_CONFIG, {"namespace": "", "key": "", "value": ""}, OK),
    Odd(R.GET_KV_CONFIG, None, NOT_FOUND, "No config item, Namespace: null Key: null", {}),
    Odd(R.GET_KV_CONFIG, {"key": "k"}, NOT_FOUND, "No config item, Namespace: null Key: k", {}),
    Odd(R.GET_KV_CONFIG, {"namespace": "n"}, NOT_FOUND, "No config item, Namespace: n Key: null", {}),
    Odd(R.GET_KV_CONFIG, {"namespace": "", "key": ""}, NOT_FOUND, "No config item, Namespace:  Key: ", {}),
    Odd(R.DELETE_KV_CONFIG, None, OK),
    Odd(R.DELETE_KV_CONFIG, {"key": "k"}, OK),
    Odd(R.DELETE_KV_CONFIG, {"namespace": "n"}, OK),
    Odd(R.DELETE_KV_CONFIG, {"namespace": "", "key": ""}, OK),
    Odd(R.GET_KVLIST_BY_NAMESPACE, None, NOT_FOUND, "No config item, Namespace: null"),
    Odd(R.GET_KVLIST_BY_NAMESPACE, {"namespace": ""}, NOT_FOUND, "No config item, Namespace: "),
    Odd(R.WIPE_WRITE_PERM_OF_BROKER, None, OK, None, {"wipeTopicCount": "0"}),
    Odd(R.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": ""}, OK, None, {"wipeTopicCount": "0"}),
    Odd(R.ADD_WRITE_PERM_OF_BROKER, None, OK, None, {"addTopicCount": "0"}),
    Odd(R.ADD_WRITE_PERM_OF_BROKER, {"brokerName": ""}, OK, None, {"addTopicCount": "0"}),
    Odd(R.DELETE_TOPIC_IN_NAMESRV, None, OK),
    Odd(R.DELETE_TOPIC_IN_NAMESRV, {"clusterName": "c0"}, OK),
    Odd(R.DELETE_TOPIC_IN_NAMESRV, {"topic": "", "clusterName": ""}, OK),
    Odd(R.REGISTER_TOPIC_IN_NAMESRV, {"topic": ""}, OK),
    Odd(R.GET_TOPICS_BY_CLUSTER, None, OK, None, None, b'{"topicList":[]}'),
    Odd(R.GET_TOPICS_BY_CLUSTER, {"cluster": ""}, OK, None, None, b'{"topicList":[]}'),
    Odd(R.GET_ROUTEINFO_BY_TOPIC, None, ResponseCode.TOPIC_NOT_EXIST, f"{NO_TOPIC}null{FAQ}"),
    Odd(R.GET_ROUTEINFO_BY_TOPIC, {"topic": ""}, ResponseCode.TOPIC_NOT_EXIST, f"{NO_TOPIC}{FAQ}"),
    Odd(R.GET_BROKER_MEMBER_GROUP, None, OK, SLIP, None, MEMBERS + b"}}"),
    Odd(R.GET_BROKER_MEMBER_GROUP, {"brokerName": "b"}, OK, SLIP, None, MEMBERS + b',"brokerName":"b"}}'),
    Odd(R.GET_BROKER_MEMBER_GROUP, {"clusterName": ""}, OK, SLIP, None, MEMBERS + b',"cluster":""}}'),
    Odd(R.UPDATE_NAMESRV_CONFIG, None, OK),
    Odd(R.UPDATE_NAMESRV_CONFIG, None, ERROR, "string2Properties error", sent=b"a=\\uxx"),
    # The answer is "changed" for every request without a body, and for every unknown broker.
    Odd(R.QUERY_DATA_VERSION, a_broker_header("1.2.3.4:1"), OK, None, {"changed": "true"}),
    Odd(R.QUERY_DATA_VERSION, a_broker_header("1.2.3.4:1", brokerId=None), OK, None, {"changed": "true"}),
    Odd(R.BROKER_HEARTBEAT, a_broker_header("1.2.3.4:1"), OK),
    Odd(R.UNREGISTER_BROKER, a_broker_header("1.2.3.4:1", brokerId=None), OK),
    Odd(R.REGISTER_BROKER, a_broker_header(MASTER), OK, None, {}),
]

#: Java's answer would be SUCCESS or a NullPointerException.
NOT_AS_JAVA = [
    Odd(R.PUT_KV_CONFIG, {"namespace": "n", "key": "k"}, ERROR, "value is null"),
    Odd(R.REGISTER_TOPIC_IN_NAMESRV, None, ERROR, "topic is missing"),
    *(
        Odd(code, fields, ERROR, remark, {} if code == R.REGISTER_BROKER else None)
        for code in (R.REGISTER_BROKER, R.UNREGISTER_BROKER, R.QUERY_DATA_VERSION, R.BROKER_HEARTBEAT)
        for fields, remark in (
            (None, "brokerName is missing"),
            (a_broker_header(brokerName=None), "brokerName is missing"),
            (a_broker_header(brokerName=""), "brokerName is missing"),
            (a_broker_header(clusterName=None), "clusterName is missing"),
            (a_broker_header(clusterName=""), "clusterName is missing"),
            (a_broker_header(brokerAddr=None), "brokerAddr is missing"),
            (a_broker_header(brokerAddr=""), "brokerAddr is missing"),
        )
    ),
    Odd(R.REGISTER_BROKER, a_broker_header(brokerId=None), ERROR, "brokerId is missing or not a number", {}),
    Odd(R.REGISTER_BROKER, a_broker_header(brokerId=""), ERROR, "brokerId is missing or not a number", {}),
]


def a_server() -> Exchange:
    server = Exchange()
    server.server.access = Access(enable_config_update=True)
    server.send(a_registration_request(body=a_body()))
    return server


@pytest.mark.parametrize("odd", AS_JAVA + NOT_AS_JAVA, ids=lambda odd: f"{odd.request.name} {odd.fields or ''}")
def test_a_request_with_missing_or_empty_fields_has_a_clear_answer(odd: Odd) -> None:
    response = a_server().send(RemotingCommand(odd.request, opaque=6, ext_fields=odd.fields, body=odd.sent)).response

    assert (response.code, response.remark) == (odd.code, odd.remark)
    assert (response.ext_fields, response.body) == (odd.ext_fields, odd.body)


@pytest.mark.parametrize("odd", NOT_AS_JAVA, ids=lambda odd: f"{odd.request.name} {odd.fields or ''}")
def test_a_request_that_is_refused_for_its_fields_changes_and_logs_nothing(odd: Odd) -> None:
    server = a_server()
    groups, logged = dict(server.view.table.groups), len(server.logged)

    server.send(RemotingCommand(odd.request, opaque=6, ext_fields=odd.fields, body=odd.sent))

    assert (server.view.table.groups, server.view.table.kv, len(server.logged)) == (groups, {}, logged)


@pytest.mark.parametrize("code", PROCESSORS)
@pytest.mark.parametrize("fields", [None, {}, {"unknown": "x"}])
def test_every_request_is_answered_without_its_fields(code: RequestCode, fields: dict[str, str] | None) -> None:
    response = a_server().send(RemotingCommand(code, opaque=6, ext_fields=fields)).response

    assert response.opaque == 6
    assert response.code == OK or response.remark


@pytest.mark.parametrize("field", ["brokerName", "brokerAddr", "clusterName"])
@pytest.mark.parametrize("code", [103, 104, 322, 904])
def test_a_request_about_a_broker_with_a_very_long_name_is_refused(code: int, field: str) -> None:
    request = a_registration_request()
    fields = {**(request.ext_fields or {}), field: "n" * 1_025}

    answer = Exchange().send(replace(request, code=code, ext_fields=fields))

    assert (answer.response.remark, answer.accepted) == (f"{field} of 1025 characters exceeds 1024", ())


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (100, {"namespace": "n" * 1_025, "key": "k", "value": "v"}),
        (100, {"namespace": "n", "key": "k" * 1_025, "value": "v"}),
        (102, {"namespace": "n" * 1_025, "key": "k"}),
        (102, {"namespace": "n", "key": "k" * 1_025}),
        (216, {"topic": "t" * 1_025}),
    ],
)
def test_an_operators_change_of_a_very_long_name_is_not_logged(code: int, fields: dict[str, str]) -> None:
    answer = Exchange().send(RemotingCommand(code, ext_fields=fields))

    assert answer.accepted == ()
    assert (answer.response.code == ResponseCode.SUCCESS) == (code != RequestCode.PUT_KV_CONFIG)
