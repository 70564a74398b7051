"""A dead letter helps whoever reads it."""

from typing import Any

import orjson

from namesrv_stream.route.fold.step import DeadLetter
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


def test_an_item_too_deep_to_be_written_as_json_is_given_as_text() -> None:
    # orjson reads 1,024 levels and writes 254: such an item must not stop the job.
    for depth in (250, 252, 254, 300):
        item = b"[" * depth + b"]" * depth
        assert {"value", "value_text"} & _letter(0, b'{"items":[' + item + b"]}").keys()


def test_a_long_reason_is_cut() -> None:
    letters = encode_dead_letters([DeadLetter(0, 0, -1, "x" * 20_000_000)], {0: b"{"})
    (record,) = decode_dead_letters(letters)
    assert len(record.value) < 2_000


def test_many_failed_items_of_a_large_record_cost_no_more_than_the_record() -> None:
    items = [{"n": n, "text": "x" * 100} for n in range(20_000)]
    value = orjson.dumps({"items": items})
    letters = [DeadLetter(0, 0, n, "why") for n in range(len(items))]
    records = decode_dead_letters(encode_dead_letters(letters, {0: value}))
    assert orjson.loads(records[-1].value)["value"] == items[-1]


def test_many_large_records_are_not_gathered_whole() -> None:
    values = dict.fromkeys(range(200), b"x" * 1_000_000)
    data = encode_dead_letters([DeadLetter(0, offset, -1, "why") for offset in values], values)
    assert len(data) < 40_000_000
    last = orjson.loads(decode_dead_letters(data)[-1].value)
    assert (last["offset"], last["value_bytes"]) == (199, 1_000_000)
