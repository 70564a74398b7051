"""Damaged frames, split anywhere: they affect only the connection of their sender."""

import time
from collections.abc import Callable, Sequence
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.errors import RemotingError
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import MAX_FRAME_BYTES, FrameBuffer, decode_frame, encode_frame
from namesrv_stream.remoting.proxy_protocol import read_preamble
from tests.fuzz.hostile import damaged_requests, damaged_streams, json_likes, scaled
from tests.support.strategies_remoting import chunks, mutations, rocketmq_commands

Outcome = list[RemotingCommand | str]


def read(pieces: Sequence[bytes]) -> Outcome:
    """Read a stream as a connection does; returns its commands and the error that ends it."""
    buffer = FrameBuffer()
    outcome: Outcome = []
    try:
        for piece in pieces:
            outcome.extend(map(decode_frame, buffer.feed(piece)))
    except RemotingError as error:
        outcome.append(str(error))
    return outcome


@scaled(120)
@given(st.data())
def test_damaged_stream_is_decoded_alike_however_it_is_split(data: st.DataObject) -> None:
    stream = data.draw(damaged_streams() | st.binary(max_size=200))

    whole = read([stream])

    assert read(data.draw(chunks(st.just(stream)))) == whole
    assert read([stream[at : at + 1] for at in range(len(stream))]) == whole


@scaled(200)
@given(damaged_requests())
def test_damaged_request_is_decoded_or_raises_a_remoting_error(raw: bytes) -> None:
    for outcome in read([raw]):
        if isinstance(outcome, RemotingCommand):
            again = decode_frame(encode_frame(outcome)[4:])
            assert (again.code, again.opaque, again.flag) == (outcome.code, outcome.opaque, outcome.flag)


@scaled(200)
@given(json_likes(), st.binary(max_size=8))
def test_header_that_resembles_json_is_decoded_or_raises_a_remoting_error(header: bytes, body: bytes) -> None:
    read([pack(">II", 4 + len(header) + len(body), len(header)) + header + body])


@scaled(120)
@given(mutations(rocketmq_commands().map(encode_frame)))
def test_damaged_binary_header_is_decoded_or_raises_a_remoting_error(raw: bytes) -> None:
    read([raw])


@scaled(120)
@given(st.data())
def test_first_bytes_of_a_connection_are_decoded_alike_however_they_are_split(data: st.DataObject) -> None:
    v1 = st.sampled_from(
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", b"PROXY UNKNOWN\r\n", b"PROXY TCP6 ::1 ::1 1 65535\r\n")
    )
    v2 = st.builds(
        lambda command, family, size, rest: (
            b"\r\n\r\n\0\r\nQUIT\n" + bytes([command, family]) + pack(">H", size) + rest
        ),
        st.sampled_from((0x20, 0x21, 0x22)),
        st.sampled_from((0x00, 0x11, 0x21, 0x31, 0x41)),
        st.sampled_from((0, 12, 36, 65_535)),
        st.binary(max_size=40),
    )
    stream = data.draw(v1 | v2 | mutations(v1) | mutations(v2) | st.binary(max_size=40))

    def outcome_of(beginning: bytes) -> object:
        try:
            return read_preamble(beginning)
        except RemotingError as error:
            return type(error)

    outcomes = [outcome_of(stream[:size]) for size in range(1, len(stream) + 1)]
    decided = [outcome for outcome in outcomes if outcome is not None]
    assert len(set(decided)) <= 1
    assert outcomes[: len(outcomes) - len(decided)] == [None] * (len(outcomes) - len(decided))


def test_repeated_error_does_not_grow() -> None:
    buffer = FrameBuffer()
    buffer.add(pack(">i", -1))
    for _ in range(100):
        with pytest.raises(RemotingError) as raised:
            buffer.take()
        buffer.add(b"more")

    assert len(raised.traceback) == 2  # this test, and take
    assert buffer.pending_bytes == 8


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def fed(stream: bytes, piece_bytes: int) -> int:
    buffer = FrameBuffer()
    return sum(len(list(buffer.feed(stream[at : at + piece_bytes]))) for at in range(0, len(stream), piece_bytes))


@pytest.mark.parametrize(
    ("frame_bytes", "piece_bytes"),
    [
        pytest.param(MAX_FRAME_BYTES, 256 * 1024, id="the largest frame in large pieces"),
        pytest.param(MAX_FRAME_BYTES, 64, id="the largest frame in tiny pieces"),
        pytest.param(8, 1 << 20, id="frames of a header word in large pieces"),
        pytest.param(8, 3, id="frames of a header word in tiny pieces"),
        pytest.param(1_000, 7, id="small frames in tiny pieces"),
    ],
)
def test_splitting_takes_linear_time(frame_bytes: int, piece_bytes: int) -> None:
    # If the time is linear, 4 MiB take four times as long as 1 MiB; if it is quadratic, sixteen times. The largest
    # frame has one size only.
    frame = pack(">i", frame_bytes - 4) + bytes(frame_bytes - 4)
    if frame_bytes == MAX_FRAME_BYTES:
        assert fed(frame, piece_bytes) == 1
        assert seconds(lambda: fed(frame, piece_bytes)) < 10
        return
    short, long = frame * ((1 << 18) // frame_bytes), frame * ((1 << 20) // frame_bytes)
    assert fed(short, piece_bytes) == (1 << 18) // frame_bytes
    assert min(seconds(lambda: fed(long, piece_bytes)) for _ in range(3)) < 10 * min(
        seconds(lambda: fed(short, piece_bytes)) for _ in range(3)
    )
