"""A stored registration keeps its content, whether it is decoded or not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.model import Registration, TopicQueueMappingInfo
from namesrv_stream.route.registration_json import (
    RetainedRegistration,
    decode_mapping,
    decode_registration,
    encode_mapping,
    encode_registration,
    mapping_fields,
    mapping_from,
    queue_data_from,
    registration_from,
    retained,
)
from tests.support.builders import READ_ONLY, RW, a_mapping, a_registration
from tests.support.strategies_route import QUEUE_DATA, mappings, registrations


@given(registrations())
def test_a_registration_is_read_as_it_was_written(registration: Registration) -> None:
    assert decode_registration(encode_registration(registration)) == registration


@given(mappings())
def test_a_static_mapping_is_read_as_it_was_written(info: TopicQueueMappingInfo) -> None:
    assert decode_mapping(encode_mapping(info)) == info


@pytest.mark.parametrize("name", ["cluster", "broker_name", "broker_addr", "broker_id", "data_version", "topics"])
def test_a_missing_field_is_named(name: str) -> None:
    fields = _fields()
    del fields[name]

    with pytest.raises(EventDecodeError) as caught:
        registration_from(fields)

    assert name in caught.value.reason


@pytest.mark.parametrize("queues", [{"a": 1}, {"0": 1.5}, {"0": "1"}, {"0": 2**31}, {str(2**31): 0}, {"0": None}])
def test_queue_ids_that_are_not_32_bit_integers_are_refused(queues: dict[str, object]) -> None:
    with pytest.raises(EventDecodeError):
        mapping_from(mapping_fields(a_mapping()) | {"curr_id_map": queues})


def test_optional_fields_may_be_absent() -> None:
    fields = _fields()
    for name in ("timeout_ms", "enable_acting_master", "zone_name", "filter_servers", "ha_server_addr"):
        del fields[name]

    registration = registration_from(fields)

    assert (registration.timeout_ms, registration.enable_acting_master, registration.filter_servers) == (None,) * 3


@given(st.lists(st.lists(st.sampled_from([0, 1, True, 1.0, 4, 2**31, "1", None]), max_size=5), max_size=4))
def test_topics_are_decoded_independently(values: list[list[object]]) -> None:
    topics = {f"t{i}": value for i, value in enumerate(values)}
    fields = _fields() | {"topics": topics}
    assert _outcome(lambda: registration_from(fields).topics) == _outcome(
        lambda: {topic: queue_data_from(value, f"topics.{topic}") for topic, value in topics.items()}
    )


def _fields() -> dict[str, Any]:
    fields: dict[str, Any] = orjson.loads(encode_registration(a_registration()))
    return fields


def _outcome(read: Callable[[], object]) -> object:
    try:
        return read()
    except EventDecodeError as error:
        return error.reason


def _unread(registration: Registration) -> RetainedRegistration:
    text = encode_registration(registration)
    return RetainedRegistration(registration.registration_hash, registration.broker_id, text)


@given(registrations())
def test_undecoded_registration_equals_the_registered_one(registration: Registration) -> None:
    assert _unread(registration).read() == registration
    assert _unread(registration) == retained(registration)


@given(st.lists(registrations(), min_size=2, max_size=2))
def test_registrations_are_equal_exactly_when_their_content_is(pair: list[Registration]) -> None:
    one, other = (replace(registration, registration_hash="same") for registration in pair)
    for left in (retained(one), _unread(one)):
        for right in (retained(other), _unread(other)):
            assert (left == right) is (one == other)


#: Names that look like parts of the text, if quotation marks and backslashes in names are not considered.
_PARTS = (
    '"',
    "\\",
    "{",
    "}",
    "[1]",
    ",",
    ":",
    "t",
    "topics",
    "filter_servers",
    "topic_mappings",
    "data_version",
    "null",
)
_ODD_NAMES = st.lists(st.sampled_from(_PARTS), min_size=1, max_size=6).map("".join)
_ODD_REGISTRATIONS = st.builds(
    replace,
    registrations(),
    cluster=_ODD_NAMES,
    broker_name=_ODD_NAMES,
    ha_server_addr=_ODD_NAMES,
    zone_name=_ODD_NAMES,
    filter_servers=st.none() | st.lists(_ODD_NAMES, max_size=2).map(tuple),
    topics=st.dictionaries(_ODD_NAMES, QUEUE_DATA, max_size=12),
    topic_mappings=st.none() | st.dictionaries(_ODD_NAMES, mappings(_ODD_NAMES), max_size=2),
)


@given(registrations() | _ODD_REGISTRATIONS, st.lists(_ODD_NAMES, max_size=8))
def test_parts_of_an_undecoded_registration_are_those_of_the_registered_one(
    registration: Registration, other_topics: list[str]
) -> None:
    asked = {*other_topics, *list(registration.topics)[:8]}
    for kept in (_unread(registration), retained(registration)):
        assert (kept.data_version, kept.timeout_ms) == (registration.data_version, registration.timeout_ms)
        assert list(kept.topics()) == list(registration.topics)
        assert kept.topic_mappings() == (registration.topic_mappings or {})
        for topics in ([topic] for topic in asked):
            queues = kept.queues_of(topics)
            assert [queues.get(topic) for topic in topics] == [registration.topics.get(topic) for topic in topics]
        queues = kept.queues_of(asked)
        assert [queues.get(topic) for topic in asked] == [registration.topics.get(topic) for topic in asked]


def test_the_order_of_topics_has_no_meaning() -> None:
    one = a_registration(topics={"a": RW, "b": READ_ONLY})
    other = a_registration(topics={"b": READ_ONLY, "a": RW})
    assert _unread(one) == _unread(other)


def test_after_encoding_only_the_text_is_kept() -> None:
    registration = a_registration()
    kept = retained(registration)
    assert kept.read() is registration
    assert kept.text == encode_registration(registration)
    assert kept.read() is not registration
