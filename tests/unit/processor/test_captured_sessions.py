"""Captured requests to a Java NameServer are answered as Java did, except for listed differences."""

from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import orjson

from namesrv_stream.processor.name_server import Options
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.frame import encode_frame
from tests.support.name_server import Exchange
from tests.vectors.captured import CapturedEnd, CapturedFrame, captured_events

#: The part whose server had supportActingMaster=true.
ACTING = "acting"
COMPRESSED_BROKER = "broker-compressed"

# Reasons for different answers, and their numbers. docs/differences.md also lists differences of other requests.
COMPRESSED = "a 5.x compressed body that its header denies is read on purpose (ADR 0006)"
ENDED_MAPPING = "a broker's share of a static topic ends with the broker (ADR 0067)"
EXPECTED_DIFFERENCES = {COMPRESSED: 11, ENDED_MAPPING: 12}


class Played(NamedTuple):
    """One request of the capture with both answers."""

    part: str
    at_s: float
    request: RemotingCommand
    ours: RemotingCommand
    java: RemotingCommand

    @property
    def differs(self) -> bool:
        return content_of(self.ours) != content_of(self.java)


@cache
def played() -> tuple[Played, ...]:
    """Return every answered request. Each part is replayed to a new server, closed connections included."""
    servers: dict[str, Exchange] = {}
    waiting: dict[tuple[str, int, int], tuple[RemotingCommand, RemotingCommand]] = {}
    result: list[Played] = []
    for event in captured_events():
        server = servers.get(event.part)
        if server is None:
            options = Options(support_acting_master=event.part == ACTING, order_message_enable=True)
            server = servers[event.part] = Exchange(options)
        if isinstance(event, CapturedEnd) and event.is_close:
            server.close(event.connection)
        if not isinstance(event, CapturedFrame):
            continue
        command = event.command
        key = (event.part, event.connection, command.opaque)
        if event.from_peer:
            server.now_ms = int(event.at_s * 1000)
            response = server.send(command, event.connection).response
            if not command.is_oneway:
                waiting[key] = (command, response)
        else:
            request, ours = waiting.pop(key)
            result.append(Played(event.part, event.at_s, request, ours, command))
    return tuple(result)


def content_of(answer: RemotingCommand) -> tuple[object, ...]:
    return (answer.code, answer.remark, answer.ext_fields, unordered(answer.body))


def unordered(body: bytes | None) -> object:
    return sorted_lists(fastjson.loads(body)) if body else None


def sorted_lists(value: Any) -> Any:
    """``value`` with its lists sorted: Java writes them in hash order."""
    if isinstance(value, dict):
        return {k: sorted_lists(v) for k, v in value.items()}
    if isinstance(value, list):
        return sorted((sorted_lists(v) for v in value), key=lambda v: orjson.dumps(v, option=orjson.OPT_SORT_KEYS))
    return value


def without_broker(body: bytes | None, broker_name: str) -> Any:
    """Return a ClusterInfo without one broker name, and without clusters of only this broker."""
    fields = sorted_lists(fastjson.loads(body or b"{}"))
    names = {c: [n for n in ns if n != broker_name] for c, ns in fields["clusterAddrTable"].items()}
    return (
        {n: data for n, data in fields["brokerAddrTable"].items() if n != broker_name},
        {c: ns for c, ns in names.items() if ns},
    )


def without_mappings_of_ended(body: bytes | None) -> Any:
    """Return a route without the static mappings of brokers that it does not contain."""
    fields = sorted_lists(fastjson.loads(body or b"{}"))
    names = {data["brokerName"] for data in fields["brokerDatas"]}
    mappings = fields["topicQueueMappingByBroker"]
    return {**fields, "topicQueueMappingByBroker": {n: m for n, m in mappings.items() if n in names}}


def reason_of(p: Played) -> str | None:
    """Return which of the expected differences this is; None for any other."""
    topic = (p.request.ext_fields or {}).get("topic")
    match p.request.code:
        case RequestCode.GET_ROUTEINFO_BY_TOPIC if topic == "Topic-compressed":
            if (p.part, p.java.code) == ("options", ResponseCode.TOPIC_NOT_EXIST):
                return COMPRESSED
        case RequestCode.GET_ROUTEINFO_BY_TOPIC if topic == "StaticEvents":
            if without_mappings_of_ended(p.java.body) == unordered(p.ours.body):
                return ENDED_MAPPING
        case RequestCode.REGISTER_BROKER if p.java.code == ResponseCode.SYSTEM_ERROR:
            is_that = (p.request.ext_fields or {}).get("brokerName") == COMPRESSED_BROKER
            if is_that and '"registerBrokerBody" is null' in (p.java.remark or ""):
                return COMPRESSED
        case RequestCode.GET_BROKER_CLUSTER_INFO:
            if without_broker(p.ours.body, COMPRESSED_BROKER) == without_broker(p.java.body, ""):
                return COMPRESSED
    return None


def test_every_answer_equals_javas_except_for_the_listed_differences() -> None:
    differing = [p for p in played() if p.differs]

    assert [(p.part, p.at_s, p.request, p.ours, p.java) for p in differing if reason_of(p) is None] == []
    assert Counter(reason_of(p) for p in differing) == EXPECTED_DIFFERENCES


def test_all_answers_are_compared() -> None:
    assert Counter(RequestCode(p.request.code) for p in played()) == {
        RequestCode.PUT_KV_CONFIG: 2,
        RequestCode.GET_KV_CONFIG: 1,
        RequestCode.DELETE_KV_CONFIG: 2,
        RequestCode.REGISTER_BROKER: 123,
        RequestCode.UNREGISTER_BROKER: 4,
        RequestCode.GET_ROUTEINFO_BY_TOPIC: 429,
        RequestCode.GET_BROKER_CLUSTER_INFO: 128,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: 1,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: 1,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: 1,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: 1,
        RequestCode.QUERY_DATA_VERSION: 6,
        RequestCode.ADD_WRITE_PERM_OF_BROKER: 1,
        RequestCode.GET_BROKER_MEMBER_GROUP: 51,
    }


def test_bodies_have_the_bytes_of_javas_except_for_the_order_of_entries() -> None:
    # Thus keys are quoted, characters escaped and nulls left out as in Java, in the form that each client requested.
    bodies = [(p.ours.body or b"", p.java.body or b"") for p in played() if not p.differs]

    assert [(ours, java) for ours, java in bodies if sorted(ours) != sorted(java)] == []
    assert sum(ours == java for ours, java in bodies if java) == 385


def test_strict_routes_with_one_broker_equal_javas_byte_for_byte() -> None:
    # Strict maps are sorted, so only the order of lists may differ, and these have one entry.
    single = [
        (p.ours.body, p.java.body)
        for p in played()
        if p.request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        and p.request.version >= 401
        and not p.differs
        and (p.java.body or b"").count(b'"perm"') == 1
    ]

    assert len(single) >= 50
    assert [pair for pair in single if pair[0] != pair[1]] == []


def test_answers_contain_routes_in_both_forms() -> None:
    bodies = [p.ours.body for p in played() if p.request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and p.ours.body]

    assert any(b'"brokerAddrs":{"0":' in body for body in bodies)
    assert any(b'"brokerAddrs":{0:' in body for body in bodies)


def test_headers_equal_javas_except_that_binary_requests_have_binary_answers() -> None:
    # Java answers binary requests with a JSON header (ADR 0009); every peer reads both.
    forms = Counter((p.request.serialize_type, p.ours.serialize_type, p.java.serialize_type) for p in played())
    assert forms == {
        (SerializeType.JSON, SerializeType.JSON, SerializeType.JSON): 744,
        (SerializeType.ROCKETMQ, SerializeType.ROCKETMQ, SerializeType.JSON): 7,
    }
    assert all((p.ours.version, p.ours.flag, p.ours.opaque) == (p.java.version, p.java.flag, p.java.opaque)
               for p in played())  # fmt: skip


def test_every_answer_can_be_encoded() -> None:
    assert all(len(encode_frame(p.ours)) > 8 for p in played())
