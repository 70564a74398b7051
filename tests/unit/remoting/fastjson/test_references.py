import json
from typing import Any

import pytest

from namesrv_stream.remoting.fastjson import MAX_DEPTH, MAX_LENIENT_BYTES, loads


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}, id="property"),
        pytest.param('{"b":{"$ref":"$.a"},"a":{"x":1}}', {"b": {"x": 1}, "a": {"x": 1}}, id="forward"),
        pytest.param('[[1],{"$ref":"$[0]"}]', [[1], [1]], id="array item"),
        pytest.param('{"a":[{"x":[2]}],"b":{"$ref":"$.a[0].x"}}', {"a": [{"x": [2]}], "b": [2]}, id="path"),
        pytest.param(
            '{"a":{0:{"x":1}},"b":{"$ref":"$.a[0]"}}', {"a": {"0": {"x": 1}}, "b": {"x": 1}}, id="integer key"
        ),
        pytest.param(
            r'{"t":{"a.b-c":{"x":1}},"b":{"$ref":"$.t.a\\.b\\-c"}}',
            {"t": {"a.b-c": {"x": 1}}, "b": {"x": 1}},
            id="key with special characters",
        ),
        pytest.param("{a:'x',b:{$ref:'$.a'}}", {"a": "x", "b": "x"}, id="in the dialect"),
        pytest.param('[[1],{"$ref":"$[0]"},{"$ref":"$[1]"}]', [[1], [1], [1]], id="to a reference already resolved"),
    ],
)
def test_a_reference_is_replaced_by_what_it_names(text: str, expected: Any) -> None:
    assert loads(text) == expected


@pytest.mark.parametrize(
    "path",
    ["$", "@", "..", "$.b", "$.c", "$.a.y", "$.a[0]", "$.l[7]", "$.l.x", "$x", "$.", "$.a.", "$[", "$[-1]", "", "a"],
)
def test_a_reference_to_nothing_or_to_an_enclosing_value_is_null(path: str) -> None:
    text = json.dumps({"a": {"x": 1}, "l": [1], "b": {"$ref": path}})

    assert loads(text) == {"a": {"x": 1}, "l": [1], "b": None}


def test_a_reference_to_a_value_that_contains_a_reference_is_null() -> None:
    assert loads('{"a":{"x":[1],"y":{"$ref":"$.a.x"}},"b":{"$ref":"$.a"}}') == {"a": {"x": [1], "y": [1]}, "b": None}


def test_a_document_that_is_a_reference_is_null() -> None:
    assert loads('{"$ref":"$"}') is None


@pytest.mark.parametrize("text", ['{"a":{"$ref":1}}', '{"a":{"$ref":"$.b","c":1}}', '{"a":"\\"$ref\\""}'])
def test_texts_that_only_resemble_references_are_kept(text: str) -> None:
    assert loads(text) == json.loads(text)


def test_a_reference_and_its_target_are_one_object() -> None:
    document = loads('{"a":{"x":1},"b":{"$ref":"$.a"}}')

    assert document["a"] is document["b"]


def test_references_cannot_expand_a_document_without_limit() -> None:
    large = "[" + "0," * 10_000 + "0]"

    with pytest.raises(ValueError, match="many times larger than its text"):
        loads('{"a":' + large + ',"b":[' + '{"$ref":"$.a"},' * 10_000 + "]}")


@pytest.mark.parametrize("large", ['"' + "x" * 100_000 + '"', '{"' + "x" * 100_000 + '":1}'], ids=["text", "key"])
def test_references_cannot_repeat_a_long_text_without_limit(large: str) -> None:
    text = '{"a":' + large + ',"b":[' + '{"$ref":"$.a"},' * 1_000 + "0]}"

    with pytest.raises(ValueError, match="many times larger than its text"):
        loads(text)


def test_an_object_may_be_referenced_often() -> None:
    assert (
        loads('{"a":{"x":"' + "x" * 200 + '"},"b":[' + '{"$ref":"$.a"},' * 99 + '{"$ref":"$.a"}]}')["b"]
        == [{"x": "x" * 200}] * 100
    )


def test_the_last_of_two_members_of_one_name_is_read_even_if_the_first_is_a_reference() -> None:
    assert loads("{a:{x:1},b:{$ref:'$.a'},b:2}") == {"a": {"x": 1}, "b": 2}


def test_references_in_a_document_beyond_the_lenient_limit_are_read() -> None:
    topics = ",".join(f'"t{i}":{{"x":{i},"a":{{"$ref":"$.none"}}}}' for i in range(50_000))
    assert len(topics) > MAX_LENIENT_BYTES

    assert loads('{"a":{"x":1},"none":{},"t":{' + topics + "}}")["t"]["t49999"] == {"x": 49999, "a": {}}


def test_the_limit_of_nesting_applies_to_documents_with_references() -> None:
    with pytest.raises(ValueError, match="nested more than"):
        loads("[" * (MAX_DEPTH + 1) + '{"$ref":"$"}' + "]" * (MAX_DEPTH + 1))
