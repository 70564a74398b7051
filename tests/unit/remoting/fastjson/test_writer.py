import enum
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.remoting.command import V4_9_4, RemotingCommand, RequestCode
from namesrv_stream.remoting.fastjson import JavaMap, dumps_legacy, dumps_strict, loads, quote_legacy, quote_strict
from tests.support.examples import examples
from tests.vectors.captured import captured_exchanges, captured_frames

ROUTE = {
    "brokerDatas": [
        {
            "brokerAddrs": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
            "brokerName": "broker-a",
            "cluster": "C1",
            "enableActingMaster": False,
            "zoneName": None,
        }
    ],
    "filterServerTable": JavaMap[str, list[str]](),
    "orderTopicConf": None,
    "queueDatas": [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}],
}
ROUTE_IN_LEGACY = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"C1",'
    b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
    b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
)
STATIC_TOPIC = {
    "broker-a": {
        "bname": "broker-a",
        "currIdMap": {0: 0, 1: 1},
        "dirty": False,
        "epoch": 1700000000000,
        "scope": "__global__",
        "topic": "st",
        "totalQueues": 2,
    }
}


def test_a_route_is_written_in_the_legacy_form() -> None:
    assert dumps_legacy(ROUTE) == ROUTE_IN_LEGACY


def test_a_route_is_written_in_the_strict_form() -> None:
    assert dumps_strict(ROUTE) == ROUTE_IN_LEGACY.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')


def test_a_static_topic_is_written_in_both_forms() -> None:
    legacy = (
        b'{"broker-a":{"bname":"broker-a","currIdMap":{0:0,1:1},"dirty":false,"epoch":1700000000000,'
        b'"scope":"__global__","topic":"st","totalQueues":2}}'
    )

    assert dumps_legacy(STATIC_TOPIC) == legacy
    assert dumps_strict(STATIC_TOPIC) == legacy.replace(b"{0:0,1:1}", b'{"0":0,"1":1}')


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (
            {"brokerAddrTable": {"broker-a": ROUTE["brokerDatas"]}, "clusterAddrTable": {"C1": ["broker-a"]}},
            b'{"brokerAddrTable":{"broker-a":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
            b'"brokerName":"broker-a","cluster":"C1","enableActingMaster":false}]},"clusterAddrTable":{"C1":["broker-a"]}}',
        ),
        ({"clusterAddrTable": {"c0": [None]}}, b'{"clusterAddrTable":{"c0":[null]}}'),
        ({"topicList": []}, b'{"topicList":[]}'),
        ({"brokerAddr": "1.2.3.4:10911", "topicList": ["A"]}, b'{"brokerAddr":"1.2.3.4:10911","topicList":["A"]}'),
        (
            {"table": {"topicA": "broker-a:4;broker-b:4"}},
            b'{"table":{"topicA":"broker-a:4;broker-b:4"}}',
        ),
        (
            {"brokerMemberGroup": {"brokerAddrs": {0: "a:1"}, "brokerName": "broker-a", "cluster": "C1"}},
            b'{"brokerMemberGroup":{"brokerAddrs":{0:"a:1"},"brokerName":"broker-a","cluster":"C1"}}',
        ),
        (
            {"counter": 3, "stateVersion": 0, "timestamp": 1700000000000},
            b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}',
        ),
    ],
)
def test_other_bodies_are_written_in_the_legacy_form(value: object, written: bytes) -> None:
    assert dumps_legacy(value) == written


def test_null_properties_and_entries_are_left_out_but_not_null_items() -> None:
    value = {"a": None, "b": {1: None, 2: 3}, "c": [None], "d": ()}

    assert dumps_legacy(value) == b'{"b":{2:3},"c":[null],"d":[]}'
    assert dumps_strict(value) == b'{"b":{"2":3},"c":[null],"d":[]}'


def test_the_legacy_form_keeps_the_order_of_maps_and_the_strict_form_sorts_them() -> None:
    value = {"z": JavaMap({"b": 1, "a": 2}), "a": {10: 1, 9: 2, -1: 3}}

    assert dumps_legacy(value) == b'{"z":{"b":1,"a":2},"a":{10:1,9:2,-1:3}}'
    assert dumps_strict(value) == b'{"z":{"a":2,"b":1},"a":{"-1":3,"9":2,"10":1}}'


def test_the_strict_form_sorts_texts_by_utf_16_as_java_does() -> None:
    assert list(loads(dumps_strict(JavaMap({"\uffff": 1, "😀": 2, "é": 3, "z": 4})))) == ["z", "é", "😀", "\uffff"]


def test_the_strict_form_sorts_numbers_before_texts() -> None:
    assert dumps_strict(JavaMap[object, int]({"a": 1, 2: 3})) == b'{"2":3,"a":1}'


@pytest.mark.parametrize("number", [9007199254740991, -9007199254740991])
def test_safe_integers_are_numbers_in_both_forms(number: int) -> None:
    assert dumps_legacy([number]) == dumps_strict([number]) == f"[{number}]".encode()


@pytest.mark.parametrize("number", [9007199254740992, -9007199254740992, 2**63 - 1, 2**80])
def test_larger_integers_are_texts_in_the_strict_form(number: int) -> None:
    assert dumps_legacy([number]) == f"[{number}]".encode()
    assert dumps_strict([number]) == f'["{number}"]'.encode()


@pytest.mark.parametrize(
    ("text", "legacy", "strict"),
    [
        ("plain text", "plain text", "plain text"),
        ('"\\', '\\"\\\\', '\\"\\\\'),
        ("\b\t\n\f\r", "\\b\\t\\n\\f\\r", "\\b\\t\\n\\f\\r"),
        ("\x00\x07\x0b\x1f", "\\u0000\\u0007\\u000B\\u001F", "\\u0000\\u0007\\u000B\\u001F"),
        ("\x7e\x7f\x9f", "~\\u007F\\u009F", "~\\u007F\\u009F"),
        ("\u2028\u2029", "\\u2028\\u2029", "\\u2028\\u2029"),
        ("a/b", "a/b", "a\\/b"),
        ("\xa0é主", "\xa0é主", "\\u00A0\\u00E9\\u4E3B"),
        ("😀", "😀", "\\uD83D\\uDE00"),
    ],
)
def test_texts_are_escaped(text: str, legacy: str, strict: str) -> None:
    assert quote_legacy(text) == f'"{legacy}"'
    assert quote_strict(text) == f'"{strict}"'
    assert dumps_legacy({text: text}) == f'{{"{legacy}":"{legacy}"}}'.encode()
    assert dumps_strict({text: text}) == f'{{"{strict}":"{strict}"}}'.encode()


def test_a_lone_surrogate_is_written_as_java_does() -> None:
    assert dumps_legacy(["\ud800"]) == b'["?"]'


def test_enums_are_written_by_value() -> None:
    class Color(enum.StrEnum):
        RED = "red"

    assert dumps_legacy([RequestCode.REGISTER_BROKER, Color.RED]) == b'[103,"red"]'
    assert dumps_strict([RequestCode.REGISTER_BROKER, Color.RED]) == b'[103,"red"]'
    assert dumps_legacy({0: RequestCode.REGISTER_BROKER, 1: Color.RED}) == b'{0:103,1:"red"}'


def test_fractions_are_written() -> None:
    assert dumps_legacy({0: 1.5}) == b"{0:1.5}"
    assert dumps_strict([1.5]) == b"[1.5]"


@pytest.mark.parametrize("value", [object(), b"bytes", {"a": {1, 2}}, {(1, 2): 3}, {None: 1}, {True: 1}])
def test_unsupported_values_are_refused(value: object) -> None:
    with pytest.raises(TypeError):
        dumps_legacy(value)
    with pytest.raises(TypeError):
        dumps_strict(value)


def test_captured_answers_are_written_byte_for_byte() -> None:
    written: Counter[str] = Counter()
    for request, response in captured_exchanges():
        if response.body is None or not response.body.startswith(b"{"):
            continue
        form = "strict" if _is_strict(request) else "legacy"
        dumps = dumps_strict if form == "strict" else dumps_legacy
        assert dumps(_as_java_has_it(loads(response.body))) == response.body
        written[form] += 1

    assert written == {"legacy": 230, "strict": 380}


def test_captured_registrations_are_written_byte_for_byte() -> None:
    bodies = [each.command.body for each in captured_frames() if each.from_peer and each.command.code == 103]
    texts = [body for body in bodies if body is not None and body.startswith(b"{")]

    assert len(texts) == 117
    assert [text for text in texts if dumps_legacy(_as_java_has_it(loads(text))) != text] == []


@settings(max_examples=examples(150), deadline=None)
@given(text=st.text(alphabet=st.characters(), max_size=12))
def test_both_forms_read_back_as_what_was_written(text: str) -> None:
    expected = text.encode("utf-8", "replace").decode()

    assert loads(dumps_legacy({text: [text]})) == {expected: [expected]}
    if text == expected:
        assert json.loads(dumps_strict({text: [text]})) == {text: [text]}


@settings(max_examples=examples(150), deadline=None)
@given(text=st.text(alphabet=st.characters(max_codepoint=0x2100), max_size=12), number=st.integers(-(2**70), 2**70))
def test_fast_and_slow_writer_give_equal_output(text: str, number: int) -> None:
    value = {text: [text, number, True, (text,)]}

    # orjson is not used if any key is an int.
    assert dumps_legacy({"x": value}) == dumps_legacy({"x": value, "y": {0: 1}}).replace(b',"y":{0:1}', b"")


def _is_strict(request: RemotingCommand) -> bool:
    in_a_zone = request.ext_fields is not None and "__ZONE_MODE" in request.ext_fields
    return request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and request.version >= V4_9_4 and not in_a_zone


def _as_java_has_it(value: Any) -> Any:
    """Return a parsed body with int keys, as in Java's maps."""
    if isinstance(value, list):
        return [_as_java_has_it(item) for item in value]
    if isinstance(value, dict):
        if value and all(key.isdecimal() for key in value):
            return {int(key): _as_java_has_it(item) for key, item in value.items()}
        return {key: _as_java_has_it(item) for key, item in value.items()}
    return value
