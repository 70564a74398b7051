"""100, 101, 102, 219. Each answer equals that of the Java NameServer 5.3.3 to the same request."""

from namesrv_stream.processor.name_server import Answer
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.route.events import KvDeleted, KvPut, Origin
from tests.support.name_server import Exchange

PUT, GET = RequestCode.PUT_KV_CONFIG, RequestCode.GET_KV_CONFIG
DELETE, LIST = RequestCode.DELETE_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE
ORIGIN = Origin("s1", 1, 1)


def ask(server: Exchange, code: RequestCode, **fields: str) -> Answer:
    return server.send(RemotingCommand(code, opaque=5, ext_fields=fields))


def content_of(answer: Answer) -> tuple[int, str | None, object, bytes | None]:
    response = answer.response
    return response.code, response.remark, response.ext_fields, response.body


def test_a_stored_entry_can_be_read_and_listed() -> None:
    server = Exchange()

    assert content_of(ask(server, PUT, namespace="ns", key="k", value="v")) == (ResponseCode.SUCCESS, None, None, None)

    assert content_of(ask(server, GET, namespace="ns", key="k")) == (ResponseCode.SUCCESS, None, {"value": "v"}, None)
    assert content_of(ask(server, LIST, namespace="ns")) == (ResponseCode.SUCCESS, None, None, b'{"table":{"k":"v"}}')


def test_a_stored_entry_is_logged_before_its_answer() -> None:
    answer = ask(Exchange(), PUT, namespace="ns", key="k", value="v")

    event = KvPut(ORIGIN, "ns", "k", "v")
    assert (answer.accepted, answer.is_logged_first) == (((event, event),), True)


def test_empty_namespaces_keys_and_values_are_valid() -> None:
    server = Exchange()
    ask(server, PUT, namespace="", key="", value="")

    assert content_of(ask(server, GET, namespace="", key="")) == (ResponseCode.SUCCESS, None, {"value": ""}, None)


def test_a_namespace_survives_its_last_key() -> None:
    server = Exchange()
    ask(server, PUT, namespace="ns", key="k", value="v")

    deleted = ask(server, DELETE, namespace="ns", key="k")

    event = KvDeleted(ORIGIN, "ns", "k")
    assert content_of(deleted) == (ResponseCode.SUCCESS, None, None, None)
    assert (deleted.accepted, deleted.is_logged_first) == (((event, event),), True)
    assert content_of(ask(server, LIST, namespace="ns")) == (ResponseCode.SUCCESS, None, None, b'{"table":{}}')


def test_deletion_of_an_unknown_entry_succeeds() -> None:
    server = Exchange()

    assert ask(server, DELETE, namespace="ns", key="k").response.code == ResponseCode.SUCCESS
    assert ask(server, LIST, namespace="ns").response.code == ResponseCode.QUERY_NOT_FOUND


def test_an_unknown_entry_is_answered_in_javas_words() -> None:
    answer = ask(Exchange(), GET, namespace="ns", key="k")

    assert content_of(answer) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: ns Key: k", {}, None)


def test_an_unknown_namespace_is_answered_in_javas_words() -> None:
    answer = ask(Exchange(), LIST, namespace="ns")

    assert content_of(answer) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: ns", None, None)
