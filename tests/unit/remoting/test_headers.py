from collections import Counter
from collections.abc import Mapping
from typing import Protocol, Self

import pytest

from namesrv_stream.remoting.command import RequestCode
from namesrv_stream.remoting.ext_fields import CommandCustomHeader
from namesrv_stream.remoting.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from tests.vectors.captured import captured_exchanges, captured_frames


class CustomHeader(Protocol):
    """The methods that all headers have."""

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str] | None) -> Self: ...

    def to_ext_fields(self) -> dict[str, str]: ...


HEADERS: dict[RequestCode, type[CustomHeader]] = {
    RequestCode.PUT_KV_CONFIG: PutKVConfigRequestHeader,
    RequestCode.GET_KV_CONFIG: GetKVConfigRequestHeader,
    RequestCode.DELETE_KV_CONFIG: DeleteKVConfigRequestHeader,
    RequestCode.REGISTER_BROKER: RegisterBrokerRequestHeader,
    RequestCode.UNREGISTER_BROKER: UnRegisterBrokerRequestHeader,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: GetRouteInfoRequestHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: WipeWritePermOfBrokerRequestHeader,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: DeleteTopicFromNamesrvRequestHeader,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: RegisterTopicRequestHeader,
    RequestCode.GET_KVLIST_BY_NAMESPACE: GetKVListByNamespaceRequestHeader,
    RequestCode.GET_TOPICS_BY_CLUSTER: GetTopicsByClusterRequestHeader,
    RequestCode.QUERY_DATA_VERSION: QueryDataVersionRequestHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: AddWritePermOfBrokerRequestHeader,
    RequestCode.GET_BROKER_MEMBER_GROUP: GetBrokerMemberGroupRequestHeader,
    RequestCode.BROKER_HEARTBEAT: BrokerHeartbeatRequestHeader,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: NotifyMinBrokerIdChangeRequestHeader,
}
"""Every request with a custom header; the others have none."""

WITHOUT_HEADER = [106, 206, 304, 311, 312, 313, 318, 319]

CAPTURED_CODES = [100, 101, 102, 103, 104, 105, 205, 216, 217, 322, 327, 901, 904]


def test_every_request_has_its_custom_header_or_none() -> None:
    assert HEADERS.keys() & set(WITHOUT_HEADER) == set(), "a request has a custom header or none"
    listed = HEADERS.keys() | set(WITHOUT_HEADER)
    assert listed ^ set(RequestCode) == set(), "add the code to HEADERS or WITHOUT_HEADER"


def test_every_header_is_that_of_a_request_or_of_a_response() -> None:
    listed = {header.__name__ for header in (*HEADERS.values(), *RESPONSE_HEADERS.values())}
    ours = [h for h in CommandCustomHeader.__subclasses__() if h.__module__.startswith("namesrv_stream.")]
    unlisted = {header.__name__ for header in ours} - listed
    assert unlisted == set(), "add the header of a request to HEADERS, and that of a response to RESPONSE_HEADERS"


@pytest.mark.parametrize("code", CAPTURED_CODES)
def test_captured_headers_are_the_same_when_written_again(code: int) -> None:
    requests = [each.command for each in captured_frames() if each.from_peer and each.command.code == code]

    assert requests
    for request in requests:
        assert HEADERS[RequestCode(code)].from_ext_fields(request.ext_fields).to_ext_fields() == request.ext_fields


def test_the_captured_requests_without_a_custom_header_have_no_ext_fields() -> None:
    others = [each.command for each in captured_frames() if each.from_peer and each.command.code not in CAPTURED_CODES]

    assert {command.code for command in others} == {106, 206}
    assert {command.ext_fields is None for command in others} == {True}


@pytest.mark.parametrize("header_class", HEADERS.values())
def test_absent_ext_fields_leave_every_field_at_its_default(header_class: type[CustomHeader]) -> None:
    assert header_class.from_ext_fields(None) == header_class()


def test_a_registration_of_a_5x_broker_in_an_acting_master_group_is_read() -> None:
    header = RegisterBrokerRequestHeader.from_ext_fields(
        {
            "brokerName": "broker-a",
            "brokerAddr": "10.0.0.1:10911",
            "clusterName": "C1",
            "haServerAddr": "10.0.0.1:10912",
            "brokerId": "1",
            "heartbeatTimeoutMillis": "10000",
            "enableActingMaster": "true",
            "compressed": "false",
            "bodyCrc32": "1038418621",
            "__ZONE_NAME": "z1",
        }
    )

    assert header == RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_addr="10.0.0.1:10911",
        cluster_name="C1",
        ha_server_addr="10.0.0.1:10912",
        broker_id=1,
        heartbeat_timeout_millis=10_000,
        enable_acting_master=True,
        compressed=False,
        body_crc32=1038418621,
        zone_name="z1",
    )


def test_registration_of_a_4x_broker_has_no_acting_master_field() -> None:
    header = RegisterBrokerRequestHeader.from_ext_fields({"brokerName": "broker-a", "compressed": "true"})

    assert header.enable_acting_master is None
    assert header.compressed is True
    assert header.body_crc32 == 0


def test_a_route_request_may_name_a_zone() -> None:
    header = GetRouteInfoRequestHeader.from_ext_fields({"topic": "T", "__ZONE_MODE": "True", "__ZONE_NAME": "z1"})

    assert header == GetRouteInfoRequestHeader("T", accept_standard_json_only=False, zone_mode=True, zone_name="z1")


def test_a_plain_route_request_is_written_as_clients_do() -> None:
    assert GetRouteInfoRequestHeader(topic="T").to_ext_fields() == {"topic": "T"}


@pytest.mark.parametrize(
    ("header", "ext_fields"),
    [
        (GetKVListByNamespaceRequestHeader(namespace="n"), {"namespace": "n"}),
        (GetTopicsByClusterRequestHeader(cluster="C1"), {"cluster": "C1"}),
        (
            NotifyMinBrokerIdChangeRequestHeader(min_broker_id=1, min_broker_addr="a:1", offline_broker_addr="a:2"),
            {"minBrokerId": "1", "minBrokerAddr": "a:1", "offlineBrokerAddr": "a:2"},
        ),
    ],
)
def test_headers_that_were_not_captured_have_the_names_of_java(
    header: CustomHeader, ext_fields: dict[str, str]
) -> None:
    assert header.to_ext_fields() == ext_fields
    assert type(header).from_ext_fields(ext_fields) == header


def test_a_heartbeat_spells_its_timeout_as_java_does() -> None:
    header = BrokerHeartbeatRequestHeader(broker_name="b", epoch=3, max_offset=2**40, heartbeat_timeout_mills=9)

    assert header.to_ext_fields() == {
        "brokerName": "b",
        "epoch": "3",
        "maxOffset": "1099511627776",
        "heartbeatTimeoutMills": "9",
    }


RESPONSE_HEADERS: dict[
    RequestCode,
    type[GetKVConfigResponseHeader]
    | type[RegisterBrokerResponseHeader]
    | type[WipeWritePermOfBrokerResponseHeader]
    | type[QueryDataVersionResponseHeader]
    | type[AddWritePermOfBrokerResponseHeader],
] = {
    RequestCode.GET_KV_CONFIG: GetKVConfigResponseHeader,
    RequestCode.REGISTER_BROKER: RegisterBrokerResponseHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: WipeWritePermOfBrokerResponseHeader,
    RequestCode.QUERY_DATA_VERSION: QueryDataVersionResponseHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: AddWritePermOfBrokerResponseHeader,
}


def test_captured_response_headers_are_the_same_when_written_again() -> None:
    compared: Counter[int] = Counter()
    for request, response in captured_exchanges():
        if response.ext_fields is not None:
            header_class = RESPONSE_HEADERS[RequestCode(request.code)]
            assert header_class.from_ext_fields(response.ext_fields).to_ext_fields() == response.ext_fields
            compared[request.code] += 1

    uncaptured = set(CAPTURED_CODES) & RESPONSE_HEADERS.keys() - set(compared)
    assert not uncaptured, "add captured exchanges, or take the code out of CAPTURED_CODES"


def test_the_answer_to_a_master_has_no_addresses() -> None:
    assert RegisterBrokerResponseHeader().to_ext_fields() == {}


def test_the_answer_to_a_slave_has_the_addresses_of_its_master() -> None:
    header = RegisterBrokerResponseHeader(ha_server_addr="10.0.0.1:10912", master_addr="10.0.0.1:10911")

    assert header.to_ext_fields() == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}


def test_unchanged_data_version_is_written_as_text() -> None:
    assert QueryDataVersionResponseHeader(changed=False).to_ext_fields() == {"changed": "false"}
