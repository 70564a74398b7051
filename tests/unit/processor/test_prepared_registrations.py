"""Registrations that say nothing new do and get what they would do and get in general, as far as that is right."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.processor.name_server import Accepted
from namesrv_stream.processor.prepared_registrations import PreparedRegistrations
from namesrv_stream.remoting.acl import ACCESS_KEY, SIGNATURE
from namesrv_stream.remoting.codes import ONEWAY_FLAG, RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import Frame, decode_frame, encode_frame
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from namesrv_stream.route.events import BrokerHeartbeat, Origin, Proof
from tests.support.examples import examples
from tests.support.name_server import (
    MASTER,
    SLAVE,
    Exchange,
    a_body,
    a_broker_header,
    a_registration_request,
    a_topic,
)
from tests.support.strategies_remoting import mutations

ORIGIN = Origin("s1", 1, 1)
TOPICS = {"TopicTest": a_topic(), "Other": a_topic()}


def a_frame(
    stamp: int = 1, *, opaque: int = 7, crc: bool = True, addr: str = MASTER, broker_id: int = 0, **body: int
) -> bytes:
    request = a_registration_request(addr, broker_id, body=a_body(TOPICS, stamp=stamp, **body))
    said = zlib.crc32(request.body or b"") & 0x7FFFFFFF if crc else 0
    fields = {**(request.ext_fields or {}), "bodyCrc32": str(said)}
    return encode_frame(replace(request, opaque=opaque, ext_fields=fields))[4:]


def keep(prepared: PreparedRegistrations, server: Exchange, frame: Frame) -> None:
    request = decode_frame(frame)
    prepared.keep(frame, request, server.send(request).response)


def registered() -> tuple[Exchange, PreparedRegistrations]:
    server = Exchange()
    prepared = PreparedRegistrations(server.server, ORIGIN)
    for _ in range(2):  # the second one changes nothing, which is remembered
        keep(prepared, server, a_frame())
    return server, prepared


@cache
def filled() -> tuple[Exchange, PreparedRegistrations]:
    return registered()


def general(server: Exchange, frame: Frame) -> tuple[bytes, tuple[Accepted, ...]]:
    """What the general path answers, and what it accepts."""
    answer = server.send(decode_frame(frame))
    return encode_frame(answer.response), answer.accepted


def assert_as_in_general(server: Exchange, prepared: PreparedRegistrations, frame: Frame) -> bool:
    said = prepared.answer(frame, server.now_ms)
    if said is not None:
        assert (said.answer, (Accepted(said.heartbeat, None),)) == general(server, frame)
        assert said.code == RequestCode.REGISTER_BROKER
    return said is not None


def test_one_that_says_nothing_new_is_a_sign_of_life() -> None:
    server, prepared = registered()
    said = prepared.answer(bytearray(a_frame(2)), server.now_ms)
    assert said is not None
    assert isinstance(said.heartbeat, BrokerHeartbeat)
    assert said.heartbeat.proof is Proof.REGISTRATION
    assert assert_as_in_general(server, prepared, a_frame(3))


@settings(max_examples=examples(100))
@given(st.integers(0, 2**31 - 1) | st.integers(0, 20), st.integers(0, 10**15), st.booleans())
def test_any_opaque_and_stamp_are_answered_as_in_general(opaque: int, stamp: int, crc: bool) -> None:
    assert assert_as_in_general(*filled(), a_frame(stamp, opaque=opaque, crc=crc))


@settings(max_examples=examples(500))
@given(mutations(st.builds(a_frame, st.integers(0, 1_000))))
def test_mutated_frame_is_never_answered_otherwise_than_in_general(frame: bytes) -> None:
    assert_as_in_general(*registered(), frame)


def test_a_body_that_is_damaged_is_left_to_the_general_path() -> None:
    server, prepared = registered()
    frame = a_frame(2)
    damaged = frame[:-3] + bytes([frame[-3] ^ 1]) + frame[-2:]
    assert prepared.answer(damaged, server.now_ms) is None
    assert general(server, damaged)[1] == ()


def test_a_topic_that_changed_is_left_to_the_general_path() -> None:
    server, prepared = registered()
    assert prepared.answer(a_frame(2, counter=2), server.now_ms) is None
    assert prepared.answer(a_frame(2), server.now_ms) is not None


def leave(server: Exchange) -> None:
    server.send(RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header()))


def order_topics(server: Exchange) -> None:
    fields = {"namespace": ORDER_TOPIC_CONFIG, "key": "TopicTest", "value": "broker-a:4"}
    server.send(RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields))


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.sampled_from(
            [
                lambda server: general(server, a_frame()),
                lambda server: general(server, a_frame(counter=2)),
                lambda server: general(server, a_frame(addr=SLAVE, broker_id=1)),
                lambda server: server.close(1),
                leave,
                order_topics,
                lambda server: server.server.memory.wanted.update(server.server.memory.settled),
                lambda server: setattr(server, "now_ms", server.now_ms + 50_000_000),
                lambda server: server.server.reconfigure({"return_order_topic_config_to_broker": False}),
            ]
        ),
        max_size=8,
    )
)
def test_whatever_becomes_of_the_broker_is_seen(steps: list[Callable[[Exchange], object]]) -> None:
    server, prepared = registered()
    for number, step in enumerate(steps):
        step(server)
        assert_as_in_general(server, prepared, a_frame(number))
        assert_as_in_general(server, prepared, a_frame(number, counter=2))


def test_a_slave_is_told_its_master() -> None:
    server, prepared = registered()
    slave = a_frame(addr=SLAVE, broker_id=1)
    keep(prepared, server, slave)
    keep(prepared, server, slave)
    said = prepared.answer(slave, server.now_ms)
    assert said is not None
    assert (decode_frame(said.answer[4:]).ext_fields or {})["masterAddr"] == MASTER
    leave(server)
    assert not assert_as_in_general(server, prepared, slave)


def test_what_a_slave_is_told_of_its_master_may_not_fit() -> None:
    server = Exchange()
    prepared = PreparedRegistrations(server.server, ORIGIN)
    far = a_registration_request(body=a_body(TOPICS))
    fields = {**(far.ext_fields or {}), "haServerAddr": "\u2028" * 150_000}  # twice as long where it is written
    server.send(replace(far, ext_fields=fields))
    slave = a_frame(addr=SLAVE, broker_id=1)
    for _ in range(2):
        request = decode_frame(slave)
        response = server.send(request).response
        with pytest.raises(ValueError, match="exceeds"):
            encode_frame(response)
        prepared.keep(slave, request, response)
    assert prepared.answer(slave, server.now_ms) is None


def test_one_that_is_due_is_logged_in_full() -> None:
    server, prepared = registered()
    server.now_ms += server.server.options.full_registration_interval_ms
    assert prepared.answer(a_frame(2), server.now_ms) is None
    assert general(server, a_frame(2))[1][0].applied is not None
    assert assert_as_in_general(server, prepared, a_frame(3))


def test_another_connection_knows_nothing_of_it() -> None:
    server, _ = registered()
    assert PreparedRegistrations(server.server, ORIGIN).answer(a_frame(), server.now_ms) is None


def a_request(**changes: object) -> RemotingCommand:
    return replace(decode_frame(a_frame()), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "request_",
    [
        a_request(flag=ONEWAY_FLAG),
        a_request(serialize_type=SerializeType.ROCKETMQ),
        a_request(code=RequestCode.BROKER_HEARTBEAT),
        a_request(ext_fields={k: v for k, v in (a_request().ext_fields or {}).items() if k != "bodyCrc32"}),
        a_request(ext_fields={**(a_request().ext_fields or {}), ACCESS_KEY: "a", SIGNATURE: "b"}),
        a_request(ext_fields={**(a_request().ext_fields or {}), "x": "y" * 3_000}),
    ],
    ids=["oneway", "RocketMQ's serialisation", "another code", "no checksum", "signed", "long header"],
)
def test_another_kind_is_not_kept(request_: RemotingCommand) -> None:
    server, _ = registered()
    prepared = PreparedRegistrations(server.server, ORIGIN)
    frame = encode_frame(request_)[4:]
    keep(prepared, server, frame)
    assert prepared.answer(frame, server.now_ms) is None


def test_a_registration_that_was_refused_is_not_kept() -> None:
    server = Exchange()
    prepared = PreparedRegistrations(server.server, ORIGIN)
    frame = encode_frame(a_request(ext_fields=a_broker_header(clusterName=None) | {"bodyCrc32": "0"}))[4:]
    assert decode_frame(general(server, frame)[0][4:]).code == ResponseCode.SYSTEM_ERROR
    keep(prepared, server, frame)
    assert prepared.answer(frame, server.now_ms) is None


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":103,"extFields":{%b,"bodyCrc32":"0"},"opaque":7,"\\u006fpaque":0,"version":479}',
        b'{"code":103,"extFields":{%b,"bodyCrc32":"0","bodyCrc3\\u0032":"0"},"opaque":7,"version":479}',
        b'{/*"bodyCrc32":"0","opaque":7,*/"code":103,"extFields":{%b},"version":479}',
        b'{"code":103,"x":{"bodyCrc32":"0"},"extFields":{%b},"opaque":7,"version":479}',
        b'{"code":103,"extFields":{%b,"bodyCrc32":"00"},"opaque":7,"version":479}',
    ],
    ids=["opaque overridden", "checksum overridden", "comment", "another object", "not canonical"],
)
def test_numbers_that_are_not_plainly_these_are_not_kept(header: bytes) -> None:
    fields = b",".join(b'"%b":"%b"' % (k.encode(), v.encode()) for k, v in a_broker_header().items())
    header %= fields
    frame = len(header).to_bytes(4, "big") + header + a_body(TOPICS)
    server = Exchange()
    prepared = PreparedRegistrations(server.server, ORIGIN)
    for _ in range(2):
        request = decode_frame(frame)
        response = server.send(request).response
        assert response.code == ResponseCode.SUCCESS
        prepared.keep(frame, request, response)
    assert prepared.answer(frame, server.now_ms) is None
