"""A dead letter helps whoever reads it."""

from typing import Any

import orjson

from namesrv_stream.route.fold import DeadLetter
from namesrv_stream.streaming.dead_letters import decode_dead_letters, encode_dead_letters


def _letter(item: int, value: bytes) -> dict[str, Any]:
    (record,) = decode_dead_letters(encode_dead_letters([DeadLetter(2, 30, item, "why")], {30: value}))
    assert (record.partition, record.offset, record.key) == (2, 30, f"2-30-{item}".encode())
    fields: dict[str, Any] = orjson.loads(record.value)
    assert (fields["partition"], fields["offset"], fields["item"], fields["reason"]) == (2, 30, item, "why")
    return fields


def test_an_item_is_given_alone() -> None:
    assert _letter(1, b'{"items":[1,{"a":2}]}')["value"] == {"a": 2}


def test_the_only_event_of_a_record_is_given_whole() -> None:
    assert _letter(0, b'{"kind":"tick"}')["value"] == {"kind": "tick"}


def test_what_is_no_json_is_given_as_text() -> None:
    assert _letter(-1, b"{")["value_text"] == "{"


def test_what_is_no_text_is_given_in_base64() -> None:
    assert _letter(-1, b"\xff")["value_base64"] == "/w=="


def test_a_long_record_is_cut_and_its_length_told() -> None:
    fields = _letter(-1, b"x" * 3_000_000)
    assert len(fields["value_text"]) == 1 << 20
    assert fields["value_bytes"] == 3_000_000
