"""PROXY preambles are read whole or byte by byte, distinguished from frames, and refused if malformed."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.errors import ProxyProtocolError
from namesrv_stream.remoting.proxy_protocol import Preamble, read_preamble

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
IPV4 = bytes([192, 0, 2, 1, 198, 51, 100, 2]) + struct.pack(">HH", 56_324, 9_876)
IPV6 = bytes.fromhex("20010db8000000000000000000000001" * 2) + struct.pack(">HH", 56_324, 9_876)
TLV = b"\x04\x00\x02\x00\x00"
FRAME = b"\x00\x00\x00\x87\x00"


def v2(command: int, family: int, addresses: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(addresses)) + addresses


@pytest.mark.parametrize(
    ("preamble", "source"),
    [
        pytest.param(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 9876\r\n", "192.0.2.1:56324", id="v1 TCP4"),
        pytest.param(b"PROXY TCP6 2001:db8::1 ::1 56324 9876\r\n", "[2001:db8::1]:56324", id="v1 TCP6"),
        pytest.param(b"PROXY UNKNOWN\r\n", "", id="v1 UNKNOWN"),
        pytest.param(b"PROXY UNKNOWN ffff::1 anything 1 2\r\n", "", id="v1 UNKNOWN with more"),
        pytest.param(b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n", "", id="v1 of 107 bytes"),
        pytest.param(v2(0x21, 0x11, IPV4), "192.0.2.1:56324", id="v2 TCP over IPv4"),
        pytest.param(v2(0x21, 0x12, IPV4), "192.0.2.1:56324", id="v2 UDP over IPv4"),
        pytest.param(v2(0x21, 0x21, IPV6), "[2001:db8::1]:56324", id="v2 IPv6"),
        pytest.param(v2(0x21, 0x11, IPV4 + TLV), "192.0.2.1:56324", id="v2 with a TLV"),
        pytest.param(v2(0x21, 0x31, bytes(216)), "", id="v2 UNIX"),
        pytest.param(v2(0x21, 0x00, b""), "", id="v2 UNSPEC"),
        pytest.param(v2(0x20, 0x00, b""), "", id="v2 LOCAL"),
        pytest.param(v2(0x20, 0x77, b"whatever"), "", id="v2 LOCAL with more"),
    ],
)
def test_preamble_is_read_however_it_is_split_and_whatever_follows(preamble: bytes, source: str) -> None:
    whole = Preamble(len(preamble), source)
    for cut in range(1, len(preamble)):
        assert read_preamble(preamble[:cut]) is None, cut
    for tail in (b"", FRAME, preamble):
        assert read_preamble(preamble + tail) == whole


@pytest.mark.parametrize(
    "first", [FRAME, b"\x00", b"\x16\x03", b"GET /", b"POST /", b"PROXYx", b"\r\n\r\n\x01", b"\r\nx"]
)
def test_bytes_that_cannot_begin_a_preamble_are_recognised_at_once(first: bytes) -> None:
    assert read_preamble(first) == Preamble(0, "")


def test_no_bytes_give_no_result() -> None:
    assert read_preamble(b"") is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n", id="a word too few"),
        pytest.param(b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n", id="a word too many"),
        pytest.param(b"PROXY TCP4 192.0.2.1  198.51.100.2 1 2\r\n", id="two blanks"),
        pytest.param(b"PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n", id="family"),
        pytest.param(b"PROXY TCP4 192.0.2.256 198.51.100.2 1 2\r\n", id="address"),
        pytest.param(b"PROXY TCP4 ::1 ::1 1 2\r\n", id="address of the other family"),
        pytest.param(b"PROXY TCP6 fe80::1 fe80::\xc3\xa4 1 2\r\n", id="no ASCII"),
        pytest.param(b"PROXY TCP4 192.0.2.1 198.51.100.2 65536 2\r\n", id="port"),
        pytest.param(b"PROXY TCP4 192.0.2.1 198.51.100.2 1 -2\r\n", id="signed port"),
        pytest.param(b"PROXY TCP4 192.0.2.1 198.51.100.2 1 \r\n", id="no port"),
        pytest.param(b"PROXY \r\n", id="nothing"),
        pytest.param(b"PROXY UNKNOWN " + b"x" * 93, id="no end within 107 bytes"),
        pytest.param(v2(0x22, 0x11, IPV4), id="command"),
        pytest.param(v2(0x11, 0x11, IPV4), id="version"),
        pytest.param(v2(0x21, 0x41, IPV4), id="family of v2"),
        pytest.param(v2(0x21, 0x13, IPV4), id="transport"),
        pytest.param(v2(0x21, 0x11, IPV4[:-1]), id="too short for its family"),
    ],
)
def test_malformed_preamble_is_refused(data: bytes) -> None:
    with pytest.raises(ProxyProtocolError):
        read_preamble(data)


def test_a_malformed_preamble_of_version_2_is_refused_before_its_addresses_arrive() -> None:
    with pytest.raises(ProxyProtocolError):
        read_preamble(v2(0x31, 0x11, IPV4)[:16])


def test_control_characters_of_a_scope_are_not_logged() -> None:
    preamble = read_preamble(b"PROXY TCP6 fe80::1%\x1b[31m ::1 1 2\r\n")
    assert preamble is not None
    assert preamble.source == "[fe80::1]:1"


@given(st.sampled_from((b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11", b"")), st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(begin: bytes, rest: bytes) -> None:
    try:
        preamble = read_preamble(begin + rest)
    except ProxyProtocolError:
        return
    assert preamble is None or preamble.size <= len(begin + rest)


@given(st.binary(max_size=120))
def test_frames_are_never_taken_for_a_preamble(rest: bytes) -> None:
    assert read_preamble(b"\x00" + rest) == Preamble(0, "")
