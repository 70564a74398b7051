import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.remoting.fastjson import (
    MAX_DEPTH,
    MAX_LENIENT_BYTES,
    MAX_VALUES,
    dumps_legacy,
    loads,
    loads_lenient,
    loads_written,
)
from tests.support.examples import examples
from tests.support.strategies_remoting import mutations
from tests.vectors.captured import captured_frames

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=6), children, max_size=4),
    max_leaves=12,
)
FASTJSON_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=12),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text(max_size=6), children, max_size=4)
        | st.dictionaries(st.integers(-3, 9), children, max_size=4)
    ),
    max_leaves=12,
)


def check_reads(text: str, expected: Any) -> None:
    """Assert that both readers read the text as expected."""
    assert loads(text.encode()) == expected
    assert loads_lenient(text.encode()) == expected
    assert loads_lenient(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ("[]", []),
        ('{"a":[1,-2,3.5,1e3,true,false,null,"x"]}', {"a": [1, -2, 3.5, 1000.0, True, False, None, "x"]}),
        (' {\t"a" :\r\n1 } ', {"a": 1}),
        ('"text"', "text"),
        ("7", 7),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"a":"\\u00e9\\n\\/\\"\\ud83d\\ude00"}', {"a": 'é\n/"😀'}),
    ],
)
def test_json_is_read(text: str, expected: Any) -> None:
    check_reads(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{0:"a",1:"b"}', {"0": "a", "1": "b"}, id="bare integer keys"),
        pytest.param("{-1:{ 2 : [{3:4}]}}", {"-1": {"2": [{"3": 4}]}}, id="bare integer keys, nested and negative"),
        pytest.param(
            '{"a":"{0:1,2:3}",4:5}', {"a": "{0:1,2:3}", "4": 5}, id="bare keys next to text that looks like them"
        ),
        pytest.param('{"a\\"{0:1":"\\\\",4:5}', {'a"{0:1': "\\", "4": 5}, id="the same with escapes"),
        pytest.param("{1.5:2,3L:4}", {"1.5": 2, "3L": 4}, id="other numbers as keys"),
        pytest.param("{code:1,$x_1:2,名:3}", {"code": 1, "$x_1": 2, "名": 3}, id="bare names"),
        pytest.param("{true:1,null:2}", {"true": 1, "null": 2}, id="bare words"),
        pytest.param("{'a':'b\"c','d':\"e'f\"}", {"a": 'b"c', "d": "e'f"}, id="single quotes"),
        pytest.param("{'{0:1':2}", {"{0:1": 2}, id="single quotes around what looks like a key"),
        pytest.param("[1,2,]", [1, 2], id="trailing comma in an array"),
        pytest.param('{"a":1,}', {"a": 1}, id="trailing comma in an object"),
        pytest.param('/* {0:" */{"a"://x\n1}// end', {"a": 1}, id="comments"),
        pytest.param("\ufeff[]", [], id="byte order mark"),
        pytest.param('["a\nb\tc"]', ["a\nb\tc"], id="raw controls in a string"),
        pytest.param('["\\x41\\v\\0\\\'\\F"]', ["A\v\0'\f"], id="escapes of Java"),
        pytest.param("[1L,2S,3B,4.5D,5F,007]", [1, 2, 3, 4.5, 5, 7], id="suffixes and leading zeros"),
        pytest.param("[undefined,NaN]", [None, None], id="words that mean null"),
        pytest.param('["\\ud800x\\udc00"]', ["\ufffdx\ufffd"], id="lone surrogates"),
    ],
)
def test_the_dialect_is_read(text: str, expected: Any) -> None:
    check_reads(text, expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[",
        "}",
        "{,}",
        "[,]",
        "[1,,2]",
        "{a}",
        "{a:}",
        "{a 1}",
        "{a:1 b:2}",
        "{[1]:2}",
        "{:1}",
        "[1",
        "[1 2]",
        '"a',
        "'a",
        '"\\"',
        '["\\q"]',
        '["\\u12"]',
        "[-]",
        "[1e999]",
        "[\u0661]",
        "[+1]",
        "[tru]",
        "[True]",
        "[abc]",
        "/* open",
        "{} {}",
        "{}x",
        "[" + "9" * 5000 + "]",
        '{"a":1}\x00',
    ],
)
def test_text_outside_the_dialect_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="at character"):
        loads(text)
    with pytest.raises(ValueError, match="at character"):
        loads_lenient(text)


def test_invalid_utf_8_is_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        loads(b'{a:"\xff"}')


def test_a_str_with_a_lone_surrogate_is_read_as_java_would_have_sent_it() -> None:
    assert loads('["\ud800"]') == ["?"]


def test_nesting_is_limited() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH

    assert json.dumps(loads_lenient(deepest)) == deepest
    with pytest.raises(ValueError, match="levels deep"):
        loads_lenient("[" + deepest + "]")
    with pytest.raises(ValueError, match="levels deep"):
        loads("[{a:" * 100_000)


def test_numbers_can_be_kept_as_they_were_written() -> None:
    assert loads_lenient('{"a":1.50,"b":[12345678901234567890123,1e5],"c":"x"}', numbers_as_text=True) == {
        "a": "1.50",
        "b": ["12345678901234567890123", "1e5"],
        "c": "x",
    }


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param("{0:" * 150_000, id="keys that open objects"),
        pytest.param('{"' + "\\" * 400_001, id="backslashes"),
        pytest.param("[" + "/*" * 200_000, id="comments that open"),
        pytest.param("[" + "/**/" * 100_000, id="comments"),
        pytest.param("[" + " " * 400_000, id="spaces"),
        pytest.param("[" + "9" * 400_000, id="digits"),
        pytest.param("[" + "1." * 200_000, id="points"),
        pytest.param("['" + '"{0:' * 100_000, id="quotes in quotes"),
        pytest.param("{a:1," + ("b:[{c:'d'}]," * 30_000), id="an object without an end"),
        pytest.param("{" + "a" * 400_000, id="a key without an end"),
    ],
)
def test_reading_takes_linear_time(hostile: str) -> None:
    # 400 kB take well under a second; quadratic ones would take minutes.
    with pytest.raises(ValueError, match="at character"):
        loads(hostile)


def test_both_readers_read_every_captured_json_body_in_the_same_way() -> None:
    bodies = {captured.command.body for captured in captured_frames()}
    read = 0
    for body in bodies:
        if body is not None and body.startswith(b"{"):
            assert loads(body) == loads_lenient(body)
            read += 1

    assert read == 181


@settings(max_examples=examples(100), deadline=None)
@given(value=JSON_VALUES)
def test_json_is_read_as_python_reads_it(value: Any) -> None:
    text = json.dumps(value)

    assert _same(loads(text), value)
    assert _same(loads_lenient(text), value)


@settings(max_examples=examples(100), deadline=None)
@given(value=FASTJSON_VALUES)
def test_output_of_the_writer_is_read(value: Any) -> None:
    written = dumps_legacy(value)

    assert loads(written) == loads_lenient(written) == _with_text_keys(value)


@settings(max_examples=examples(250), deadline=None)
@given(data=mutations(FASTJSON_VALUES.map(dumps_legacy)))
def test_only_a_value_error_escapes_from_damaged_text(data: bytes) -> None:
    with suppress(ValueError):
        loads(data)
    with suppress(ValueError):
        loads_lenient(data)


@settings(max_examples=examples(250), deadline=None)
@given(text=st.text(alphabet="{}[]:,'\"\\/*$refa.01-eE \n\ufeff", max_size=40))
def test_only_a_value_error_escapes_from_any_text(text: str) -> None:
    with suppress(ValueError):
        loads(text)
    with suppress(ValueError):
        loads_lenient(text)


def _same(read: Any, value: Any) -> bool:
    if isinstance(value, float):
        return isinstance(read, float | int) and math.isclose(read, value, rel_tol=1e-15)
    if isinstance(value, list):
        return isinstance(read, list) and len(read) == len(value) and all(map(_same, read, value))
    if isinstance(value, dict):
        return list(read) == list(value) and all(map(_same, read.values(), value.values()))
    return bool(read == value and type(read) is type(value))


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(item) for item in value]
    return value


def test_a_document_of_too_many_values_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_VALUES} values"):
        loads(b"[" + b"0," * MAX_VALUES + b"0]")


def test_lenient_json_beyond_the_limit_is_refused() -> None:
    assert len(loads(b"['a'" + b" " * (MAX_LENIENT_BYTES - 5) + b"]")) == 1

    with pytest.raises(ValueError, match="exceed the limit for the lenient reader"):
        loads(b"['a'" + b" " * MAX_LENIENT_BYTES + b"]")


def test_the_reader_of_fastjsons_output_refuses_other_lenient_json() -> None:
    assert loads_written(b'{0:{"a":1},"b":{"$ref":"$[0]"}}') == {"0": {"a": 1}, "b": {"a": 1}}

    with pytest.raises(ValueError, match="expected"):
        loads_written(b"{a:1}")


def test_a_document_with_too_many_integer_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="exceed the limit for the lenient reader"):
        loads(b"{" + b",".join(b"%d:0" % number for number in range(300_002)) + b"}")
