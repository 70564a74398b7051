"""Spark's stateful processor without a JVM equals the fold, however the log is divided into calls."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.digest import encode_group
from namesrv_stream.route.events import TopicDeleted
from namesrv_stream.route.fold.state import decode_state, encode_state
from namesrv_stream.route.fold.step import DeadLetter, Record
from namesrv_stream.streaming.route_table.stateful import (
    GROUPS_STATE,
    HOT_STATE,
    BatchTooLarge,
    RouteStatefulProcessor,
    decode_dead_letters,
    encode_dead_letters,
    records_that_fit,
)
from namesrv_stream.tables.change_rows import changes_from_ipc, decode_changes
from tests.support.builders import BEGIN_MS, DIRECT_ORIGIN, RW, S1, Log, a_registration
from tests.support.examples import examples
from tests.support.strategies_route import Entry, logs

_INTERVAL_MS = 60_000


def _tester(initial: list[tuple[int, Row]] | None = None) -> TwsTester:
    return TwsTester(RouteStatefulProcessor(1, _INTERVAL_MS), initialStateRow=initial)


def _rows(records: Iterable[Record]) -> list[Row]:
    return [Row(partition=r.partition, offset=r.offset, at_ms=r.at_ms, value=r.value) for r in records]


def _changes(outputs: Iterable[Row]) -> list[RouteChange]:
    return [c for o in outputs if o.changes is not None for c in decode_changes(changes_from_ipc(o.changes))]


def _log(entries: list[Entry]) -> Log:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    return log


@settings(max_examples=examples(50))
@given(logs(), st.integers(0, 30))
def test_rows_and_state_do_not_depend_on_how_the_log_is_split(entries: list[Entry], cut: int) -> None:
    log = _log(entries)
    tester = _tester()
    outputs = [o for part in (log.records[:cut], log.records[cut:]) if part for o in tester.test(0, _rows(part))]
    assert _changes(outputs) == log.output.changes
    assert outputs[-1].next_offset == len(log.records)
    content, _ = tester.peekValueState(HOT_STATE, 0) or (b"", 0)
    assert bytes(content) == encode_state(log.state)
    stored = tester.peekMapState(GROUPS_STATE, 0)
    assert {k[0]: bytes(v[0]) for k, v in stored.items()} == {n: encode_group(g) for n, g in log.groups.groups.items()}


def test_records_are_folded_in_the_order_of_offsets_whatever_the_order_of_their_delivery() -> None:
    log = Log()
    log.register(a_registration())
    log.say(TopicDeleted(S1, "TopicTest", None))
    assert _changes(_tester().test(0, _rows(reversed(log.records)))) == log.output.changes


def test_a_batch_with_too_many_rows_fails_unless_it_has_one_record() -> None:
    log = Log()
    for number in range(2):
        log.register(a_registration(topics={f"topic-{n}": RW for n in range(20)}, broker_name=f"broker-{number}"))
    tester = TwsTester(RouteStatefulProcessor(1, _INTERVAL_MS, most_rows=30))

    with pytest.raises(BatchTooLarge) as failure:
        tester.test(0, _rows(log.records))
    assert records_that_fit(RuntimeError(f"Spark failed: BatchTooLarge: {failure.value} …")) == 1

    one_by_one = TwsTester(RouteStatefulProcessor(1, _INTERVAL_MS, most_rows=3))
    assert _changes(o for r in log.records for o in one_by_one.test(0, _rows([r]))) == log.output.changes


def test_state_is_emitted_first_and_whenever_log_time_passes_the_interval() -> None:
    log = Log(begin_ms=BEGIN_MS // _INTERVAL_MS * _INTERVAL_MS)
    for _ in range(4):
        log.tick(_INTERVAL_MS // 2)
    tester = _tester()
    outputs = [o for r in log.records for o in tester.test(0, _rows([r]))]
    assert [o.state is not None for o in outputs] == [True, True, False, True]
    assert decode_state(bytes(outputs[-1].state)).next_offset == outputs[-1].next_offset == 4


def test_an_initial_state_is_continued_exactly() -> None:
    log = Log()
    log.register(a_registration())
    hot, group = encode_state(log.state), log.groups.groups["broker-a"]
    initial = [
        (0, Row(partition=0, broker_name=None, content=hot)),
        (0, Row(partition=0, broker_name="broker-a", content=encode_group(group))),
    ]
    before = len(log.output.changes)
    log.say(TopicDeleted(S1, "TopicTest", None), after_ms=500)
    assert _changes(_tester(initial).test(0, _rows(log.records[1:]))) == log.output.changes[before:]


def test_last_row_says_whether_direct_publishers_have_brokers_in_the_partition() -> None:
    log = Log()
    log.register(a_registration())
    log.register(a_registration("10.0.0.2:10911", 1), DIRECT_ORIGIN)
    tester = _tester()
    assert [o.has_direct for r in log.records for o in tester.test(0, _rows([r]))] == [False, True]


def test_a_dead_letter_names_record_and_reason() -> None:
    log = Log()
    log.append(b"{")
    (output,) = _tester().test(0, _rows(log.records))
    (letter,) = orjson.loads(output.dead_letters)
    assert (letter["partition"], letter["offset"], letter["item"], letter["value_text"]) == (0, 0, -1, "{")
    assert letter["reason"].startswith("not JSON")


def test_many_changes_are_emitted_in_pieces() -> None:
    log = Log()
    topics = {f"topic-{n}": a_registration().topics["baseTopic"] for n in range(15_000)}
    for name in ("a", "b"):
        log.register(a_registration(broker_name=name, topics=topics))
    outputs = _tester().test(0, _rows(log.records))
    assert [(o.next_offset, o.first_ms is not None) for o in outputs] == [(2, False), (2, True)]
    assert _changes(outputs) == log.output.changes


def _letter(item: int, value: bytes) -> dict[str, Any]:
    (record,) = decode_dead_letters(encode_dead_letters([DeadLetter(2, 30, item, "why")], {30: value}))
    assert (record.partition, record.offset, record.key) == (2, 30, f"2-30-{item}".encode())
    fields: dict[str, Any] = orjson.loads(record.value)
    assert (fields["partition"], fields["offset"], fields["item"], fields["reason"]) == (2, 30, item, "why")
    return fields


def test_dead_letter_of_an_item_has_only_the_item() -> None:
    assert _letter(1, b'{"items":[1,{"a":2}]}')["value"] == {"a": 2}


def test_dead_letter_of_a_single_event_has_the_whole_record() -> None:
    assert _letter(0, b'{"kind":"tick"}')["value"] == {"kind": "tick"}


def test_invalid_json_is_stored_as_text() -> None:
    assert _letter(-1, b"{")["value_text"] == "{"


def test_invalid_utf_8_is_stored_in_base64() -> None:
    assert _letter(-1, b"\xff")["value_base64"] == "/w=="


def test_long_record_is_truncated_with_its_length() -> None:
    fields = _letter(-1, b"x" * 3_000_000)
    assert len(fields["value_text"]) == 1 << 20
    assert fields["value_bytes"] == 3_000_000


def test_too_deeply_nested_item_is_stored_as_text() -> None:
    # orjson reads 1,024 levels and writes 254: such an item must not stop the job.
    for depth in (250, 252, 254, 300):
        item = b"[" * depth + b"]" * depth
        assert {"value", "value_text"} & _letter(0, b'{"items":[' + item + b"]}").keys()


def test_long_reason_is_truncated() -> None:
    letters = encode_dead_letters([DeadLetter(0, 0, -1, "x" * 20_000_000)], {0: b"{"})
    (record,) = decode_dead_letters(letters)
    assert len(record.value) < 2_000


def test_many_failed_items_of_a_large_record_cost_no_more_than_the_record() -> None:
    items = [{"n": n, "text": "x" * 100} for n in range(20_000)]
    value = orjson.dumps({"items": items})
    letters = [DeadLetter(0, 0, n, "why") for n in range(len(items))]
    records = decode_dead_letters(encode_dead_letters(letters, {0: value}))
    assert orjson.loads(records[-1].value)["value"] == items[-1]


def test_many_large_records_are_not_collected_in_memory() -> None:
    values = dict.fromkeys(range(200), b"x" * 1_000_000)
    data = encode_dead_letters([DeadLetter(0, offset, -1, "why") for offset in values], values)
    assert len(data) < 40_000_000
    last = orjson.loads(decode_dead_letters(data)[-1].value)
    assert (last["offset"], last["value_bytes"]) == (199, 1_000_000)
