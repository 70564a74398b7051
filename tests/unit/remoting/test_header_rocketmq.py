from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.remoting.command import LanguageCode, RemotingCommand, SerializeType
from namesrv_stream.remoting.header_codecs import decode_binary_header, encode_binary_header
from tests.support.examples import examples
from tests.support.strategies_remoting import rocketmq_commands

BARE = RemotingCommand(105, version=479, opaque=7, serialize_type=SerializeType.ROCKETMQ)
FIXED = bytes.fromhex("0069 00 01df 00000007 00000000")


def header(remark: bytes = b"", ext_fields: bytes = b"") -> bytes:
    """Return a header of the given parts with correct lengths."""
    return FIXED + pack(">i", len(remark)) + remark + pack(">i", len(ext_fields)) + ext_fields


def entry(key: bytes, value: bytes) -> bytes:
    """Return an entry of ext fields with correct lengths."""
    return pack(">h", len(key)) + key + pack(">i", len(value)) + value


def test_the_smallest_header_has_21_bytes() -> None:
    assert encode_binary_header(BARE) == header()
    assert decode_binary_header(header(), None) == BARE
    assert len(header()) == 21


def test_texts_are_utf_8() -> None:
    command = replace(BARE, remark="généré", ext_fields={"topic": "主题"})

    raw = encode_binary_header(command)

    assert raw == header("généré".encode(), entry(b"topic", "主题".encode()))
    assert decode_binary_header(raw, None) == command


def test_numbers_are_signed() -> None:
    command = replace(BARE, code=-1, version=-2, opaque=-3, flag=-4)

    assert encode_binary_header(command)[:13] == bytes.fromhex("ffff 00 fffe fffffffd fffffffc")
    assert decode_binary_header(encode_binary_header(command), None) == command


def test_an_unknown_language_reads_as_none() -> None:
    assert decode_binary_header(bytes.fromhex("0069 7f") + header()[3:], None).language is None


def test_no_language_is_written_as_other() -> None:
    assert encode_binary_header(replace(BARE, language=None))[2] == LanguageCode.OTHER


@pytest.mark.parametrize("absent", [replace(BARE, remark=""), replace(BARE, ext_fields={})])
def test_empty_values_are_read_back_as_absent(absent: RemotingCommand) -> None:
    assert decode_binary_header(encode_binary_header(absent), None) == BARE


def test_entries_with_a_null_key_or_value_are_left_out() -> None:
    ext_fields = entry(b"", b"value") + entry(b"key", b"") + entry(b"topic", b"T")

    assert decode_binary_header(header(ext_fields=ext_fields), None).ext_fields == {"topic": "T"}


def test_text_that_is_not_utf_8_is_replaced_as_java_does() -> None:
    assert decode_binary_header(header(remark=b"a\xffb"), None).remark == "a\ufffdb"


def test_a_lone_surrogate_is_written_as_java_does() -> None:
    assert decode_binary_header(encode_binary_header(replace(BARE, remark="a\ud800b")), None).remark == "a?b"


@pytest.mark.parametrize("size", range(21))
def test_a_header_shorter_than_its_fixed_part_is_refused(size: int) -> None:
    with pytest.raises(HeaderDecodeError, match="serialize type 1"):
        decode_binary_header(header()[:size], None)


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(FIXED + pack(">i", -1) + bytes(4), id="negative remark"),
        pytest.param(FIXED + pack(">i", 2**31 - 1) + bytes(4), id="huge remark"),
        pytest.param(FIXED + pack(">i", 1) + bytes(4), id="remark into the next length"),
        pytest.param(FIXED + bytes(4) + pack(">i", -1), id="negative ext fields"),
        pytest.param(FIXED + bytes(4) + pack(">i", 7), id="ext fields beyond the header"),
        pytest.param(header() + b"\x00", id="bytes after the last field"),
        pytest.param(header(ext_fields=b"\x00"), id="half a key length"),
        pytest.param(header(ext_fields=pack(">h", -1) + bytes(8)), id="negative key"),
        pytest.param(header(ext_fields=pack(">h", 9) + bytes(8)), id="key beyond the header"),
        pytest.param(header(ext_fields=b"\x00\x01k\x00\x00"), id="half a value length"),
        pytest.param(header(ext_fields=b"\x00\x01k" + pack(">i", -1)), id="negative value"),
        pytest.param(header(ext_fields=b"\x00\x01k" + pack(">i", 2) + b"v"), id="value beyond the header"),
    ],
)
def test_a_length_that_leads_out_of_the_header_is_refused(damaged: bytes) -> None:
    with pytest.raises(HeaderDecodeError):
        decode_binary_header(damaged, None)


@pytest.mark.parametrize(
    "command",
    [
        replace(BARE, code=2**15),
        replace(BARE, version=-(2**15) - 1),
        replace(BARE, opaque=2**31),
        replace(BARE, flag=2**31),
        replace(BARE, ext_fields={"k" * 2**15: "v"}),
    ],
)
def test_a_field_beyond_its_width_is_not_written(command: RemotingCommand) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_binary_header(command)


@settings(max_examples=examples(100), deadline=None)
@given(command=rocketmq_commands())
def test_header_is_read_as_it_was_written(command: RemotingCommand) -> None:
    assert decode_binary_header(encode_binary_header(command), command.body) == command


@settings(max_examples=examples(100), deadline=None)
@given(raw=st.binary(max_size=80))
def test_any_bytes_are_a_command_or_a_header_decode_error(raw: bytes) -> None:
    try:
        command = decode_binary_header(raw, None)
    except HeaderDecodeError:
        return
    assert command.serialize_type is SerializeType.ROCKETMQ
