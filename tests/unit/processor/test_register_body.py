"""The body of REGISTER_BROKER. Source of the forms: rocketmq 5.3.3, RegisterBrokerBody."""

import random
import struct
import time
import zlib
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.processor.broker import registration_hash
from namesrv_stream.processor.register_body import (
    MAX_ENTRIES,
    MAX_INFLATED_BYTES,
    RegisterBrokerBody,
    RegistrationBody,
    decode_data_version,
    decode_inline,
    decode_register_body,
)
from namesrv_stream.remoting.command import V3_0_11, V5_0_0, RequestCode
from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader
from namesrv_stream.route.model import DataVersion, QueueData, TopicQueueMappingInfo
from tests.support.examples import examples
from tests.support.name_server import V5_3_3, a_body, a_topic
from tests.support.strategies_remoting import mutations
from tests.vectors.captured import captured_frames

V4_9_7 = 407

#: A plain body as fastjson writes RegisterBrokerBody: 449 bytes with the masked CRC 1038418621.
WORKED_EXAMPLE = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":17000'
    b'00000000},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{"TopicTe'
    b'st":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TopicTest"'
    b',"topicSysFlag":0,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
)
MAPPING = (
    b'{"bname":"b","currIdMap":{0:0,3:1},"dirty":true,"epoch":17,"scope":"__global__","topic":"static","totalQueues":4}'
)
HEADER = RegisterBrokerRequestHeader(
    "broker-a", "10.0.0.1:10911", "c0", "10.0.0.1:10912", 0, None, enable_acting_master=False, body_crc32=1
)


def decoded(body: bytes, *, compressed: bool = False, version: int = V5_3_3) -> RegisterBrokerBody:
    return decode_register_body(body, compressed=compressed, version=version)


def wrapped(wrapper: str) -> bytes:
    return b'{"filterServerList":[],"topicConfigSerializeWrapper":' + wrapper.encode() + b"}"


def one_topic(fields: str, key: str = "t") -> QueueData:
    (queue_data,) = decoded(wrapped(f'{{"topicConfigTable":{{"{key}":{fields}}}}}')).topics.values()
    return queue_data


def chunk(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def inflated(
    topics: tuple[str, ...] = ("TopicTest 8 4 6 SINGLE_TAG {}",), *, mappings: tuple[bytes, ...] | None = None
) -> bytes:
    parts = [chunk(b'{"counter":3,"stateVersion":1,"timestamp":5}'), struct.pack(">i", len(topics))]
    parts += [chunk(t.encode()) for t in topics]
    parts.append(chunk(b'["f:1"]'))
    if mappings is not None:
        parts.append(struct.pack(">i", len(mappings)))
        parts += [chunk(m) for m in mappings]
    return b"".join(parts)


@cache
def captured_registrations() -> tuple[tuple[RegisterBrokerRequestHeader, bytes, int], ...]:
    """Header, body and version of every captured 103."""
    commands = [c.command for c in captured_frames() if c.from_peer]
    return tuple(
        (RegisterBrokerRequestHeader.from_ext_fields(c.ext_fields), c.body or b"", c.version)
        for c in commands
        if c.code == RequestCode.REGISTER_BROKER
    )


# ---- uncompressed ----


def test_worked_example_of_the_reference_is_read() -> None:
    assert (len(WORKED_EXAMPLE), zlib.crc32(WORKED_EXAMPLE) & 0x7FFFFFFF) == (449, 1038418621)
    assert decoded(WORKED_EXAMPLE) == RegisterBrokerBody(
        DataVersion(3, 1_700_000_000_000, 0), {"TopicTest": QueueData(8, 8, 6, 0)}, {}, ()
    )


def test_no_body_is_an_empty_registration() -> None:
    assert decoded(b"") == RegisterBrokerBody(DataVersion(0, 0, 0), {}, {}, ())


def test_body_of_a_4x_broker_is_read() -> None:
    wrapper = '{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"t":{"perm":4,"topicName":"t"}}}'

    body = decoded(wrapped(wrapper), version=V4_9_7)

    assert (body.data_version, body.topics) == (DataVersion(1, 2, 0), {"t": QueueData(16, 16, 4, 0)})


def test_body_of_a_broker_before_3_0_11_has_only_topics_and_keeps_the_filter_servers() -> None:
    wrapper = b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"t":{"perm":4,"topicName":"t"}}}'

    body = decoded(wrapper, version=V3_0_11 - 1)

    assert (body.data_version, set(body.topics), body.filter_servers) == (DataVersion(1, 2, 0), {"t"}, None)


def test_body_of_a_3_0_11_broker_is_read_in_full() -> None:
    assert decoded(WORKED_EXAMPLE, version=V3_0_11).topics.keys() == {"TopicTest"}


@pytest.mark.parametrize(
    "body", [b"{}", b'{"topicConfigSerializeWrapper":null}', b'{"topicConfigSerializeWrapper":{}}']
)
def test_absent_parts_are_empty(body: bytes) -> None:
    assert decoded(body) == RegisterBrokerBody(DataVersion(0, zlib.crc32(body), 0), {}, {}, ())


@pytest.mark.parametrize("version", ["", '"dataVersion":null,', '"dataVersion":{},', '"dataVersion":{"counter":0},'])
def test_different_bodies_without_a_data_version_have_different_versions(version: str) -> None:
    bodies = [wrapped(f'{{{version}"topicConfigTable":{{"t":{{"perm":{perm}}}}}}}') for perm in (4, 6, 6)]

    first, second, same = [decoded(body).data_version for body in bodies]

    assert first != second
    assert second == same


def test_null_filter_servers_keep_the_known_ones() -> None:
    assert decoded(b'{"filterServerList":null}').filter_servers is None


@pytest.mark.parametrize(
    "fields", ["{}", '{"perm":null,"readQueueNums":null,"writeQueueNums":null,"topicSysFlag":null}']
)
def test_topic_properties_that_are_absent_or_null_have_javas_defaults(fields: str) -> None:
    assert one_topic(fields) == QueueData(16, 16, 6, 0)


def test_name_inside_a_topic_has_priority_over_its_key() -> None:
    body = decoded(wrapped('{"topicConfigTable":{"key":{"topicName":"name"},"bare":{}}}'))

    assert body.topics.keys() == {"name", "bare"}


def test_numbers_may_be_text() -> None:
    fields = '{"perm":"4","readQueueNums":"3","writeQueueNums":"5","topicSysFlag":"1"}'

    assert one_topic(fields) == QueueData(3, 5, 4, 1)
    version = decoded(wrapped('{"dataVersion":{"counter":"7","stateVersion":"8","timestamp":"9"}}')).data_version
    assert version == DataVersion(7, 9, 8)


@pytest.mark.parametrize(
    "body",
    [
        b"{'topicConfigSerializeWrapper':{'topicConfigTable':{'t':{'perm':4}}}}",
        b"{topicConfigSerializeWrapper:{topicConfigTable:{t:{perm:4}}}}",
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":4,},},},}',
        b'/* c */{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":4}}}}',
        b'\xef\xbb\xbf{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":4}}}}',
    ],
    ids=["single quotes", "bare keys", "trailing commas", "comment", "byte order mark"],
)
def test_lenient_json_of_fastjson_is_read(body: bytes) -> None:
    assert decoded(body).topics == {"t": QueueData(16, 16, 4, 0)}


def test_static_topics_with_bare_integer_keys_are_read() -> None:
    body = decoded(wrapped('{"topicQueueMappingInfoMap":{"static":' + MAPPING.decode() + "}}"))

    assert body.topic_mappings == {
        "static": TopicQueueMappingInfo("static", "b", 4, 17, "__global__", True, {0: 0, 3: 1})
    }


def test_filter_servers_are_read() -> None:
    assert decoded(b'{"filterServerList":["f:1","f:2"]}').filter_servers == ("f:1", "f:2")


# ---- compressed ----


def test_compressed_body_of_a_4x_broker_is_read() -> None:
    body = decoded(zlib.compress(inflated(), 9), compressed=True, version=V5_0_0 - 1)

    assert body == RegisterBrokerBody(DataVersion(3, 5, 1), {"TopicTest": QueueData(8, 4, 6, 0)}, {}, ("f:1",))


def test_compressed_body_of_a_5x_broker_ends_with_static_topics() -> None:
    body = decoded(zlib.compress(inflated(mappings=(MAPPING,)), 9), compressed=True, version=V5_0_0)

    assert body.topic_mappings["static"].curr_id_map == {0: 0, 3: 1}


@pytest.mark.parametrize(
    ("text", "servers"),
    [(b'["10.1.1.1:1"]', ("10.1.1.1:1",)), (b"null", None), (b"", None), (b'["10.', ()), (b"{}", ()), (b"[[]]", ())],
)
def test_invalid_filter_servers_do_not_invalidate_a_compressed_body(
    text: bytes, servers: tuple[str, ...] | None
) -> None:
    body = inflated(mappings=()).replace(chunk(b'["f:1"]'), chunk(text))

    assert decoded(zlib.compress(body), compressed=True, version=V5_0_0).filter_servers == servers


def test_compressed_body_is_read_although_its_header_does_not_say_so() -> None:
    assert decoded(zlib.compress(inflated(mappings=()), 9)).topics == {"TopicTest": QueueData(8, 4, 6, 0)}


def test_topic_text_may_have_attributes_or_none() -> None:
    texts = ("a 1 2 6 SINGLE_TAG", 'b 1 2 6 SINGLE_TAG {"+a":"x y"}')

    assert decoded(zlib.compress(inflated(texts)), compressed=True, version=V4_9_7).topics.keys() == {"a", "b"}


def test_zlib_bomb_is_refused_with_bounded_memory() -> None:
    # 129 MiB of zeros, far above the limit; the inflater must stop at its limit.
    bomb = zlib.compressobj(1)
    body = b"".join([bomb.compress(bytes(1 << 20)) for _ in range(129)]) + bomb.flush()

    assert len(body) < 1 << 20
    with pytest.raises(BodyDecodeError, match=f"{MAX_INFLATED_BYTES} bytes"):
        decoded(body, compressed=True)


@pytest.mark.parametrize(
    ("body", "is_inline"),
    [
        (zlib.compress(inflated(mappings=(b"{}",) * 1_900), 9), True),
        (zlib.compress(inflated(mappings=(b"{}",) * 2_001), 9), False),
        (zlib.compress(inflated(("t 4 4 6 SINGLE_TAG",) * 3_000), 9), False),
        (
            orjson.dumps(
                {"topicConfigSerializeWrapper": {"topicQueueMappingInfoMap": {str(n): {} for n in range(2_001)}}}
            ),
            False,
        ),
        (a_body({f"T{n}": a_topic() for n in range(700)}), True),
    ],
)
def test_a_body_is_decoded_on_the_event_loop_only_if_what_it_contains_is_small(body: bytes, is_inline: bool) -> None:
    assert len(body) < 1_000 or body[:1] == b"{"
    assert (decode_inline(RegistrationBody(body, False, V5_3_3)) is not None) == is_inline


# ---- malformed ----

WELL = zlib.compress(inflated(mappings=(MAPPING,)))

MALFORMED: dict[str, tuple[bytes, bool]] = {
    "not JSON": (b"hello", False),
    "not UTF-8": (b'{"a":"\xff"}', False),
    "JSON cut off": (WORKED_EXAMPLE[:-1], False),
    "text behind": (WORKED_EXAMPLE + b"x", False),
    "an array": (b"[]", False),
    "a number": (b"7", False),
    "nested too deeply": (b'{"a":' * 5_000, False),
    "wrapper is a list": (b'{"topicConfigSerializeWrapper":[1]}', False),
    "table is text": (wrapped('{"topicConfigTable":"t"}'), False),
    "topic is a list": (wrapped('{"topicConfigTable":{"t":[1]}}'), False),
    "topic is null": (wrapped('{"topicConfigTable":{"t":null}}'), False),
    "topic name is a number": (wrapped('{"topicConfigTable":{"t":{"topicName":7}}}'), False),
    "perm is a word": (wrapped('{"topicConfigTable":{"t":{"perm":"rw"}}}'), False),
    "perm is an object": (wrapped('{"topicConfigTable":{"t":{"perm":{}}}}'), False),
    "queues beyond 32 bits": (wrapped('{"topicConfigTable":{"t":{"readQueueNums":2147483648}}}'), False),
    "queues beyond double": (wrapped('{"topicConfigTable":{"t":{"readQueueNums":1e999}}}'), False),
    "counter beyond 64 bits": (wrapped('{"dataVersion":{"counter":9223372036854775808}}'), False),
    "data version is a list": (wrapped('{"dataVersion":[1]}'), False),
    "mapping is a number": (wrapped('{"topicQueueMappingInfoMap":{"t":7}}'), False),
    "currIdMap is a list": (wrapped('{"topicQueueMappingInfoMap":{"t":{"currIdMap":[1]}}}'), False),
    "currIdMap key is a word": (wrapped('{"topicQueueMappingInfoMap":{"t":{"currIdMap":{"a":1}}}}'), False),
    "filter servers are text": (b'{"filterServerList":"f:1"}', False),
    "not zlib": (b"{}", True),
    "zlib cut off": (WELL[:-5], True),
    "zlib checksum wrong": (WELL[:-1] + bytes([WELL[-1] ^ 1]), True),
    "empty zlib": (zlib.compress(b""), True),
    "chunk longer than the body": (zlib.compress(struct.pack(">i", 99) + b"{}"), True),
    "negative chunk": (zlib.compress(struct.pack(">i", -1)), True),
    "negative count": (zlib.compress(chunk(b"{}") + struct.pack(">i", -1)), True),
    "count beyond the body": (zlib.compress(chunk(b"{}") + struct.pack(">i", 0x7FFFFFFF)), True),
    "topic of four parts": (zlib.compress(inflated(("t 8 8 6",), mappings=())), True),
    "topic with a word for a number": (zlib.compress(inflated(("t 8 x 6 SINGLE_TAG",), mappings=())), True),
    "topic with an unknown filter type": (zlib.compress(inflated(("t 8 8 6 WHAT",), mappings=())), True),
    "topic beyond 32 bits": (zlib.compress(inflated(("t 8 2147483648 6 SINGLE_TAG",), mappings=())), True),
    "5.x without static topics": (zlib.compress(inflated()), True),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_body_is_a_body_decode_error(case: str) -> None:
    body, compressed = MALFORMED[case]

    with pytest.raises(BodyDecodeError) as raised:
        decoded(body, compressed=compressed)

    assert raised.value.request_code == RequestCode.REGISTER_BROKER
    assert len(str(raised.value)) < 1_000


@settings(max_examples=examples(400))
@given(st.data())
def test_mutated_captured_body_is_read_or_is_a_body_decode_error(data: st.DataObject) -> None:
    header, body, version = data.draw(st.sampled_from(captured_registrations()))
    mutated = data.draw(mutations(st.just(body)))
    try:
        result = decoded(mutated, compressed=header.compressed, version=version)
    except BodyDecodeError:
        return
    # What was read fits the event log and the tables' columns.
    assert all(-(2**31) <= n < 2**31 for q in result.topics.values() for n in q)
    assert all(-(2**63) <= n < 2**63 for n in result.data_version)


@settings(max_examples=examples(200))
@given(st.data())
def test_mutated_inflated_body_is_read_or_is_a_body_decode_error(data: st.DataObject) -> None:
    well = inflated(("TopicTest 8 4 6 SINGLE_TAG {}", "b 1 2 6 X"), mappings=(MAPPING, MAPPING))
    mutated = data.draw(mutations(st.just(well)))
    try:
        decoded(zlib.compress(mutated), compressed=True)
    except BodyDecodeError:
        return


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(
        st.sampled_from(
            ("topicConfigSerializeWrapper", "topicConfigTable", "topicQueueMappingInfoMap", "dataVersion", "counter",
             "filterServerList", "currIdMap", "epoch", "perm", "readQueueNums", "topicName", "t", "0")
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=examples(300))
@given(JSON_VALUES)
def test_json_of_any_shape_is_read_or_is_a_body_decode_error(value: Any) -> None:
    text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS) if _fits(value) else str(value).encode()
    for body in (text, b'{"topicConfigSerializeWrapper":' + text + b"}"):
        try:
            decoded(body)
        except BodyDecodeError:
            continue


def _fits(value: Any) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, list):
        return all(map(_fits, value))
    return all(map(_fits, value.values())) if isinstance(value, dict) else True


# ---- DataVersion ----


def test_data_version_is_read_and_absent_without_a_body() -> None:
    assert decode_data_version(b'{"counter":3,"stateVersion":1,"timestamp":5}') == DataVersion(3, 5, 1)
    assert decode_data_version(None) is None
    assert decode_data_version(b"") is None


@pytest.mark.parametrize("body", [b"x", b"[]", b'{"counter":"a"}', b'{"counter":[]}', b'{"counter":1e99}'])
def test_malformed_data_version_is_a_body_decode_error(body: bytes) -> None:
    with pytest.raises(BodyDecodeError) as raised:
        decode_data_version(body)

    assert raised.value.request_code == RequestCode.QUERY_DATA_VERSION


# ---- the hash ----


def test_captured_registrations_have_equal_hashes_only_if_their_content_is_equal() -> None:
    # Two registrations have equal content if header and body are equal except for CRC and sending time.
    by_hash: dict[str, set[object]] = {}
    by_content: dict[object, set[str]] = {}
    differing_bytes = 0
    for header, body, _ in captured_registrations():
        digest = registration_hash(header, body)
        content = (replace(header, body_crc32=0), _without_stamp(body))
        by_hash.setdefault(digest, set()).add(content)
        before = len(by_content.setdefault(content, set()))
        by_content[content].add(digest)
        differing_bytes += before == 1
    assert all(len(v) == 1 for v in by_hash.values())
    assert all(len(v) == 1 for v in by_content.values())
    assert differing_bytes >= 30  # periodic registrations of unchanged 5.x brokers


def _without_stamp(body: bytes) -> str | bytes:
    if body[:1] != b"{":
        return body
    fields = orjson.loads(body) if b'"currIdMap":{' not in body else None
    if fields is None:
        return body.split(b'"mappingDataVersion":')[0] + body.split(b'"topicConfigTable":')[1]
    fields["topicConfigSerializeWrapper"].pop("mappingDataVersion", None)
    return orjson.dumps(fields)


def test_checksum_and_stamp_are_not_hashed() -> None:
    same = registration_hash(replace(HEADER, body_crc32=5), a_body(stamp=1))

    assert registration_hash(HEADER, a_body(stamp=2)) == same


@pytest.mark.parametrize(
    "header",
    [
        replace(HEADER, broker_name="x"),
        replace(HEADER, broker_addr="x"),
        replace(HEADER, cluster_name="x"),
        replace(HEADER, ha_server_addr="x"),
        replace(HEADER, broker_id=1),
        replace(HEADER, heartbeat_timeout_millis=1),
        replace(HEADER, enable_acting_master=True),
        replace(HEADER, enable_acting_master=None),
        replace(HEADER, compressed=True),
        replace(HEADER, zone_name=""),
    ],
)
def test_every_other_header_field_is_hashed(header: RegisterBrokerRequestHeader) -> None:
    assert registration_hash(header, b"{}") != registration_hash(HEADER, b"{}")


def test_hash_separates_neighbouring_header_fields() -> None:
    one = replace(HEADER, broker_name="a', 'b", broker_addr="c")

    assert registration_hash(one, b"") != registration_hash(replace(HEADER, broker_name="a", broker_addr="b', 'c"), b"")


@settings(max_examples=examples(300))
@given(
    st.sampled_from((WORKED_EXAMPLE, a_body(), zlib.compress(inflated()))), st.integers(0, 10_000), st.integers(1, 255)
)
def test_hash_differs_for_any_other_byte_outside_the_stamp(body: bytes, at: int, xor: int) -> None:
    at %= len(body)
    stamp_at = body.find(b'"mappingDataVersion":{')
    if stamp_at >= 0 and stamp_at <= at <= body.index(b"}", stamp_at):
        return
    flipped = body[:at] + bytes([body[at] ^ xor]) + body[at + 1 :]

    assert registration_hash(HEADER, flipped) != registration_hash(HEADER, body)


def test_presence_of_the_stamp_is_hashed() -> None:
    without = WORKED_EXAMPLE.replace(
        b'"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},', b""
    )

    assert len(without) < len(WORKED_EXAMPLE)
    assert registration_hash(HEADER, without) != registration_hash(HEADER, WORKED_EXAMPLE)


@pytest.mark.parametrize(
    "topic",
    [
        'mappingDataVersion":{"perm":PERM,"topicName":"mappingDataVersion"},"x',
        'mappingDataVersion":{"perm":PERM},"x',
        'mappingDataVersion":{"counter":1,"perm":PERM},"x',
        'mappingDataVersion":{"counter":1,"stateVersion":2,"timestamp":3,"perm":PERM},"x',
    ],
)
def test_a_topic_named_like_the_stamp_is_hashed(topic: str) -> None:
    bodies = [wrapped('{"topicConfigTable":{"' + topic.replace("PERM", perm) + '":{}}}') for perm in ("4", "6")]

    assert decoded(bodies[0]).topics != decoded(bodies[1]).topics
    assert registration_hash(HEADER, bodies[0]) != registration_hash(HEADER, bodies[1])


def test_single_quoted_text_like_the_stamp_is_hashed() -> None:
    text = '"mappingDataVersion":{"counter":1,"stateVersion":2,"timestamp":N}'
    bodies = [wrapped("{'topicConfigTable':{'t':{'topicName':'" + text.replace("N", n) + "'}}}") for n in "12"]

    assert decoded(bodies[0]).topics.keys() != decoded(bodies[1]).topics.keys()
    assert registration_hash(HEADER, bodies[0]) != registration_hash(HEADER, bodies[1])


@settings(max_examples=examples(60))
@given(st.text(st.sampled_from('\\"{}:,mappingDataVersion0'), max_size=40), st.randoms(use_true_random=False))
def test_hashes_are_equal_only_for_equal_content_whatever_the_topic_names(name: str, random: random.Random) -> None:
    tricky = name + '"mappingDataVersion":{"counter":1,"stateVersion":2,"timestamp":' + str(random.randrange(3)) + "}"
    one = a_body({tricky: a_topic(), "b": a_topic()}, stamp=1)
    two = a_body({tricky[:-2] + str(random.randrange(3)) + "}": a_topic(), "b": a_topic()}, stamp=2)

    equal = registration_hash(HEADER, one) == registration_hash(HEADER, two)
    assert equal == (decoded(one) == decoded(two))


_STAMPED = b'"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":%d}'


@pytest.mark.parametrize(("filler", "is_left_out"), [(4_000, True), (4_050, False), (9_000, False)])
def test_a_stamp_is_not_hashed_only_if_it_is_within_the_first_4_kib(filler: int, is_left_out: bool) -> None:
    one, two = (b'{"a":"%b",%b}' % (b"x" * filler, _STAMPED % stamp) for stamp in (1, 2))
    assert (registration_hash(HEADER, one) == registration_hash(HEADER, two)) is is_left_out


def test_a_single_quote_after_the_first_4_kib_does_not_affect_the_stamp_before_it() -> None:
    one, two = (b'{%b,"a":"%b"}' % (_STAMPED % stamp, b"x" * 9_000 + b"'") for stamp in (1, 2))
    assert registration_hash(HEADER, one) == registration_hash(HEADER, two)


def test_hash_takes_linear_time_on_hostile_bodies() -> None:
    size = 1 << 22
    pieces = (
        b'"mappingDataVersion":{',
        b'"mappingDataVersion":{"counter":1,',
        b'"mappingDataVersion":{"counter":' + b"1" * 1_000,
        b'"a"',
        b'"mappingDataVersion":{"a""b""c"',
    )
    began = time.perf_counter()
    for piece in pieces:
        registration_hash(HEADER, piece * (size // len(piece)))
    registration_hash(HEADER, b'"mappingDataVersion":{"counter":' + b"1" * size)
    assert time.perf_counter() - began < 3.0


# ---- limits ----


@pytest.mark.parametrize("field", ["bname", "scope", "topic"])
def test_a_container_in_place_of_a_text_of_a_static_topic_is_refused(field: str) -> None:
    with pytest.raises(BodyDecodeError, match=f"{field} is not a string"):
        decoded(wrapped(f'{{"topicQueueMappingInfoMap":{{"t":{{"{field}":{{"a":1}}}}}}}}'))


def test_null_texts_of_a_static_topic_have_their_defaults() -> None:
    body = decoded(wrapped('{"topicQueueMappingInfoMap":{"t":{"topic":null,"bname":null,"scope":null,"dirty":null}}}'))

    assert body.topic_mappings == {"t": TopicQueueMappingInfo("t", "", 0, 0, "__global__", False, {})}


def test_many_references_to_a_long_text_are_refused() -> None:
    members = ",".join(f'"{number}":{{"bname":{{"$ref":"$.x"}}}}' for number in range(1_000))
    body = f'{{"x":"{"x" * 100_000}","topicConfigSerializeWrapper":{{"topicQueueMappingInfoMap":{{{members}}}}}}}'

    with pytest.raises(BodyDecodeError, match="references make the document many times larger"):
        decoded(body.encode())


def test_an_error_quotes_only_the_beginning_of_a_long_name() -> None:
    with pytest.raises(BodyDecodeError) as raised:
        decoded(wrapped('{"topicConfigTable":{"' + "t" * 100_000 + '":[]}}'))

    assert len(str(raised.value)) < 500


def test_a_count_beyond_the_limit_is_refused_before_its_parts_are_read() -> None:
    data = chunk(b"{}") + struct.pack(">i", MAX_ENTRIES + 1) + chunk(b"T 1 1 1 ") * 10

    with pytest.raises(BodyDecodeError, match=f"{MAX_ENTRIES + 1} entries exceed"):
        decoded(zlib.compress(data), compressed=True)


def test_a_table_with_too_many_entries_is_refused() -> None:
    table = ",".join(f'"{number:x}":{{}}' for number in range(MAX_ENTRIES + 1))

    with pytest.raises(BodyDecodeError, match=f"topicConfigTable has {MAX_ENTRIES + 1} entries"):
        decoded(wrapped('{"topicConfigTable":{' + table + "}}"))


def test_lenient_json_in_a_compressed_body_is_refused() -> None:
    with pytest.raises(BodyDecodeError):
        decoded(zlib.compress(inflated(mappings=(b"{'topic':'t'}",))), compressed=True)
