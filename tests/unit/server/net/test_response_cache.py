"""Cached responses and their events equal those of the processors, byte for byte."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.processor.name_server import Accepted, Options
from namesrv_stream.remoting.command import ONEWAY_FLAG, RemotingCommand, RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.frame import decode_frame, encode_frame
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from namesrv_stream.server.native.known_answers import KnownAnswers
from namesrv_stream.server.net.response_cache import ResponseCache
from tests.support.examples import examples
from tests.support.name_server import (
    Exchange,
    a_body,
    a_broker_header,
    a_registration_request,
    a_route_request,
    a_topic,
)
from tests.support.strategies_remoting import mutations
from tests.vectors.captured import captured_frames

CODES = (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION)
VERSION = b'{"counter":1,"stateVersion":0,"timestamp":1}'
TOPICS = {"TopicTest": a_topic(), "Other": a_topic()}
ROUTE = a_route_request()
HEARTBEAT = RemotingCommand(RequestCode.BROKER_HEARTBEAT, opaque=7, ext_fields=a_broker_header())
DATA_VERSION = replace(HEARTBEAT, code=RequestCode.QUERY_DATA_VERSION, body=VERSION)


class CachedServer:
    """A name server with a cache; its broker is registered over connection 1."""

    def __init__(self, options: Options | None = None, max_bytes: int = 1 << 20, topics: Iterable[str] = ()) -> None:
        self.exchange = Exchange(options)
        self.responses = ResponseCache(KnownAnswers(max_bytes))
        self.exchange.view.watch(self.responses.changed)
        self.exchange.send(a_registration_request(body=a_body({**TOPICS, **{t: a_topic() for t in topics}})))

    def general(self, frame: bytes, connection: int = 1) -> tuple[bytes, tuple[Accepted, ...]]:
        answer = self.exchange.send(decode_frame(frame), connection)
        return encode_frame(answer.response), answer.accepted

    def keep(self, frame: bytes, connection: int = 1) -> None:
        request = decode_frame(frame)
        answer = self.exchange.send(request, connection)
        answered = (frame, request, answer, encode_frame(answer.response))
        self.responses.keep(*answered, connection)

    def has(self, frame: bytes, connection: int = 1) -> bool:
        """Return whether a response is cached; if so, assert that it is the one of the processors."""
        found = self.responses.find(frame, connection)
        if found is None:
            return False
        response, (code, heartbeat) = found
        accepted = () if heartbeat is None else (Accepted(heartbeat, None),)
        assert (response, accepted) == self.general(frame, connection)
        assert code == decode_frame(frame).code
        return True


def test_clients_with_different_address_views_share_no_response() -> None:
    server, frame = CachedServer(), frame_of(ROUTE)
    server.keep(frame)
    assert server.responses.find(frame, 1, view=3) is None
    answer = server.exchange.send(ROUTE)
    server.responses.keep(frame, ROUTE, answer, b"\0\0\0\1" + encode_frame(answer.response)[4:], 1, view=3)
    of_view, plain = server.responses.find(frame, 2, view=3), server.responses.find(frame, 2)
    assert of_view is not None
    assert plain is not None
    server.responses.changed("broker-a", ["TopicTest"])
    assert server.responses.find(frame, 1, view=3) is None


def frame_of(request: RemotingCommand) -> bytes:
    return encode_frame(request)[4:]


def with_header(header: bytes, body: bytes = b"") -> bytes:
    return len(header).to_bytes(4, "big") + header + body


def with_opaque(frame: bytes, written: bytes) -> bytes:
    at = frame.index(b'"opaque":') + len(b'"opaque":')
    end = frame.index(b",", at)
    header = int.from_bytes(frame[:4], "big") + len(written) - (end - at)
    return header.to_bytes(4, "big") + frame[4:at] + written + frame[end:]


@cache
def captured() -> tuple[bytes, ...]:
    """Return the captured requests with one of the three codes."""
    frames = [c.frame for c in captured_frames() if c.from_peer]
    requests = [(frame, decode_frame(frame)) for frame in frames]
    return tuple(f for f, r in requests if r.code in CODES and not r.is_oneway and r.serialize_type == 0)


def captured_server() -> CachedServer:
    """Return a server with a route for every captured query, and the broker of every captured heartbeat."""
    fields = [decode_frame(frame).ext_fields or {} for frame in captured()]
    server = CachedServer(topics=[f["topic"] for f in fields if f.get("topic")])
    registration = a_registration_request(body=a_body(TOPICS))
    for of_broker in (f for f in fields if "brokerAddr" in f):
        ext_fields = {**(registration.ext_fields or {}), **of_broker, "bodyCrc32": "0"}
        server.exchange.send(replace(registration, ext_fields=ext_fields))
    return server


@cache
def filled() -> CachedServer:
    server = captured_server()
    for frame in (*captured(), *map(frame_of, (ROUTE, HEARTBEAT, DATA_VERSION))):
        server.keep(frame)
    return server


# ---- equal to the processors ----


def test_every_repeated_captured_request_is_answered_from_the_cache() -> None:
    server = captured_server()
    assert len(captured()) > 400
    for frame in captured():
        server.keep(frame)
        assert server.has(frame)


@settings(max_examples=examples(200))
@given(st.sampled_from((ROUTE, HEARTBEAT, DATA_VERSION)), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_any_opaque_is_answered_from_the_cache(request: RemotingCommand, one: int, two: int) -> None:
    server = CachedServer()
    server.keep(with_opaque(frame_of(request), b"%d" % one))
    # 2147483647 + 1 is no opaque, so the cache cannot find out where the opaque is.
    is_shown = one != 2**31 - 1
    assert server.has(with_opaque(frame_of(request), b"%d" % two)) == is_shown


@settings(max_examples=examples(500))
@given(mutations(st.sampled_from([*captured(), *map(frame_of, (ROUTE, HEARTBEAT, DATA_VERSION))])))
def test_a_mutated_frame_that_the_cache_answers_has_the_response_of_the_processors(frame: bytes) -> None:
    filled().has(frame)


@pytest.mark.parametrize("written", [b"2147483648", b"-1", b"07", b"7.0", b"1e2", b"", b'"7"'])
def test_an_unusual_opaque_is_not_answered_from_the_cache(written: bytes) -> None:
    for request in (ROUTE, HEARTBEAT):
        assert filled().responses.find(with_opaque(frame_of(request), written), 1) is None


TRICKY = {
    "ext field": b'{"code":CODE,"extFields":{"opaque":7FIELDS},"version":479}',
    "ext field and another behind": b'{"code":CODE,"extFields":{"opaque":7FIELDS},"opaque":5,"v":1}',
    "in a comment": b'{/*"opaque":7,*/"code":CODE,"extFields":{"x":"y"FIELDS},"version":479}',
    "in single quotes": b"""{"code":CODE,"extFields":{"x":"y"FIELDS,'z':'"opaque":7,'},"version":479}""",
    "overridden": b'{"code":CODE,"extFields":{"x":"y"FIELDS},"opaque":7,"\\u006fpaque":0,"version":479}',
    "in an object": b'{"code":CODE,"extFields":{"x":"y"FIELDS},"x":{"opaque":7,"y":1},"version":479}',
    "space before": b'{"code":CODE,"extFields":{"x":"y"FIELDS},"opaque": 7,"version":479}',
    "text": b'{"code":CODE,"extFields":{"x":"y"FIELDS},"opaque":"7","version":479}',
}


@pytest.mark.parametrize("request_", [ROUTE, HEARTBEAT], ids=["route", "heartbeat"])
@pytest.mark.parametrize("case", TRICKY)
def test_a_response_is_not_cached_if_the_place_of_the_opaque_is_ambiguous(case: str, request_: RemotingCommand) -> None:
    fields = b"".join(b',"%b":"%b"' % (k.encode(), v.encode()) for k, v in (request_.ext_fields or {}).items())
    header = TRICKY[case].replace(b"CODE", b"%d" % request_.code).replace(b"FIELDS", fields)
    server = CachedServer()
    assert decode_frame(server.general(with_header(header))[0][4:]).code == ResponseCode.SUCCESS
    server.keep(with_header(header))
    assert not server.has(with_header(header))


def test_a_frame_with_another_header_length_is_not_answered_from_the_cache() -> None:
    frame = frame_of(DATA_VERSION)
    length = int.from_bytes(frame[:4], "big")
    for header_bytes in range(len(frame)):
        found = filled().responses.find(header_bytes.to_bytes(4, "big") + frame[4:], 1)
        assert (found is not None) == (header_bytes == length)


@pytest.mark.parametrize(
    "request_",
    [
        replace(HEARTBEAT, flag=ONEWAY_FLAG),
        replace(HEARTBEAT, serialize_type=SerializeType.ROCKETMQ),
        replace(ROUTE, serialize_type=SerializeType.ROCKETMQ),
        replace(HEARTBEAT, ext_fields={}),
        replace(HEARTBEAT, code=RequestCode.GET_BROKER_MEMBER_GROUP),
        replace(DATA_VERSION, body=b"no version"),
        replace(HEARTBEAT, body=b"x" * 3_000),
        a_route_request("NoSuchTopic"),
    ],
    ids=["oneway", "binary", "binary route", "refused", "another code", "unreadable body", "long", "no route"],
)
def test_other_requests_are_not_cached(request_: RemotingCommand) -> None:
    server = CachedServer()
    server.keep(frame_of(request_))
    assert not server.has(frame_of(request_))


# ---- invalidation ----


@settings(max_examples=examples(200))
@given(st.lists(st.sampled_from(["register", "change", "leave", "close", "lost connection", "reload"]), max_size=10))
def test_no_stale_response_is_cached_after_any_change_of_broker_and_topics(steps: list[str]) -> None:
    server = CachedServer()
    view = server.exchange.view
    for counter, step in enumerate(["none", *steps], 2):
        match step:
            case "register":
                server.exchange.send(a_registration_request(body=a_body(TOPICS)))
            case "change":
                topics = {"TopicTest": a_topic(perm=4 + counter % 3), "Other": a_topic()}
                server.exchange.send(a_registration_request(body=a_body(topics, counter=counter)))
            case "leave":
                server.exchange.send(RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header()))
            case "close":
                server.exchange.close(1)
            case "reload":
                view.reload(type(view.table)(), {})
        for request in (ROUTE, HEARTBEAT, DATA_VERSION):
            server.has(frame_of(request))
            server.keep(frame_of(request))
            server.has(frame_of(request))


def test_a_changed_topic_keeps_the_cached_responses_of_others() -> None:
    server = CachedServer()
    other = frame_of(a_route_request("Other"))
    for frame in (frame_of(ROUTE), other):
        server.keep(frame)
    server.exchange.send(a_registration_request(body=a_body({**TOPICS, "TopicTest": a_topic(perm=4)}, counter=2)))
    assert (server.has(frame_of(ROUTE)), server.has(other)) == (False, True)


def test_a_changed_order_configuration_removes_the_cached_response() -> None:
    server = CachedServer(Options(order_message_enable=True))
    server.keep(frame_of(ROUTE))
    order = {"namespace": ORDER_TOPIC_CONFIG, "key": "TopicTest", "value": "broker-a:4"}
    server.exchange.send(RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=order))
    assert not server.has(frame_of(ROUTE))


def test_a_heartbeat_is_cached_for_its_connection_and_a_route_for_all() -> None:
    server = CachedServer()
    for request in (ROUTE, HEARTBEAT):
        server.keep(frame_of(request))
    assert [server.has(frame_of(request), 2) for request in (ROUTE, HEARTBEAT)] == [True, False]
    assert server.has(frame_of(HEARTBEAT), 1)


# ---- bounds ----


def test_many_variants_of_a_request_replace_only_unused_responses() -> None:
    server = CachedServer(max_bytes=20_000)
    server.keep(frame_of(ROUTE))
    abandoned = frame_of(a_route_request("Other"))
    server.keep(abandoned)
    for number in range(200):
        signed = replace(ROUTE, ext_fields={"topic": "TopicTest", "Signature": f"{number}"})
        server.keep(frame_of(signed))
        assert server.has(frame_of(signed))
        assert server.has(frame_of(ROUTE)), "a used response stays"
    assert not server.has(abandoned)
