"""Properties text, compared with java.util.Properties of Java 17."""

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.remoting.java_properties import dumps, loads

#: Text and what ``new Properties().load(new ByteArrayInputStream(text))`` of OpenJDK 17 made of it, printed by a
#: throw-away program. 160,000 random texts of the characters that matter were compared in the same way.
LOADED_BY_JAVA = [
    (b"a=b\n", {"a": "b"}),
    (b"a = b\r\nc:d\re f\n", {"a": "b", "c": "d", "e": "f"}),
    (b"  a\t\f:  b  \n", {"a": "b  "}),
    (b"a==b\nc=:d\ne :=f\n", {"a": "=b", "c": ":d", "e": "=f"}),
    (b"a\nb=\n=c\n", {"a": "", "b": "", "": "c"}),
    (b"# a=b\n ! c=d\n\n \t\ne=#f\n", {"e": "#f"}),
    (b"a\\=b\\ c\\:d=e\\\\f\n", {"a=b c:d": "e\\f"}),
    (b'a=\\t\\n\\r\\f\\b\\z\\"\n', {"a": '\t\n\r\fbz"'}),
    (b"a=b,\\\n   c,\\\r\n\td\ne=f\n", {"a": "b,c,d", "e": "f"}),
    (b"a=b\\\\\nc=d\\\\\\\ne\n", {"a": "b\\", "c": "d\\e"}),
    (b"a=b\\\n\n c=d\n", {"a": "b", "c": "d"}),
    (b"a=b\\\n# c\n", {"a": "b# c"}),
    (b"\\\n# c\na=b\\", {"a": "b"}),
    (b"a=\\u0041\\u00e9\\uD83D\\uDE00\\uFFFD\n", {"a": "A\u00e9\U0001f600\ufffd"}),
    (b"\xfc=\xe4\x85\x1c\x0b\n", {"\u00fc": "\u00e4\x85\x1c\x0b"}),
    ("ü=ä\n".encode(), {"Ã¼": "Ã¤"}),
    (b"a=1\na=2\n", {"a": "2"}),
    (b"", {}),
]


@pytest.mark.parametrize(("text", "properties"), LOADED_BY_JAVA)
def test_text_is_read_as_java_does(text: bytes, properties: dict[str, str]) -> None:
    assert loads(text) == properties


@pytest.mark.parametrize(
    ("text", "line"), [(b"a=\\u12g4\n", 1), (b"a=b\n\n# c\nd=\\\ne\\u12", 4), (b"\\ud83d\\u=1", 1), (b"\n\na=\\u", 3)]
)
def test_an_error_names_the_line_of_an_invalid_escape(text: bytes, line: int) -> None:
    with pytest.raises(ValueError, match=rf"^line {line}: "):
        loads(text)


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert loads(b"a=\\ud83d.\\ude00\n") == {"a": "?.?"}


def test_final_backslash_is_ignored() -> None:
    # Java makes an empty key of it.
    assert loads(b"a=b\n\\") == {"a": "b"}


def test_text_is_written_in_javas_format_and_sorted() -> None:
    # As by java.util.Properties.store, except for its date comment and order.
    written = dumps({"b c": " d e", "a=#": "=:!\\\t\u00e9\U0001f600~", "": ""})

    assert written == b"=\na\\=\\#=\\=\\:\\!\\\\\\t\\u00E9\\uD83D\\uDE00~\nb\\ c=\\ d e\n"


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text(" \t\n\r\f=:#!\\au\u00e9", max_size=8)


@given(st.dictionaries(_TEXTS, _TEXTS, max_size=5))
def test_written_properties_are_read_back(properties: dict[str, str]) -> None:
    assert loads(dumps(properties)) == properties


@given(st.binary(max_size=60) | st.text("\\u0041d8=: \t\n\r#!a", max_size=60).map(str.encode))
def test_any_bytes_are_read_to_valid_text_or_refused(text: bytes) -> None:
    with contextlib.suppress(ValueError):
        for key, value in loads(text).items():
            assert (key + value).encode("utf-8").decode("utf-8") == key + value


def test_long_key_is_read_in_linear_time() -> None:
    text = b"k" * (1 << 20) + b"=v"
    tracemalloc.start()
    try:
        assert list(loads(text).values()) == ["v"]
        assert tracemalloc.get_traced_memory()[1] < 16 * len(text)
    finally:
        tracemalloc.stop()
