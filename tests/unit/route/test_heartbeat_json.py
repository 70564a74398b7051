"""Heartbeats that are known by their bytes: the same events as JSON has, or none at all."""

from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.event_fields import read_head
from namesrv_stream.route.events import Origin
from namesrv_stream.route.heartbeat_json import KnownHeartbeats, encode_heartbeats, heartbeat_from
from tests.support.builders import S1, S2, a_proof, a_registration
from tests.support.examples import examples

FLEET = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(20)]


def by_json(value: bytes) -> list[str] | None:
    """What the decoder of all records makes of one, as text; None for none of heartbeats."""
    with suppress(orjson.JSONDecodeError, EventDecodeError, KeyError):
        fields = orjson.loads(value)
        kind, origin = read_head(fields)
        if kind == "broker_heartbeats" and type(fields["items"]) is list:
            return as_text([heartbeat_from(item, origin) for item in fields["items"]])
    return None


def as_text(items: list[Any]) -> list[str]:
    return [repr(item) for item in items]


def a_record(items: list[Any], **head: Any) -> bytes:
    usual = {"schema_version": 1, "kind": "broker_heartbeats", "server_id": "s", "server_epoch": 1}
    return orjson.dumps(usual | head | {"items": items})


_TEXTS: st.SearchStrategy[Any] = st.sampled_from(
    ("a", "", "},{", '"items":[{', "}]}", '"', "\\", '\\"', "},{}", "é", "\U0001f600", "heartbeat", "registration")
)
_ODD: st.SearchStrategy[Any] = _TEXTS | st.sampled_from(
    (0, 7, -1, 2**63 - 1, 2**63, True, None, 1.0, [], {}, [{}, {}], [{"a": 1}, {"b": 2}], {"items": [{}]})
)
_FIELDS = ("proof", "broker_name", "cluster", "broker_addr", "connection_id", "registration_hash", "items", "},{")
_USUAL = {"cluster": "c", "broker_name": "a", "broker_addr": "b", "proof": "heartbeat"}
_ITEMS: st.SearchStrategy[Any] = st.one_of(
    st.just(_USUAL),
    st.dictionaries(st.sampled_from(_FIELDS), _ODD, max_size=3).map(lambda odd: _USUAL | odd),
    _ODD,
)
_HEADS = st.dictionaries(
    st.sampled_from(("schema_version", "kind", "server_id", "server_epoch", "connection_id", '\\"items', "x")),
    _ODD | st.just(1),
    max_size=2,
)


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.lists(_ITEMS, max_size=4), _HEADS | st.just({})), max_size=8), st.integers(0, 4))
def test_what_is_known_is_what_json_has_whatever_was_read_before(
    records: list[tuple[list[Any], dict[str, Any]]], capacity: int
) -> None:
    known = KnownHeartbeats(capacity)
    for items, head in records * 2:
        value = a_record(items, **head)
        read = known.read(value)
        if read is not None:
            assert as_text(read) == by_json(value)


_HEAD = '{"schema_version":1,"kind":"broker_heartbeats",'
_ITEM = '"cluster":"c","broker_name":"a","broker_addr":"b","proof":"heartbeat"'
_TOKENS = (
    _ITEM,
    _ITEM,
    ',"broker_name":"z"',
    _HEAD,
    '"items":[{',
    "},{",
    "}]}",
    "{",
    "}",
    "[",
    "]",
    ",",
    '"',
    "\\",
    '"x":',
    "1",
    '"items":',
    " ",
    '"a":1',
)


@settings(max_examples=examples(300))
@given(st.lists(st.lists(st.sampled_from(_TOKENS), max_size=9), max_size=6))
def test_a_record_is_never_taken_for_what_json_would_not(records: list[list[str]]) -> None:
    known = KnownHeartbeats(100)
    for tokens in records:
        for value in ("".join(tokens).encode(), "".join([_HEAD, '"items":[{', *tokens, "}]}"]).encode()):
            read, read_first = known.read(value), KnownHeartbeats(100).read(value)
            assert (read is None) == (read_first is None)
            assert read is None or as_text(read) == by_json(value)


def test_an_item_is_read_once_and_again_in_whatever_company() -> None:
    known = KnownHeartbeats(100)
    beats = [a_proof(registration) for registration in FLEET]
    first = known.read(encode_heartbeats(beats))
    assert first == beats

    again = known.read(encode_heartbeats([beats[7], beats[3]]))

    assert again is not None
    assert again[0] is first[7]
    assert again[1] is first[3]
    mixed = known.read(encode_heartbeats([beats[0], a_proof(FLEET[0], connection=99)]))
    assert mixed is not None
    assert mixed[0] is first[0]
    assert mixed[1] == a_proof(FLEET[0], connection=99)


@pytest.mark.parametrize("origin", [S2, S1._replace(server_epoch=S1.server_epoch + 1)], ids=["server", "start"])
def test_the_same_item_of_another_origin_is_its_own(origin: Origin) -> None:
    known = KnownHeartbeats(100)
    for sender in (S1, origin, S1):
        beats = [a_proof(FLEET[0], sender)]
        assert known.read(encode_heartbeats(beats)) == beats


def test_no_more_is_known_than_was_asked_for_and_one_record() -> None:
    known = KnownHeartbeats(30)
    for epoch in range(50):
        beats = [a_proof(r, S1._replace(server_epoch=epoch)) for r in FLEET]
        assert known.read(encode_heartbeats(beats)) == beats
        assert len(known) <= 30 + 1 + len(FLEET)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b'{"kind":"tick"}',
        a_record([_USUAL])[:-1],
        a_record([_USUAL]) + b" ",
        a_record([_USUAL])[1:],
        a_record([_USUAL], schema_version=2),
        a_record([_USUAL], kind="tick"),
        a_record([_USUAL], x="y" * 500),
        a_record([_USUAL | {"x": "y" * 500}]),
        a_record([_USUAL | {"x": 1}]).replace(b":1}", b":" + b"[" * 1022 + b"]" * 1022 + b"}"),
        a_record([_USUAL | {"connection_id": n} for n in range(2_001)]),
        a_record([_USUAL, _USUAL | {"x": "},{"}]),
        a_record([_USUAL]).replace(b'"items"', b'"\\"items"'),
        orjson.dumps(orjson.loads(a_record([_USUAL])), option=orjson.OPT_INDENT_2),
    ],
)
def test_what_has_another_form_is_for_the_decoder_of_all(value: bytes) -> None:
    known = KnownHeartbeats(100)
    assert known.read(a_record([_USUAL])) is not None
    assert known.read(value) is None
