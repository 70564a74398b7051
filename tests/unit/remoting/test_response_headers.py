from collections import Counter

from namesrv_stream.remoting.codes import RequestCode
from namesrv_stream.remoting.response_headers import (
    AddWritePermOfBrokerResponseHeader,
    GetKVConfigResponseHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerResponseHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from tests.vectors.captured import captured_exchanges

HEADERS: dict[
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
            header_class = HEADERS[RequestCode(request.code)]
            assert header_class.from_ext_fields(response.ext_fields).to_ext_fields() == response.ext_fields
            compared[request.code] += 1

    assert set(compared) == set(HEADERS)


def test_a_master_learns_nothing_and_is_told_so() -> None:
    assert RegisterBrokerResponseHeader().to_ext_fields() == {}


def test_a_slave_learns_its_masters_addresses() -> None:
    header = RegisterBrokerResponseHeader(ha_server_addr="10.0.0.1:10912", master_addr="10.0.0.1:10911")

    assert header.to_ext_fields() == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}


def test_an_unchanged_data_version_is_said_in_words() -> None:
    assert QueryDataVersionResponseHeader(changed=False).to_ext_fields() == {"changed": "false"}
