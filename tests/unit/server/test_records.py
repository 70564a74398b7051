"""Events as records: order, shared records, and events that fit into no record."""

import orjson
import pytest

from namesrv_stream.route.events import BrokerEvent, BrokerHeartbeat, BrokerUnregistered, Origin, Proof
from namesrv_stream.route.model import LiveKey
from namesrv_stream.server.gateway.records import Item, OutRecord, Unloggable, records_of

ORIGIN = Origin("s1", 1, 1)
LIVE = LiveKey("c0", "10.0.0.1:1")


def heartbeat(name: str) -> Item:
    return Item(BrokerHeartbeat(ORIGIN, name, LIVE, Proof.HEARTBEAT), None)


def unregistration(name: str) -> Item:
    event: BrokerEvent = BrokerUnregistered(ORIGIN, name, LIVE, 0)
    return Item(event, None)


def test_consecutive_heartbeats_share_a_record_and_the_order_is_kept() -> None:
    items = [heartbeat("a"), heartbeat("b"), unregistration("a"), heartbeat("c")]
    records = list(records_of(0, items, 1 << 20))
    assert all(isinstance(r, OutRecord) for r in records)
    assert [[i for i in r.items] for r in records if isinstance(r, OutRecord)] == [items[:2], items[2:3], items[3:]]


def test_a_record_contains_at_most_two_thousand_heartbeats() -> None:
    records = list(records_of(0, [heartbeat(str(i)) for i in range(4_001)], 1 << 20))
    assert [len(r.items) for r in records if isinstance(r, OutRecord)] == [2_000, 2_000, 1]


def test_heartbeats_that_are_too_large_for_one_record_are_split() -> None:
    items = [heartbeat(str(i) * 300) for i in range(8)]
    records = list(records_of(0, items, 1_000))
    assert [i for r in records if isinstance(r, OutRecord) for i in r.items] == items
    assert all(len(r.value) <= 1_000 for r in records if isinstance(r, OutRecord))


@pytest.mark.parametrize("name", [pytest.param("x" * 2_000, id="large"), pytest.param("\ud800", id="no text")])
def test_an_event_that_fits_into_no_record_is_reported_and_others_are_published(name: str) -> None:
    items = [heartbeat("a"), heartbeat(name), heartbeat("b")]
    records = list(records_of(0, items, 1_000))
    assert [r.item for r in records if isinstance(r, Unloggable)] == [items[1]]
    names = [h["broker_name"] for r in records if isinstance(r, OutRecord) for h in orjson.loads(r.value)["items"]]
    assert names == ["a", "b"]
