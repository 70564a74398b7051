"""The fast path of route queries against the general path, byte for byte."""

from dataclasses import replace
from functools import cache

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.processor import prepared as prepared_module
from namesrv_stream.processor.known_answers import AnswersInMemory
from namesrv_stream.processor.name_server import Options
from namesrv_stream.processor.prepared import PreparedAnswers
from namesrv_stream.remoting.codes import ONEWAY_FLAG, LanguageCode, RequestCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame, encode_frame
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from tests.support.examples import examples
from tests.support.name_server import Exchange, a_body, a_registration_request, a_route_request, a_topic
from tests.support.strategies_remoting import mutations
from tests.vectors.captured import captured_frames


def a_server() -> Exchange:
    return server_with(("TopicTest", "Other"))


def prepared_server() -> tuple[Exchange, PreparedAnswers]:
    server = a_server()
    return server, PreparedAnswers(server.server)


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
    server = captured_server()
    prepared = PreparedAnswers(server.server)
    for frame in route_frames():
        keep(prepared, server, frame)

    assert len(route_frames()) > 400
    for frame in route_frames():
        assert prepared.answer(frame) == general(server, frame)


@cache
def filled() -> tuple[Exchange, PreparedAnswers]:
    server = captured_server()
    prepared = PreparedAnswers(server.server)
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


# ---- asked again ----


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["TopicTest", "Other", "NoSuchTopic"]),
            st.sampled_from(["0", "7", "07", "12", "-3", "2147483647", "2147483648", "9999999999", "1e3", "", "1 "]),
        )
        | st.booleans(),
        min_size=2,
        max_size=30,
    )
)
def test_whatever_is_asked_again_and_again_is_answered_as_in_general(asked: list[tuple[str, str] | bool]) -> None:
    """A truth value is a registration, which changes the route of a topic if it is another than before."""
    server, prepared = prepared_server()
    keep(prepared, server, frame_of(PLAIN))
    answered = 0
    for counter, one in enumerate(asked, 2):
        if isinstance(one, bool):
            topics = {"TopicTest": a_topic(perm=4 if one else 6), "Other": a_topic()}
            server.send(a_registration_request(body=a_body(topics, counter=counter)))
            continue
        topic, number = one
        frame = frame_of(a_route_request(topic)).replace(b'"opaque":7', b'"opaque":' + number.encode())
        frame = with_header(frame[4:])
        answer = prepared.answer(frame)
        if answer is not None:
            answered += 1
            assert answer == general(server, frame)
    numbers = [one[1] for one in asked if not isinstance(one, bool) and one[0] != "NoSuchTopic"]
    assert answered == sum(number in {"0", "7", "12", "2147483647"} for number in numbers)


def test_an_order_of_queues_that_changes_is_told_though_the_question_is_known() -> None:
    server = Exchange(Options(order_message_enable=True))
    server.send(a_registration_request(body=a_body({"TopicTest": a_topic(), "baseTopic": a_topic()})))
    prepared = PreparedAnswers(server.server)
    frame = frame_of(PLAIN)
    keep(prepared, server, frame)
    before = [prepared.answer(frame), prepared.answer(frame)]
    order = {"namespace": ORDER_TOPIC_CONFIG, "key": "TopicTest", "value": "broker-a:4"}
    server.send(RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=order))

    assert prepared.answer(frame) == general(server, frame)
    assert prepared.answer(frame) not in before


def test_known_answers_are_bounded_whatever_is_asked() -> None:
    server, _ = prepared_server()
    known = AnswersInMemory(3_000)
    prepared = PreparedAnswers(server.server, known)
    keep(prepared, server, frame_of(PLAIN))
    most = 0
    for digits in range(1, 10):
        for topic in ("TopicTest", "Other", "baseTopic"):
            asked = other_opaque(frame_of(a_route_request(topic)), 10**digits - 1)
            assert prepared.answer(asked) == prepared.answer(asked) == general(server, asked)
            most = max(most, known.known_bytes)
    assert 2_000 < most < 4_000, "one more than fits"


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
    server, prepared = prepared_server()
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
    server, prepared = prepared_server()
    frame = with_header(TRICKY[case].replace(NUMBER, b"0"))

    keep(prepared, server, frame)

    assert prepared.answer(frame) is None


def test_leading_zeros_are_left_to_the_general_path() -> None:
    server, prepared = prepared_server()
    keep(prepared, server, frame_of(a_route_request()))

    assert prepared.answer(other_opaque(frame_of(a_route_request()), 7)) is not None
    asked = frame_of(a_route_request()).replace(b'"opaque":7', b'"opaque":07')
    assert prepared.answer(with_header(asked[4:])) is None


def test_number_beyond_32_bits_closes_the_connection_though_the_query_is_kept() -> None:
    server, prepared = prepared_server()
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
    server, prepared = prepared_server()
    frame = frame_of(NOT_KEPT[case])

    keep(prepared, server, frame)

    assert prepared.answer(frame) is None


@pytest.mark.parametrize("case", [c for c in NOT_KEPT if c != "a negative opaque"])
def test_kept_query_does_not_answer_one_of_another_kind(case: str) -> None:
    server, prepared = prepared_server()
    keep(prepared, server, frame_of(PLAIN))

    assert prepared.answer(frame_of(PLAIN)) is not None
    assert prepared.answer(frame_of(NOT_KEPT[case])) is None


@pytest.mark.parametrize(
    "other",
    [
        a_route_request(version=317),
        a_route_request(acceptStandardJsonOnly="true"),
        a_route_request(__ZONE_MODE="true", __ZONE_NAME="z1"),
        replace(PLAIN, language=LanguageCode.GO),
        replace(PLAIN, remark="r"),
    ],
)
def test_queries_that_differ_in_more_than_topic_and_opaque_share_no_form(other: RemotingCommand) -> None:
    server, prepared = prepared_server()
    keep(prepared, server, frame_of(PLAIN))
    assert prepared.answer(frame_of(other)) is None
    keep(prepared, server, frame_of(other))

    assert prepared.answer(frame_of(other)) == general(server, frame_of(other))
    assert prepared.answer(frame_of(PLAIN)) == general(server, frame_of(PLAIN))


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\0\0\0", b'"opaque":', b'\0\0\0\x09"opaque":', b'"opaque":7,' * 3])
def test_garbage_is_left_to_the_general_path(frame: bytes) -> None:
    assert PreparedAnswers(a_server().server).answer(frame) is None


def test_header_length_that_is_not_the_frames_is_left_to_the_general_path() -> None:
    server, prepared = prepared_server()
    frame = frame_of(PLAIN)
    keep(prepared, server, frame)

    assert prepared.answer((len(frame) - 5).to_bytes(4, "big") + frame[4:]) is None
    assert prepared.answer(frame + b"x") is None


# ---- the topic ----


@settings(max_examples=examples(100))
@given(
    st.sampled_from(route_frames()),
    st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(("Other", "a\\u0062", "\x7f", '"', "'", "{")),
)
def test_any_topic_is_answered_prepared_as_in_general_or_left_to_that(frame: bytes, topic: str) -> None:
    server = server_with(("Other", topic))
    prepared = PreparedAnswers(server.server)
    keep(prepared, server, other_topic(frame, b"Other"))
    asked = other_topic(frame, topic.encode())

    answer = prepared.answer(asked)

    assert answer is None or answer == general(server, asked)
    if topic.isascii() and topic.isprintable() and not set(topic) & {'"', "\\"}:
        assert answer is not None


def other_topic(frame: bytes, topic: bytes) -> bytes:
    """The frame with another text where its topic stands."""
    at = frame.index(b'"topic":"') + len(b'"topic":"')
    return with_header(frame[4:at] + topic + frame[frame.index(b'"', at) :])


TRICKY_TOPICS = {
    "in a comment": b'{/*"topic":"TopicTest",*/"code":105,"extFields":{topic:"Other"},"opaque":1,"version":479}',
    "in single quotes": b"""{"code":105,"extFields":{"x":'"topic":"TopicTest"',topic:"Other"},"opaque":1,"v":1}""",
    "not in the ext fields": b'{"topic":"TopicTest","code":105,"extFields":{topic:"Other"},"opaque":1,"version":479}',
    "overridden behind": b'{"code":105,"extFields":{"topic":"TopicTest","topic":"Other"},"opaque":1,"version":479}',
    "twice, escaped": b'{"code":105,"extFields":{"topic":"TopicTest","\\u0074opic":"Other"},"opaque":1,"version":479}',
}


@pytest.mark.parametrize("case", TRICKY_TOPICS)
def test_header_whose_text_is_not_plainly_the_topic_is_not_kept(case: str) -> None:
    server, prepared = prepared_server()

    keep(prepared, server, with_header(TRICKY_TOPICS[case]))

    assert prepared.answer(with_header(TRICKY_TOPICS[case])) is None


def test_a_topic_that_nobody_offers_is_left_to_the_general_path() -> None:
    server, prepared = prepared_server()
    keep(prepared, server, frame_of(PLAIN))

    assert prepared.answer(frame_of(a_route_request("NoSuchTopic"))) is None


def test_a_prepared_answer_is_that_of_now() -> None:
    server, prepared = prepared_server()
    frame = frame_of(PLAIN)
    keep(prepared, server, frame)
    before = prepared.answer(frame)
    server.send(a_registration_request(body=a_body({"TopicTest": a_topic(perm=4), "b": a_topic()}, counter=2)))

    assert before != prepared.answer(frame) == general(server, frame)


# ---- forgetting ----


def test_clear_forgets_all() -> None:
    server, prepared = prepared_server()
    keep(prepared, server, frame_of(PLAIN))

    prepared.clear()

    assert prepared.answer(frame_of(PLAIN)) is None


def test_forms_are_bounded_whatever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_module, "_MAX_FORMS", 10)
    server, prepared = prepared_server()
    frames = [frame_of(a_route_request(n=str(n))) for n in range(35)]

    for n, frame in enumerate(frames, 1):
        keep(prepared, server, frame)
        held = [f for f in frames[:n] if prepared.answer(f) is not None]
        assert len(held) <= 10
        assert frame in held


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
    server, prepared = prepared_server()
    keep(prepared, server, with_header(header))

    asked = with_header(header.replace(b'"opaque":3', b'"opaque":1234'))
    assert prepared.answer(asked) == general(server, asked)
