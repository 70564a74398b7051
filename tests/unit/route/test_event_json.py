from contextlib import suppress

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.event_json import KIND_OF, decode_record, encode_event, encode_heartbeats
from namesrv_stream.route.events import DIRECT, BrokerHeartbeat, Event, KvPut, Origin, Tick, routing_key
from tests.support.builders import DIRECT_ORIGIN, S1, a_proof, a_registration
from tests.support.examples import examples
from tests.support.strategies_remoting import mutations
from tests.support.strategies_route import events


@settings(max_examples=examples(150))
@given(events())
def test_every_event_is_read_as_it_was_written(event: Event) -> None:
    assert decode_record(encode_event(event)) == [event]


@settings(max_examples=examples(150))
@given(mutations(events().map(encode_event)))
def test_damaged_records_are_read_or_refused_by_name(value: bytes) -> None:
    with suppress(EventDecodeError):
        for event in decode_record(value):
            if isinstance(event, EventDecodeError):
                assert event.reason
            else:
                encode_event(event)


@pytest.mark.parametrize("origin", [S1, DIRECT_ORIGIN], ids=["server", "direct"])
def test_heartbeats_of_one_record_keep_their_order_and_connections(origin: Origin) -> None:
    items = [a_proof(a_registration(f"10.0.0.{n}:1", n), origin, connection=n + 1) for n in range(3)]

    assert decode_record(encode_heartbeats(items)) == items


def test_a_producer_that_names_no_server_is_a_direct_publisher() -> None:
    record = {"schema_version": 1, "kind": "kv_put", "namespace": "n", "key": "k", "value": "v"}

    assert decode_record(orjson.dumps(record)) == [KvPut(Origin(DIRECT, 0), "n", "k", "v")]


def test_unknown_fields_are_ignored() -> None:
    fields = orjson.loads(encode_event(Tick(S1))) | {"later": [1]}

    assert decode_record(orjson.dumps(fields)) == [Tick(S1)]


def test_flags_of_a_topic_are_optional() -> None:
    record = {
        "schema_version": 1,
        "kind": "topic_registered",
        "broker_name": "b",
        "topic": "t",
        "queue_data": [1, 2, 6],
    }

    (event,) = decode_record(orjson.dumps(record))

    assert not isinstance(event, EventDecodeError)
    assert orjson.loads(encode_event(event))["queue_data"] == [1, 2, 6, 0]


@given(events())
def test_each_kind_of_event_has_a_partition_or_is_written_to_all(event: Event) -> None:
    everywhere = {"topic_deleted", "settings_changed", "guard_released", "tick"}
    everywhere |= {"server_started", "server_resumed", "server_stopped"}
    kind = "heartbeat" if isinstance(event, BrokerHeartbeat) else KIND_OF[type(event)]

    assert (routing_key(event) is None) is (kind in everywhere)


@pytest.mark.parametrize("value", [b"null", b"1", b"[]", b'"x"', b"\xff", b"{}{}"])
def test_values_other_than_objects_are_refused(value: bytes) -> None:
    with pytest.raises(EventDecodeError):
        decode_record(value)


@given(st.binary(max_size=40))
def test_garbage_raises_only_a_decode_error(value: bytes) -> None:
    with pytest.raises(EventDecodeError):
        decode_record(value)
