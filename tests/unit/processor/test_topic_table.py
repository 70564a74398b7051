"""A topic table that is read in pieces, or only where it differs, says what the general decoder says."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.processor import register_body, topic_table
from namesrv_stream.processor.known_tables import KnownTables
from namesrv_stream.processor.register_body import RegisterBrokerBody, decode_in_steps, decode_register_body
from namesrv_stream.processor.steps import at_once
from namesrv_stream.processor.topic_table import KnownTable
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.model import LiveKey, QueueData
from tests.support.examples import examples
from tests.support.name_server import V5_3_3, a_topic_config
from tests.support.strategies_remoting import mutations

NAMES = st.sampled_from([f"topic-{n}" for n in range(30)]) | st.sampled_from(("{", "}}", "},", "a{}}", ":{", "Ä", ""))
ODD_CONFIGS: st.SearchStrategy[object] = st.sampled_from(
    (
        {},
        {"topicName": "topic-1"},
        {"perm": "4"},
        {"perm": "x"},
        None,
        7,
        [],
        {"attributes": {"a": {"b": {}}}, "perm": 4},
        {"order": {"topicConfigTable": {}}},
        {"topicName": "a\\b"},
        {"topicName": "\u2028"},
        {"$ref": "$"},
    )
)


def _body(entries: list[tuple[str, object]], form: str, stamp: int) -> bytes:
    """A body whose table has these entries in this order, keys twice where they are."""
    table = ",".join(f"{json.dumps(k, ensure_ascii=False)}:{json.dumps(v, separators=(',', ':'))}" for k, v in entries)
    stamped = f'"mappingDataVersion":{{"counter":0,"stateVersion":0,"timestamp":{stamp}}}'
    wrapper = {
        "5.x": f'"dataVersion":{{"counter":1}},{stamped},"topicConfigTable":{{{table}}},'
        '"topicQueueMappingDetailMap":{}',
        "static": f'"topicConfigTable":{{{table}}},"topicQueueMappingDetailMap":{{}},'
        '"topicQueueMappingInfoMap":{"s":{"bname":"b","currIdMap":{0:0},"topic":"s"}}',
        "4.x": f'"dataVersion":{{"counter":1,"timestamp":5}},"topicConfigTable":{{{table}}}',
        "twice": f'"topicConfigTable":{{{table}}},"topicConfigTable":{{}},"topicQueueMappingDetailMap":{{}}',
        "elsewhere": f'"x":{{"topicConfigTable":{{{table}}}}},"topicQueueMappingDetailMap":{{}}',
    }[form]
    return f'{{"filterServerList":["f"],"topicConfigSerializeWrapper":{{{wrapper}}}}}'.encode()


FORMS = st.sampled_from(("5.x", "5.x", "5.x", "4.x", "static", "twice", "elsewhere"))
USUAL = st.builds(lambda name, queues: (name, a_topic_config(name, queues)), NAMES, st.integers(0, 3))
ENTRIES = st.lists(USUAL | USUAL | USUAL | st.tuples(NAMES, ODD_CONFIGS), max_size=25)
BODIES = st.builds(_body, ENTRIES, FORMS, st.integers(0, 2))


@pytest.fixture(autouse=True, scope="module")
def _short_pieces() -> Iterator[None]:
    """Pieces of an entry or two, and a step for each, so that short bodies have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_table, "_PIECE_BYTES", 150)
        patch.setattr(topic_table, "_PIECES_A_STEP", 1)
        patch.setattr(register_body, "_SHORT_BYTES", 0)
        yield


def outcome_in_general(body: bytes) -> RegisterBrokerBody | str:
    try:
        return decode_register_body(body, compressed=False, version=V5_3_3)
    except BodyDecodeError as error:
        return str(error)


def outcome(body: bytes, known: KnownTable | None) -> tuple[RegisterBrokerBody | str, KnownTable | None]:
    try:
        return at_once(decode_in_steps(body, compressed=False, version=V5_3_3, known=known))
    except BodyDecodeError as error:
        return str(error), None


@settings(max_examples=examples(100))
@given(st.lists(BODIES, max_size=4))
def test_any_bodies_one_after_the_other_say_what_they_say_in_general(bodies: list[bytes]) -> None:
    known = None
    for body in bodies:
        found, table = outcome(body, known)
        known = table or known
        assert found == outcome_in_general(body)


@settings(max_examples=examples(100))
@given(st.lists(USUAL, min_size=5, max_size=25, unique_by=lambda e: e[0]), st.data())
def test_any_change_of_a_usual_body_says_what_it_says_in_general(
    entries: list[tuple[str, object]], data: st.DataObject
) -> None:
    _, known = outcome(_body(entries, "5.x", 0), None)
    changed = list(entries)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(changed)))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.lists(USUAL, max_size=2))
    body = _body(changed, "5.x", 1)
    found, table = outcome(body, known)
    assert found == outcome_in_general(body)
    assert outcome(_body(entries, "5.x", 2), table)[0] == outcome_in_general(_body(entries, "5.x", 2))


@settings(max_examples=examples(100))
@given(BODIES, mutations(BODIES))
def test_a_damaged_body_is_judged_as_in_general(body: bytes, damaged: bytes) -> None:
    _, known = outcome(body, None)
    assert outcome(damaged, known)[0] == outcome_in_general(damaged)


def test_of_a_usual_body_only_the_difference_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [(f"t{n}", a_topic_config(f"t{n}", 4)) for n in range(200)]
    _, known = outcome(_body(list(entries), "5.x", 0), None)
    read: list[str] = []
    read_topic = vars(register_body)["_topic"]

    def counting(config: object, key: str, shapes: dict[tuple[object, ...], QueueData]) -> tuple[str, QueueData]:
        read.append(key)
        name_and_queues: tuple[str, QueueData] = read_topic(config, key, shapes)
        return name_and_queues

    monkeypatch.setattr(register_body, "_topic", counting)
    assert outcome(_body(list(entries), "5.x", 1), known)[1] is known
    assert read == []
    entries[100] = ("t100", a_topic_config("t100", 5))
    found, table = outcome(_body(list(entries), "5.x", 2), known)
    assert isinstance(found, RegisterBrokerBody)
    assert table is not None
    assert found.topics["t100"].read_queue_nums == 5
    assert "t100" in read
    assert len(read) <= 4


def test_tables_are_forgotten_by_their_size_those_first_that_were_used_longest_ago() -> None:
    table = KnownTable(bytes(1_000), (1,), {})
    tables = KnownTables(max_bytes=3 * table.size)
    keys = [LeaseKey("b", LiveKey("c", str(n))) for n in range(4)]
    for key in keys[:3]:
        tables.put(key, table)
    tables.put(keys[0], table)
    tables.put(keys[3], table)
    assert [tables.get(key) is not None for key in keys] == [True, False, True, True]
    tables.forget(keys[0])
    tables.put(keys[1], table)
    assert [tables.get(key) is not None for key in keys] == [False, True, True, True]
