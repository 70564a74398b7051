"""The fast path of route queries against the general path, byte for byte."""

from dataclasses import replace
from functools import cache

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.processor import prepared as prepared_module
from namesrv_stream.processor.name_server import Options
from namesrv_stream.processor.prepared import PreparedAnswers
from namesrv_stream.remoting.codes import ONEWAY_FLAG, LanguageCode, RequestCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand, response_to
from namesrv_stream.remoting.frame import decode_frame, encode_frame
from tests.support.examples import examples
from tests.support.name_server import Exchange, a_body, a_registration_request, a_route_request, a_topic
from tests.support.strategies_remoting import mutations
from tests.vectors.captured import captured_frames


def a_server() -> Exchange:
    return server_with(("TopicTest", "Other"))


def server_with(topics: tuple[str, ...]) -> Exchange:
    """A server on which every one of ``topics`` has a route."""
    server = Exchange(Options())
    server.send(a_registration_request(body=a_body({t: a_topic() for t in (*topics, "baseTopic")})))
    return server


def general(server: Exchange, frame: bytes) -> bytes:
    """The answer of the general path to a frame without its prefix."""
    return encode_frame(server.send(decode_frame(frame)).response)


def keep(prepared: PreparedAnswers, server: Exchange, frame: bytes) -> None:
    request = decode_frame(frame)
    prepared.keep(frame, request, server.send(request).response)


def frame_of(request: RemotingCommand) -> bytes:
    return encode_frame(request)[4:]


def with_header(header: bytes, body: bytes = b"") -> bytes:
    return len(header).to_bytes(4, "big") + header + body


@cache
def route_frames() -> tuple[bytes, ...]:
    """The captured route queries, which differ in more than their opaque."""
    frames = [c.frame for c in captured_frames() if c.from_peer]
    return tuple(f for f in frames if decode_frame(f).code == RequestCode.GET_ROUTEINFO_BY_TOPIC)


def captured_server() -> Exchange:
    topics = {(decode_frame(f).ext_fields or {})["topic"] for f in route_frames()}
    return server_with(tuple(sorted(t for t in topics if t)))


def other_opaque(frame: bytes, opaque: int) -> bytes:
    """The frame with another number for its opaque, other than that as its peer wrote it."""
    at = frame.index(b'"opaque":') + len(b'"opaque":')
    return with_header(frame[4:at] + str(opaque).encode() + frame[frame.index(b",", at) :])


# ---- equal to the general path ----


def test_every_captured_route_query_is_answered_prepared_as_in_general() -> None:
    server, prepared = captured_server(), PreparedAnswers()
    for frame in route_frames():
        keep(prepared, server, frame)

    assert len(route_frames()) > 400
    for frame in route_frames():
        assert prepared.answer(frame) == general(server, frame)


@cache
def filled() -> tuple[Exchange, PreparedAnswers]:
    server, prepared = captured_server(), PreparedAnswers()
    for frame in route_frames():
        keep(prepared, server, frame)
    return server, prepared


@settings(max_examples=examples(200))
@given(st.sampled_from(route_frames()), st.integers(0, 2**31 - 1) | st.integers(0, 20))
def test_any_opaque_of_nine_digits_is_answered_prepared_as_in_general(frame: bytes, opaque: int) -> None:
    server, prepared = filled()
    asked = other_opaque(frame, opaque)

    answer = prepared.answer(asked)

    assert answer is not None
    assert answer == general(server, asked)
    assert decode_frame(answer[4:]).opaque == opaque


@settings(max_examples=examples(100))
@given(st.sampled_from(route_frames()), st.integers(2**31, 2**40) | st.integers(-(2**31), -1))
def test_too_large_and_negative_opaques_are_left_to_the_general_path(frame: bytes, opaque: int) -> None:
    _, prepared = filled()
    asked = other_opaque(frame, opaque)

    assert prepared.answer(asked) is None


@settings(max_examples=examples(500))
@given(mutations(st.sampled_from(route_frames())))
def test_mutated_frame_is_never_answered_otherwise_than_in_general(frame: bytes) -> None:
    server, prepared = filled()
    answer = prepared.answer(frame)
    if answer is not None:
        assert answer == general(server, frame)


# ---- headers in which "opaque": is not what it seems ----

NUMBER = b"NUMBER"
TRICKY = {
    "ext field and none behind": b'{"code":105,"extFields":{"opaque":NUMBER,"topic":"TopicTest"},"version":479}',
    "ext field and another behind": b'{"code":105,"extFields":{"opaque":NUMBER,"topic":"TopicTest"},"opaque":5,"v":1}',
    "in a comment": b'{/*"opaque":NUMBER,*/"code":105,"extFields":{"topic":"TopicTest"},"version":479}',
    "in single quotes": b"""{"code":105,"extFields":{"topic":"TopicTest",'x':'"opaque":NUMBER,'},"version":479}""",
    "overridden behind": b'{"code":105,"extFields":{"topic":"TopicTest"},"opaque":NUMBER,"\\u006fpaque":0,"v":1}',
    "overridden in front": b'{"\\u006fpaque":0,"code":105,"extFields":{"topic":"TopicTest"},"opaque":NUMBER,"v":1}',
    "in an object": b'{"code":105,"extFields":{"topic":"TopicTest"},"x":{"opaque":NUMBER,"y":1},"version":479}',
    "space before": b'{"code":105,"extFields":{"topic":"TopicTest"},"opaque": NUMBER,"version":479}',
    "space behind": b'{"code":105,"extFields":{"topic":"TopicTest"},"opaque":NUMBER ,"version":479}',
    "colon apart": b'{"code":105,"extFields":{"topic":"TopicTest"},"opaque" :NUMBER,"version":479}',
    "text": b'{"code":105,"extFields":{"topic":"TopicTest"},"opaque":"NUMBER","version":479}',
    "last": b'{"code":105,"extFields":{"topic":"TopicTest"},"version":479,"opaque":NUMBER}',
    "bare topic key": b'{"code":105,"extFields":{topic:"TopicTest"},"opaque":NUMBER,"version":479}',
    "first": b'{"opaque":NUMBER,"code":105,"extFields":{"topic":"TopicTest"},"version":479}',
}


@pytest.mark.parametrize("case", TRICKY)
@pytest.mark.parametrize("kept_with", ["0", "5"])
def test_tricky_header_is_never_answered_otherwise_than_in_general(case: str, kept_with: str) -> None:
    server, prepared = a_server(), PreparedAnswers()
    keep(prepared, server, with_header(TRICKY[case].replace(NUMBER, kept_with.encode())))

    for number in (b"0", b"5", b"7", b"007", b"-7", b"1_0", b"2147483648", b"99999999999", b"7.0", b"1e2", b""):
        asked = with_header(TRICKY[case].replace(NUMBER, number))
        answer = prepared.answer(asked)
        if answer is not None:
            assert answer == general(server, asked)


@pytest.mark.parametrize(
    "case", [c for c in TRICKY if c not in {"first", "last", "overridden in front", "bare topic key"}]
)
def test_header_whose_number_is_not_plainly_the_opaque_is_not_kept(case: str) -> None:
    server, prepared = a_server(), PreparedAnswers()
    frame = with_header(TRICKY[case].replace(NUMBER, b"0"))

    keep(prepared, server, frame)

    assert prepared.answer(frame) is None


def test_leading_zeros_are_left_to_the_general_path() -> None:
    server, prepared = a_server(), PreparedAnswers()
    keep(prepared, server, frame_of(a_route_request()))

    assert prepared.answer(other_opaque(frame_of(a_route_request()), 7)) is not None
    asked = frame_of(a_route_request()).replace(b'"opaque":7', b'"opaque":07')
    assert prepared.answer(with_header(asked[4:])) is None


def test_number_beyond_32_bits_closes_the_connection_though_the_query_is_kept() -> None:
    server, prepared = a_server(), PreparedAnswers()
    keep(prepared, server, frame_of(a_route_request()))
    asked = other_opaque(frame_of(a_route_request()), 1 << 31)

    assert prepared.answer(asked) is None
    with pytest.raises(HeaderDecodeError):
        decode_frame(asked)


# ---- what is not kept ----

PLAIN = a_route_request()
NOT_KEPT = {
    "another code": replace(PLAIN, code=RequestCode.GET_BROKER_CLUSTER_INFO),
    "oneway": replace(PLAIN, flag=ONEWAY_FLAG),
    "binary": replace(PLAIN, serialize_type=SerializeType.ROCKETMQ),
    "an error": a_route_request("NoSuchTopic"),
    "a body": replace(PLAIN, body=b"x"),
    "a negative opaque": replace(PLAIN, opaque=-1),
    "an ext field of that name": a_route_request(opaque="7"),
}


@pytest.mark.parametrize("case", NOT_KEPT)
def test_query_of_another_kind_is_not_kept(case: str) -> None:
    server, prepared = a_server(), PreparedAnswers()
    frame = frame_of(NOT_KEPT[case])

    keep(prepared, server, frame)

    assert prepared.answer(frame) is None


@pytest.mark.parametrize("case", [c for c in NOT_KEPT if c != "a negative opaque"])
def test_kept_query_does_not_answer_one_of_another_kind(case: str) -> None:
    server, prepared = a_server(), PreparedAnswers()
    keep(prepared, server, frame_of(PLAIN))

    assert prepared.answer(frame_of(PLAIN)) is not None
    assert prepared.answer(frame_of(NOT_KEPT[case])) is None


@pytest.mark.parametrize(
    "other",
    [
        a_route_request("Other"),
        a_route_request(version=317),
        a_route_request(acceptStandardJsonOnly="true"),
        a_route_request(__ZONE_MODE="true", __ZONE_NAME="z1"),
        replace(PLAIN, language=LanguageCode.GO),
        replace(PLAIN, remark="r"),
    ],
)
def test_queries_that_differ_in_more_than_their_opaque_share_no_answer(other: RemotingCommand) -> None:
    server, prepared = a_server(), PreparedAnswers()
    keep(prepared, server, frame_of(PLAIN))
    assert prepared.answer(frame_of(other)) is None
    keep(prepared, server, frame_of(other))

    assert prepared.answer(frame_of(other)) == general(server, frame_of(other))
    assert prepared.answer(frame_of(PLAIN)) == general(server, frame_of(PLAIN))


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\0\0\0", b'"opaque":', b'\0\0\0\x09"opaque":', b'"opaque":7,' * 3])
def test_garbage_is_left_to_the_general_path(frame: bytes) -> None:
    assert PreparedAnswers().answer(frame) is None


def test_header_length_that_is_not_the_frames_is_left_to_the_general_path() -> None:
    server, prepared = a_server(), PreparedAnswers()
    frame = frame_of(PLAIN)
    keep(prepared, server, frame)

    assert prepared.answer((len(frame) - 5).to_bytes(4, "big") + frame[4:]) is None
    assert prepared.answer(frame + b"x") is None


# ---- forgetting ----


def test_answers_about_a_topic_are_forgotten_and_others_stay() -> None:
    server, prepared = a_server(), PreparedAnswers()
    asked = [frame_of(a_route_request(t, v)) for t in ("TopicTest", "Other") for v in (317, 479)]
    for frame in asked:
        keep(prepared, server, frame)

    prepared.invalidate({"TopicTest", "Unknown"})

    assert [prepared.answer(f) is None for f in asked] == [True, True, False, False]


def test_answer_kept_anew_is_the_new_one() -> None:
    server, prepared = a_server(), PreparedAnswers()
    frame = frame_of(PLAIN)
    keep(prepared, server, frame)
    before = prepared.answer(frame)
    prepared.invalidate({"TopicTest"})
    server.send(a_registration_request(body=a_body({"TopicTest": a_topic(perm=4), "b": a_topic()}, counter=2)))
    keep(prepared, server, frame)

    assert before != prepared.answer(frame) == general(server, frame)


def test_clear_forgets_all() -> None:
    server, prepared = a_server(), PreparedAnswers()
    keep(prepared, server, frame_of(PLAIN))

    prepared.clear()

    assert prepared.answer(frame_of(PLAIN)) is None


def test_memory_is_bounded_whatever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 20_000
    monkeypatch.setattr(prepared_module, "_MAX_BYTES", limit)
    server, prepared = a_server(), PreparedAnswers()
    frames = [frame_of(a_route_request(note="x" * (n % 50), n=str(n))) for n in range(300)]

    for n, frame in enumerate(frames):
        keep(prepared, server, frame)
        if n % 37 == 0:
            prepared.invalidate({"TopicTest"})
        held = [f for f in frames[: n + 1] if prepared.answer(f) is not None]
        # The answer's frame repeats its key's opaque; both ends of it are counted.
        assert sum(len(f) + len(prepared.answer(f) or b"") for f in held) <= limit + 8 * len(held)


def test_answer_larger_than_all_memory_is_forgotten_with_the_next() -> None:
    prepared = PreparedAnswers()
    huge = replace(response_to(PLAIN, 0), body=bytes(65 << 20))
    other = a_route_request("Other")

    prepared.keep(frame_of(PLAIN), PLAIN, huge)
    prepared.keep(frame_of(other), other, response_to(other, 0, body=b"{}"))

    assert prepared.answer(frame_of(PLAIN)) is None
    assert prepared.answer(frame_of(other)) is not None


def test_go_clients_header_is_kept_too() -> None:
    # Its own order of properties, and no serializeTypeCurrentRPC.
    header = orjson.dumps(
        {
            "code": 105,
            "language": "GO",
            "version": 317,
            "opaque": 3,
            "flag": 0,
            "remark": "",
            "extFields": {"topic": "Other"},
        }
    )
    server, prepared = a_server(), PreparedAnswers()
    keep(prepared, server, with_header(header))

    asked = with_header(header.replace(b'"opaque":3', b'"opaque":1234'))
    assert prepared.answer(asked) == general(server, asked)
