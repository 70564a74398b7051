import pytest

from namesrv_stream.remoting.command import (
    MQ_VERSION,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    LanguageCode,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    SerializeType,
    response_to,
)


@pytest.mark.parametrize(
    ("flag", "is_response", "is_oneway"),
    [(0, False, False), (RESPONSE_FLAG, True, False), (ONEWAY_FLAG, False, True), (3, True, True), (4, False, False)],
)
def test_flag_bits_distinguish_requests_responses_and_oneway_requests(
    flag: int, is_response: bool, is_oneway: bool
) -> None:
    command = RemotingCommand(RequestCode.BROKER_HEARTBEAT, flag=flag)

    assert (command.is_response, command.is_oneway) == (is_response, is_oneway)


def test_a_response_has_the_opaque_of_its_request_and_the_version_of_this_server() -> None:
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, version=317, opaque=-7, language=LanguageCode.GO)

    response = response_to(request, ResponseCode.TOPIC_NOT_EXIST, "no route", {"a": "b"}, b"{}")

    assert response == RemotingCommand(
        code=ResponseCode.TOPIC_NOT_EXIST,
        language=LanguageCode.PYTHON,
        version=MQ_VERSION,
        opaque=-7,
        flag=RESPONSE_FLAG,
        remark="no route",
        ext_fields={"a": "b"},
        body=b"{}",
    )


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_a_response_has_the_serialisation_of_its_request(serialize_type: SerializeType) -> None:
    request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, serialize_type=serialize_type)

    assert response_to(request, ResponseCode.SUCCESS).serialize_type is serialize_type


def test_a_response_can_be_written_in_json_for_any_request() -> None:
    request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, serialize_type=SerializeType.ROCKETMQ)

    response = response_to(request, ResponseCode.SUCCESS, serialize_type=SerializeType.JSON)

    assert response.serialize_type is SerializeType.JSON
