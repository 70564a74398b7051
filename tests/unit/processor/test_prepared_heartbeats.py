"""Heartbeats that are said again do and get what they did and got before, as far as that is still right."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.processor.name_server import Accepted
from namesrv_stream.processor.prepared_heartbeats import PreparedHeartbeats
from namesrv_stream.remoting.codes import ONEWAY_FLAG, RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame, encode_frame
from namesrv_stream.route.events import Origin
from tests.support.examples import examples
from tests.support.name_server import Exchange, a_body, a_broker_header, a_registration_request, a_topic
from tests.support.strategies_remoting import mutations
from tests.vectors.captured import captured_frames

ORIGIN = Origin("s1", 1, 1)
CODES = (RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION)
VERSION = b'{"counter":1,"stateVersion":0,"timestamp":1}'


def a_heartbeat(code: RequestCode = RequestCode.BROKER_HEARTBEAT, **changes: object) -> RemotingCommand:
    body = VERSION if code == RequestCode.QUERY_DATA_VERSION else None
    return RemotingCommand(**({"code": code, "opaque": 7, "ext_fields": a_broker_header(), "body": body} | changes))  # type: ignore[arg-type]


def frame_of(request: RemotingCommand) -> bytes:
    return encode_frame(request)[4:]


def with_opaque(frame: bytes, written: bytes) -> bytes:
    at = frame.index(b'"opaque":') + len(b'"opaque":')
    end = frame.index(b",", at)
    header = int.from_bytes(frame[:4], "big") + len(written) - (end - at)
    return header.to_bytes(4, "big") + frame[4:at] + written + frame[end:]


def general(server: Exchange, frame: bytes) -> tuple[bytes, tuple[Accepted, ...]]:
    """What the general path answers, and what it accepts."""
    answer = server.send(decode_frame(frame))
    return encode_frame(answer.response), answer.accepted


def keep(prepared: PreparedHeartbeats, server: Exchange, frame: bytes) -> None:
    request = decode_frame(frame)
    prepared.keep(frame, request, server.send(request).response)


def registered() -> Exchange:
    server = Exchange()
    server.send(a_registration_request(body=a_body({"TopicTest": a_topic(), "Other": a_topic()})))
    return server


@cache
def beats() -> tuple[bytes, ...]:
    frames = [c.frame for c in captured_frames() if c.from_peer]
    return tuple(f for f in frames if decode_frame(f).code in CODES and not decode_frame(f).is_oneway)


@cache
def filled() -> tuple[Exchange, PreparedHeartbeats]:
    server = registered()
    prepared = PreparedHeartbeats(server.server, ORIGIN)
    for frame in (*dict.fromkeys(beats()), *(frame_of(a_heartbeat(code)) for code in CODES)):
        keep(prepared, server, frame)
    return server, prepared


def assert_as_in_general(server: Exchange, prepared: PreparedHeartbeats, frame: bytes) -> bool:
    said = prepared.answer(frame)
    if said is not None:
        assert (said.answer, (Accepted(said.heartbeat, None),)) == general(server, frame)
        assert said.code == decode_frame(frame).code
    return said is not None


def register(server: Exchange, fields: dict[str, str]) -> None:
    request = a_registration_request(body=a_body({"TopicTest": a_topic(), "Other": a_topic()}))
    server.send(replace(request, ext_fields={**(request.ext_fields or {}), **fields, "bodyCrc32": "0"}))


def test_every_captured_heartbeat_is_answered_prepared_as_in_general() -> None:
    server = Exchange()
    for frame in beats():
        register(server, dict(decode_frame(frame).ext_fields or {}))
    assert len(beats()) > 5
    for frame in beats():
        prepared = PreparedHeartbeats(server.server, ORIGIN)
        keep(prepared, server, frame)
        assert assert_as_in_general(server, prepared, frame) == (
            decode_frame(frame).serialize_type is SerializeType.JSON
        )


@settings(max_examples=examples(200))
@given(st.sampled_from(CODES), st.integers(0, 2**31 - 1) | st.integers(0, 20), st.integers(0, 2**31 - 1))
def test_any_opaque_is_answered_as_in_general_and_prepared_where_it_is_as_long(
    code: RequestCode, opaque: int, before: int
) -> None:
    server = registered()
    prepared = PreparedHeartbeats(server.server, ORIGIN)
    keep(prepared, server, with_opaque(frame_of(a_heartbeat(code)), b"%d" % before))
    frame = with_opaque(frame_of(a_heartbeat(code)), b"%d" % opaque)
    assert assert_as_in_general(server, prepared, frame) == (len(str(opaque)) == len(str(before)))
    keep(prepared, server, frame)
    assert assert_as_in_general(server, prepared, frame)


@settings(max_examples=examples(500))
@given(mutations(st.sampled_from([*beats(), *(frame_of(a_heartbeat(code)) for code in CODES)])))
def test_mutated_frame_is_never_answered_otherwise_than_in_general(frame: bytes) -> None:
    assert_as_in_general(*filled(), frame)


@pytest.mark.parametrize("written", [b"2147483648", b"-1", b"07", b"7.0", b"1e2", b"", b'"7"'])
def test_what_is_no_plain_opaque_is_left_to_the_general_path(written: bytes) -> None:
    _, prepared = filled()
    assert prepared.answer(with_opaque(frame_of(a_heartbeat()), written)) is None


@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from(["register", "register anew", "leave", "close"]), max_size=8))
def test_whatever_becomes_of_the_broker_is_seen(steps: list[str]) -> None:
    server = Exchange()
    prepared = PreparedHeartbeats(server.server, ORIGIN)
    frames = [frame_of(a_heartbeat(code)) for code in CODES]
    topics = {"TopicTest": a_topic(), "Other": a_topic()}
    for counter, step in enumerate(["none", *steps], 1):
        if step == "register":
            server.send(a_registration_request(body=a_body(topics)))
        elif step == "register anew":
            server.send(a_registration_request(body=a_body(topics, counter=counter)))
        elif step == "leave":
            server.send(RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header()))
        elif step == "close":
            server.close(1)
        for frame in frames:
            if not assert_as_in_general(server, prepared, frame):
                keep(prepared, server, frame)
            is_heard = bool(server.send(decode_frame(frame)).accepted)
            assert assert_as_in_general(server, prepared, frame) or not is_heard


@pytest.mark.parametrize(
    "request_",
    [
        a_heartbeat(flag=ONEWAY_FLAG),
        a_heartbeat(serialize_type=SerializeType.ROCKETMQ),
        a_heartbeat(ext_fields={}),
        a_heartbeat(code=RequestCode.GET_BROKER_MEMBER_GROUP, body=None),
        a_heartbeat(RequestCode.QUERY_DATA_VERSION, body=b"no version"),
        a_heartbeat(body=b"x" * 3_000),
    ],
    ids=["oneway", "RocketMQ's serialisation", "refused", "another code", "a body that cannot be read", "long"],
)
def test_another_kind_is_not_kept(request_: RemotingCommand) -> None:
    server = registered()
    prepared = PreparedHeartbeats(server.server, ORIGIN)
    keep(prepared, server, frame_of(request_))
    assert prepared.answer(frame_of(request_)) is None


def test_where_the_header_ends_is_a_part_of_what_is_said() -> None:
    server, prepared = filled()
    frame = frame_of(a_heartbeat(RequestCode.QUERY_DATA_VERSION))
    for header_bytes in range(len(frame)):
        assert (prepared.answer(header_bytes.to_bytes(4, "big") + frame[4:]) is not None) == (
            header_bytes == int.from_bytes(frame[:4], "big")
        )
    assert assert_as_in_general(server, prepared, frame)


def test_a_body_that_means_nothing_is_no_matter() -> None:
    server = registered()
    prepared = PreparedHeartbeats(server.server, ORIGIN)
    frame = frame_of(a_heartbeat(body=b"no version"))
    keep(prepared, server, frame)
    assert assert_as_in_general(server, prepared, frame)


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":904,"extFields":{"opaque":7,"x":"y"%b},"version":479}',
        b'{/*"opaque":7,*/"code":904,"extFields":{"x":"y"%b},"version":479}',
        b'{"code":904,"extFields":{"x":"y"%b},"opaque":7,"\\u006fpaque":0,"version":479}',
        b'{"code":904,"extFields":{"x":"y"%b},"opaque": 7,"version":479}',
    ],
    ids=["ext field", "comment", "overridden", "space"],
)
def test_a_number_that_is_not_plainly_the_opaque_is_not_kept(header: bytes) -> None:
    fields = b"".join(b',"%b":"%b"' % (k.encode(), v.encode()) for k, v in a_broker_header().items())
    header = header % fields
    frame = len(header).to_bytes(4, "big") + header
    server = registered()
    prepared = PreparedHeartbeats(server.server, ORIGIN)
    request = decode_frame(frame)
    response = server.send(request).response
    assert response.code == ResponseCode.SUCCESS
    prepared.keep(frame, request, response)
    assert prepared.answer(frame) is None


def test_of_a_broker_one_form_is_kept_and_of_strangers_none() -> None:
    server = registered()
    prepared = PreparedHeartbeats(server.server, ORIGIN)
    versions = [VERSION.replace(b'"counter":1', b'"counter":%d' % n) for n in range(1, 5)]
    frames = [frame_of(a_heartbeat(RequestCode.QUERY_DATA_VERSION, body=body)) for body in versions]
    for frame in frames:
        keep(prepared, server, frame)
    assert [prepared.answer(frame) is not None for frame in frames] == [False, False, False, True]
    stranger = frame_of(a_heartbeat(ext_fields=a_broker_header("10.0.0.9:1", brokerName="b9")))
    keep(prepared, server, stranger)
    assert prepared.answer(stranger) is None
