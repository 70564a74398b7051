from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given, settings

from namesrv_stream.errors import ForeignProtocol, FrameTooLarge, HeaderDecodeError, RemotingError
from namesrv_stream.remoting.command import LanguageCode, RemotingCommand, RequestCode, SerializeType
from namesrv_stream.remoting.frame import MAX_FRAME_BYTES, MAX_HEADER_BYTES, FrameBuffer, decode_frame, encode_frame
from tests.support.examples import examples
from tests.support.strategies_remoting import chunks, commands, mutations, streams
from tests.vectors.captured import CapturedFrame, captured_frames

ROUTE_REQUEST = RemotingCommand(
    RequestCode.GET_ROUTEINFO_BY_TOPIC, version=479, opaque=7, ext_fields={"topic": "TopicTest"}
)
ROUTE_REQUEST_IN_JSON = bytes.fromhex("0000008700000083") + (
    b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)
ROUTE_REQUEST_IN_BINARY = bytes.fromhex(
    "0000002d 01000029 0069 00 01df 00000007 00000000 00000000 000000140005 746f706963 00000009 546f70696354657374"
)


def check_reads(stream: bytes, expected: list[bytes]) -> None:
    """Assert that the stream contains the frames: whole, byte by byte, and followed by an incomplete frame."""
    assert list(FrameBuffer().feed(stream)) == expected

    by_the_byte = FrameBuffer()
    assert [frame for byte in stream for frame in by_the_byte.feed(bytes([byte]))] == expected
    assert by_the_byte.pending_bytes == 0

    with_a_tail = FrameBuffer()
    assert list(with_a_tail.feed(stream + b"\x00\x00\x00\x09\x00")) == expected
    assert with_a_tail.pending_bytes == 5


def check_both_ways(command: RemotingCommand, raw: bytes) -> None:
    """Assert that the command is encoded as these bytes, and that they are decoded to the command."""
    assert encode_frame(command) == raw
    assert decode_frame(raw[4:]) == command


def is_canonical(captured: CapturedFrame) -> bool:
    """Whether the frame has Java's form; the Go client has another order and omits a property."""
    return captured.command.language is not LanguageCode.GO


def test_the_worked_example_in_json_is_encoded_and_decoded() -> None:
    check_both_ways(ROUTE_REQUEST, ROUTE_REQUEST_IN_JSON)
    assert len(ROUTE_REQUEST_IN_JSON) == 139


def test_the_worked_example_in_binary_is_encoded_and_decoded() -> None:
    check_both_ways(replace(ROUTE_REQUEST, serialize_type=SerializeType.ROCKETMQ), ROUTE_REQUEST_IN_BINARY)
    assert len(ROUTE_REQUEST_IN_BINARY) == 49


def test_a_success_response_without_a_body_is_encoded_and_decoded() -> None:
    header = b'{"code":0,"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}'

    check_both_ways(RemotingCommand(0, version=479, opaque=7, flag=1), pack(">ii", 99, 95) + header)


def test_a_body_follows_its_header() -> None:
    check_both_ways(
        replace(ROUTE_REQUEST, body=b"\x00body"),
        bytes.fromhex("0000008c00000083") + ROUTE_REQUEST_IN_JSON[8:] + b"\x00body",
    )


def test_an_empty_body_is_no_body() -> None:
    assert encode_frame(replace(ROUTE_REQUEST, body=b"")) == ROUTE_REQUEST_IN_JSON


def test_every_canonical_captured_frame_is_reproduced_byte_for_byte() -> None:
    canonical = [captured for captured in captured_frames() if is_canonical(captured)]

    assert len(canonical) == 1593
    assert [captured for captured in canonical if encode_frame(captured.command) != captured.raw] == []


def test_captured_frames_of_the_go_client_differ_from_java_only_in_how_they_are_written() -> None:
    others = [captured for captured in captured_frames() if not is_canonical(captured)]

    assert Counter((captured.part, captured.from_peer) for captured in others) == {("go", True): 9}
    for captured in others:
        again = encode_frame(captured.command)
        assert again != captured.raw
        assert decode_frame(again[4:]) == captured.command


def test_captured_frames_come_in_both_serialisations() -> None:
    types = Counter(captured.command.serialize_type for captured in captured_frames())

    assert types == {SerializeType.JSON: 1595, SerializeType.ROCKETMQ: 7}


@pytest.mark.parametrize("part", ["basic", "slave", "acting", "static", "options", "zone", "restart", "old", "go"])
def test_captured_streams_are_divided_into_their_frames(part: str) -> None:
    captured = [captured for captured in captured_frames() if captured.part == part][:40]

    check_reads(b"".join(each.raw for each in captured), [each.frame for each in captured])


@pytest.mark.parametrize("size", range(9))
def test_incomplete_frame_is_kept_until_it_is_complete(size: int) -> None:
    buffer = FrameBuffer()

    assert list(buffer.feed(ROUTE_REQUEST_IN_JSON[:size])) == []
    assert buffer.pending_bytes == size


def test_no_input_gives_no_frame() -> None:
    buffer = FrameBuffer()

    assert list(buffer.feed(b"")) == []
    assert buffer.pending_bytes == 0


def test_the_largest_frame_arrives_in_pieces() -> None:
    frame = bytes(MAX_FRAME_BYTES - 4)
    stream = pack(">i", len(frame)) + frame
    buffer = FrameBuffer()

    frames = [frame for at in range(0, len(stream), 65536) for frame in buffer.feed(stream[at : at + 65536])]

    assert [len(frame) for frame in frames] == [MAX_FRAME_BYTES - 4]
    assert buffer.pending_bytes == 0


def test_a_large_frame_arrives_byte_by_byte() -> None:
    stream = pack(">i", 200_000) + bytes(200_000)
    buffer = FrameBuffer()

    assert sum(len(list(buffer.feed(stream[at : at + 1]))) for at in range(len(stream))) == 1


def test_many_frames_arrive_in_one_piece() -> None:
    assert list(FrameBuffer().feed(ROUTE_REQUEST_IN_BINARY * 100_000)) == [ROUTE_REQUEST_IN_BINARY[4:]] * 100_000


def test_the_limit_counts_the_prefix() -> None:
    assert list(FrameBuffer(max_frame_bytes=49).feed(ROUTE_REQUEST_IN_BINARY)) == [ROUTE_REQUEST_IN_BINARY[4:]]

    with pytest.raises(FrameTooLarge, match="frame of 49 bytes exceeds the limit of 48"):
        list(FrameBuffer(max_frame_bytes=48).feed(ROUTE_REQUEST_IN_BINARY))


def test_the_default_limit_is_that_of_netty() -> None:
    assert list(FrameBuffer().feed(pack(">i", 16_777_212))) == []

    with pytest.raises(FrameTooLarge, match="frame of 16777217 bytes exceeds the limit of 16777216"):
        list(FrameBuffer().feed(pack(">i", 16_777_213)))


@pytest.mark.parametrize("total", [-1, -(2**31)])
def test_a_negative_length_is_refused(total: int) -> None:
    with pytest.raises(FrameTooLarge, match=f"frame of {total} bytes"):
        list(FrameBuffer().feed(pack(">i", total)))


@pytest.mark.parametrize("total", range(4))
def test_a_frame_without_room_for_a_header_word_is_refused(total: int) -> None:
    with pytest.raises(HeaderDecodeError, match="serialize type None"):
        list(FrameBuffer().feed(pack(">i", total) + bytes(4)))


def test_length_is_checked_when_its_last_byte_arrives() -> None:
    buffer = FrameBuffer()
    buffer.add(b"\x7f\xff\xff")
    assert buffer.take() is None

    buffer.add(b"\xff")
    with pytest.raises(FrameTooLarge):
        buffer.take()


def test_invalid_stream_stays_invalid() -> None:
    buffer = FrameBuffer()
    buffer.add(b"\xff\xff\xff\xff" + bytes(1_000))
    with pytest.raises(FrameTooLarge):
        buffer.take()
    assert buffer.pending_bytes == 4

    buffer.add(ROUTE_REQUEST_IN_JSON)
    with pytest.raises(FrameTooLarge):
        buffer.take()


def test_frames_before_an_invalid_one_are_returned() -> None:
    buffer = FrameBuffer()
    buffer.add(ROUTE_REQUEST_IN_BINARY[:9])
    assert buffer.take() is None
    buffer.add(ROUTE_REQUEST_IN_BINARY[9:] + ROUTE_REQUEST_IN_JSON + b"GET / HTTP/1.1")

    assert [buffer.take(), buffer.take()] == [ROUTE_REQUEST_IN_BINARY[4:], ROUTE_REQUEST_IN_JSON[4:]]
    with pytest.raises(FrameTooLarge):
        buffer.take()


def test_bytes_that_arrive_while_frames_wait_stay_in_order() -> None:
    buffer = FrameBuffer()
    stream = ROUTE_REQUEST_IN_BINARY + ROUTE_REQUEST_IN_JSON
    buffer.add(stream + ROUTE_REQUEST_IN_JSON[:50])
    taken = [buffer.take()]
    assert buffer.has_frames
    buffer.add(ROUTE_REQUEST_IN_JSON[50:] + stream[:3])
    taken += iter(buffer.take, None)

    assert taken == [ROUTE_REQUEST_IN_BINARY[4:], ROUTE_REQUEST_IN_JSON[4:], ROUTE_REQUEST_IN_JSON[4:]]
    assert (buffer.pending_bytes, buffer.has_frames) == (3, False)


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x00\x00\x00"])
def test_a_frame_shorter_than_a_header_word_is_refused(frame: bytes) -> None:
    with pytest.raises(HeaderDecodeError, match="serialize type None"):
        decode_frame(frame)


@pytest.mark.parametrize("serialize_type", [2, 22, 255])
def test_an_unknown_serialize_type_is_refused(serialize_type: int) -> None:
    with pytest.raises(HeaderDecodeError, match=f"serialize type {serialize_type}"):
        decode_frame(bytes([serialize_type]) + ROUTE_REQUEST_IN_JSON[5:])


def test_a_header_that_ends_after_its_frame_is_refused() -> None:
    with pytest.raises(HeaderDecodeError):
        decode_frame(ROUTE_REQUEST_IN_JSON[4:-1])


def test_all_24_bits_of_the_header_length_count() -> None:
    command = replace(ROUTE_REQUEST, remark="x" * 70_000)

    assert decode_frame(encode_frame(command)[4:]) == command


def test_a_header_that_would_be_too_long_to_read_is_not_written() -> None:
    with pytest.raises(ValueError, match="exceeds"):
        encode_frame(replace(ROUTE_REQUEST, remark="x" * 0x1000000))


@settings(max_examples=examples(100), deadline=None)
@given(command=commands())
def test_a_command_survives_the_wire(command: RemotingCommand) -> None:
    raw = encode_frame(command)

    assert list(FrameBuffer().feed(raw)) == [raw[4:]]
    assert decode_frame(raw[4:]) == command


@settings(max_examples=examples(50), deadline=None)
@given(pieces=chunks(streams()))
def test_result_does_not_depend_on_how_a_stream_is_split(pieces: Sequence[bytes]) -> None:
    buffer = FrameBuffer()

    frames = [frame for piece in pieces for frame in buffer.feed(piece)]

    assert frames == list(FrameBuffer().feed(b"".join(pieces)))


@settings(max_examples=examples(150), deadline=None)
@given(pieces=chunks(mutations(streams())))
def test_only_a_remoting_error_escapes_from_damaged_streams(pieces: Sequence[bytes]) -> None:
    buffer = FrameBuffer()
    with suppress(RemotingError):
        for piece in pieces:
            for frame in buffer.feed(piece):
                decode_frame(frame)


@settings(max_examples=examples(100), deadline=None)
@given(frame=mutations(commands().map(lambda command: encode_frame(command)[4:])))
def test_a_damaged_frame_that_decodes_is_a_command_that_encodes(frame: bytes) -> None:
    try:
        command = decode_frame(frame)
    except RemotingError:
        return
    assert decode_frame(encode_frame(command)[4:]).opaque == command.opaque


@settings(max_examples=examples(60), deadline=None)
@given(pieces=chunks(mutations(streams())))
def test_damage_is_found_however_the_stream_is_split(pieces: Sequence[bytes]) -> None:
    assert _read(pieces) == _read([b"".join(pieces)])


def _read(pieces: Sequence[bytes]) -> tuple[list[bytes], str]:
    """Return the frames in the pieces, and the error after them."""
    buffer = FrameBuffer()
    frames: list[bytes] = []
    try:
        for piece in pieces:
            frames.extend(buffer.feed(piece))
    except RemotingError as error:
        return frames, str(error)
    return frames, ""


def test_the_longest_header_is_read_and_one_byte_more_is_refused() -> None:
    bare = len(encode_frame(RemotingCommand(105, remark=""))) - 8
    longest = RemotingCommand(105, remark="x" * (MAX_HEADER_BYTES - bare))
    raw = encode_frame(longest)

    assert decode_frame(raw[4:]) == longest
    with pytest.raises(HeaderDecodeError, match=f"{MAX_HEADER_BYTES + 1} bytes exceed"):
        decode_frame((MAX_HEADER_BYTES + 1).to_bytes(4, "big") + b" " + raw[8:])


@pytest.mark.parametrize(
    ("start", "protocol"),
    [(b"HTTP/1.1 400 Bad Request", "HTTP"), (b"GET / HTTP/1.1", "HTTP"), (b"\x15\x03\x03\x00\x02\x02\x46", "TLS")],
)
def test_another_protocol_is_named(start: bytes, protocol: str) -> None:
    buffer = FrameBuffer()
    buffer.add(start)
    with pytest.raises(ForeignProtocol, match=f"the peer uses {protocol} at this port"):
        buffer.take()
