from dataclasses import replace

import pytest
from hypothesis import given, settings

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.remoting.command import LanguageCode, RemotingCommand
from namesrv_stream.remoting.header_codecs import MAX_LENIENT_BYTES, decode_json_header, encode_json_header
from tests.support.examples import examples
from tests.support.strategies_remoting import json_commands

BARE = RemotingCommand(0)
TAIL = '"serializeTypeCurrentRPC":"JSON","version":0}'


def decode(header: str) -> RemotingCommand:
    """Decode a header given as text."""
    return decode_json_header(header.encode(), None)


def test_properties_are_in_the_order_of_fastjson() -> None:
    command = RemotingCommand(105, LanguageCode.CPP, 333, 9, 2, "because", {"b": "2", "a": "1"})

    assert encode_json_header(command) == (
        b'{"code":105,"extFields":{"b":"2","a":"1"},"flag":2,"language":"CPP","opaque":9,"remark":"because",'
        b'"serializeTypeCurrentRPC":"JSON","version":333}'
    )


def test_null_properties_are_left_out() -> None:
    assert encode_json_header(replace(BARE, language=None)) == f'{{"code":0,"flag":0,"opaque":0,{TAIL}'.encode()


def test_an_empty_custom_header_is_written() -> None:
    expected = f'{{"code":0,"extFields":{{}},"flag":0,"language":"JAVA","opaque":0,{TAIL}'

    assert encode_json_header(replace(BARE, ext_fields={})) == expected.encode()
    assert decode(expected).ext_fields == {}


def test_texts_are_escaped_as_fastjson_does() -> None:
    header = encode_json_header(replace(BARE, remark='a"\\/\n\x0b\x7f\u2028主'))

    assert b'"remark":"a\\"\\\\/\\n\\u000B\\u007F\\u2028\xe4\xb8\xbb"' in header


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_a_number_beyond_32_bits_is_not_written(number: int) -> None:
    with pytest.raises(ValueError, match="32-bit"):
        encode_json_header(replace(BARE, opaque=number))


def test_an_empty_object_is_code_0() -> None:
    assert decode("{}") == replace(BARE, language=None)


def test_unknown_properties_are_ignored() -> None:
    assert decode('{"code":106,"body":[1],"suspended":true,"x":null}') == RemotingCommand(106, language=None)


def test_values_of_ext_fields_are_cast_to_text() -> None:
    ext_fields = decode(
        '{"extFields":{"int":1,"long":12345678901234567890123,"fraction":1.50,"yes":true,"null":null,'
        '"object":{"a":[1]},"text":"x"}}'
    ).ext_fields

    assert ext_fields == {
        "int": "1",
        "long": "12345678901234567890123",
        "fraction": "1.50",
        "yes": "true",
        "object": '{"a":[1]}',
        "text": "x",
    }


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ('"0"', 0),
        ('"103"', 103),
        ('"+7"', 7),
        ('"-7"', -7),
        ('"7.0"', 7),
        ("7.9", 7),
        ("true", 1),
        ("null", 0),
        ('""', 0),
    ],
)
def test_a_number_is_cast_as_fastjson_does(written: str, code: int) -> None:
    assert decode(f'{{"code":{written}}}').code == code


@pytest.mark.parametrize(
    ("written", "language"),
    [
        ('"GO"', LanguageCode.GO),
        ('"go"', LanguageCode.GO),
        ('"JAVA"', LanguageCode.JAVA),
        ("12", LanguageCode.RUST),
        ('"COBOL"', None),
        ("14", None),
        ("-1", None),
        ("null", None),
        ("{}", None),
    ],
)
def test_unknown_language_is_none(written: str, language: LanguageCode | None) -> None:
    assert decode(f'{{"language":{written}}}').language is language


def test_a_remark_may_be_empty_or_a_number() -> None:
    assert decode('{"remark":""}').remark == ""
    assert decode('{"remark":12}').remark == "12"


@pytest.mark.parametrize(
    "dialect",
    [
        "{code:105,extFields:{topic:'T'}}",
        "{'code':105,'extFields':{'topic':'T'}}",
        '\ufeff{"code":105,"extFields":{"topic":"T"}}',
        '{"code":105,/* why not */"extFields":{"topic":"T",},}',
        ' { "code" : 105 , "extFields" : { "topic" : "T" } } ',
    ],
)
def test_dialect_of_fastjson_is_accepted(dialect: str) -> None:
    assert decode(dialect) == RemotingCommand(105, language=None, ext_fields={"topic": "T"})


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="array"),
        pytest.param(b"105", id="number"),
        pytest.param(b'{"code":105} x', id="trailing text"),
        pytest.param(b'{"code":105}{}', id="second object"),
        pytest.param(b'{"code":105', id="cut off"),
        pytest.param(b'{"remark":"\xff"}', id="invalid UTF-8"),
        pytest.param(b'{"code":"x"}', id="code is a word"),
        pytest.param(b'{"code":[1]}', id="code is an array"),
        pytest.param(b'{"code":2147483648}', id="code beyond 32 bits"),
        pytest.param(b'{"opaque":1e300}', id="opaque beyond everything"),
        pytest.param(b'{"extFields":[]}', id="ext fields are an array"),
        pytest.param(b'{"extFields":"x"}', id="ext fields are a text"),
        pytest.param(b'{"extFields":{"a":' + b"[" * 500 + b"]" * 500 + b"}}", id="deep value"),
        pytest.param(b'{"extFields":{"f":1.5,"a":' + b"[" * 500 + b"]" * 500 + b"}}", id="deep value and a fraction"),
        pytest.param(b"[" * 100_000, id="nested without end"),
        pytest.param(b"{a:" * 1_000, id="nested without end in the dialect"),
        pytest.param(b"{code:105,remark:'" + b"x" * MAX_LENIENT_BYTES + b"'}", id="dialect and too long"),
        pytest.param(b'{"extFields":{"f":1.5,"a":"' + b"x" * MAX_LENIENT_BYTES + b'"}}', id="fraction and too long"),
    ],
)
def test_invalid_header_is_refused(header: bytes) -> None:
    with pytest.raises(HeaderDecodeError, match="serialize type 0"):
        decode_json_header(header, None)


def test_long_header_in_strict_json_is_accepted() -> None:
    command = replace(BARE, remark="x" * 1_000_000)

    assert decode_json_header(encode_json_header(command), None) == command


@settings(max_examples=examples(80), deadline=None)
@given(command=json_commands())
def test_header_is_read_as_it_was_written(command: RemotingCommand) -> None:
    assert decode_json_header(encode_json_header(command), command.body) == command
