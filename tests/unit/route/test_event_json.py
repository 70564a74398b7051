from contextlib import suppress

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route import event_json
from namesrv_stream.route.event_json import (
    KIND_OF,
    decode_record,
    encode_event,
    encode_heartbeats,
    routing_key,
)
from namesrv_stream.route.events import DIRECT, BrokerHeartbeat, Event, KvPut, Origin, Tick
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


def test_a_producer_that_names_no_server_is_direct() -> None:
    record = {"schema_version": 1, "kind": "kv_put", "namespace": "n", "key": "k", "value": "v"}

    assert decode_record(orjson.dumps(record)) == [KvPut(Origin(DIRECT, 0), "n", "k", "v")]


def test_unknown_fields_are_of_a_newer_producer() -> None:
    fields = orjson.loads(encode_event(Tick(S1))) | {"later": [1]}

    assert decode_record(orjson.dumps(fields)) == [Tick(S1)]


def test_a_topic_may_leave_out_its_flags() -> None:
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
def test_each_kind_of_event_has_a_partition_or_goes_to_all(event: Event) -> None:
    everywhere = {"topic_deleted", "settings_changed", "guard_released", "tick"}
    everywhere |= {"server_started", "server_resumed", "server_stopped"}
    kind = "heartbeat" if isinstance(event, BrokerHeartbeat) else KIND_OF[type(event)]

    assert (routing_key(event) is None) is (kind in everywhere)


@pytest.mark.parametrize("value", [b"null", b"1", b"[]", b'"x"', b"\xff", b"{}{}"])
def test_what_is_no_object_is_refused(value: bytes) -> None:
    with pytest.raises(EventDecodeError):
        decode_record(value)


@given(st.binary(max_size=40))
def test_garbage_raises_nothing_but_a_decode_error(value: bytes) -> None:
    with pytest.raises(EventDecodeError):
        decode_record(value)


_ODD_VALUES: st.SearchStrategy[object] = st.sampled_from(
    ("heartbeat", "registration", "a", "", 0, 7, -1, 2**63 - 1, 2**63, True, None, 1.0, [], {})
)
_ITEM_FIELDS = ("proof", "broker_name", "cluster", "broker_addr", "connection_id", "registration_hash", "x")
_USUAL_ITEM = {"proof": "heartbeat", "broker_name": "a", "cluster": "c", "broker_addr": "b"}


@given(st.dictionaries(st.sampled_from(_ITEM_FIELDS), _ODD_VALUES), st.booleans())
def test_an_item_is_judged_alike_whether_it_looks_usual_or_not(changes: dict[str, object], is_near: bool) -> None:
    item = _USUAL_ITEM | changes if is_near else changes
    record = {"schema_version": 1, "kind": "broker_heartbeats", "server_id": "s", "server_epoch": 1, "items": [item]}
    (found,) = decode_record(orjson.dumps(record))
    expected = vars(event_json)["_decode_item"](orjson.loads(orjson.dumps(item)), Origin("s", 1))
    assert type(found) is type(expected)
    assert found == expected or str(found) == str(expected)
