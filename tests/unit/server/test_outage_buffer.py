"""Unpublished events: the latest of every broker, and changes until they are acknowledged, in order and bounded."""

from dataclasses import replace

import pytest

from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerEvent,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Origin,
    Proof,
    TopicDeleted,
    WritePermChanged,
)
from namesrv_stream.route.model import DataVersion, LiveKey, Registration
from namesrv_stream.route.view.view_layers import Pending
from namesrv_stream.server.gateway.records import Item, OutageBuffer

ORIGIN = Origin("s1", 1, 1)
LIVE = LiveKey("c0", "10.0.0.1:1")


def registered(name: str = "b", digest: str = "h") -> BrokerRegistered:
    return BrokerRegistered(
        ORIGIN, Registration("c0", name, LIVE.broker_addr, 0, "", DataVersion(), {}, registration_hash=digest)
    )


def heartbeat(proof: Proof, name: str = "b") -> BrokerHeartbeat:
    return BrokerHeartbeat(ORIGIN, name, LIVE, proof, "h" if proof is Proof.REGISTRATION else "")


REGISTERED, UNCHANGED, HEARTBEAT = registered(), heartbeat(Proof.REGISTRATION), heartbeat(Proof.HEARTBEAT)
ELSEWHERE = replace(UNCHANGED, origin=Origin("s1", 1, 2))
END, CLOSED = BrokerUnregistered(ORIGIN, "b", LIVE, 0), BrokerDisconnected(ORIGIN, "b", LIVE, "x")
END_ELSEWHERE = replace(END, origin=ELSEWHERE.origin)
DELETE = TopicDeleted(ORIGIN, "t", None)


def item(event: BrokerEvent) -> Item:
    return Item(event, Pending(event))


def events(buffer: OutageBuffer) -> list[AcceptedEvent]:
    return [i.event for i in buffer.to_publish()]


def buffer_of(*found: BrokerEvent) -> OutageBuffer:
    buffer = OutageBuffer()
    for event in found:
        buffer.add(Item(event, None))
    return buffer


@pytest.mark.parametrize(
    ("came", "kept"),
    [
        pytest.param((REGISTERED,), (REGISTERED,), id="a registration"),
        pytest.param((REGISTERED, UNCHANGED), (REGISTERED, UNCHANGED), id="a registration, then unchanged"),
        pytest.param((REGISTERED, UNCHANGED, END), (REGISTERED, END), id="a registration and its unregistration"),
        pytest.param((CLOSED, REGISTERED), (REGISTERED,), id="a registration replaces a disconnect"),
        pytest.param((UNCHANGED, CLOSED), (CLOSED,), id="a disconnect"),
        pytest.param((ELSEWHERE, CLOSED), (ELSEWHERE,), id="the close of an older connection"),
        pytest.param((ELSEWHERE, END), (ELSEWHERE,), id="an unregistration over an older connection"),
        pytest.param((UNCHANGED, END_ELSEWHERE), (END_ELSEWHERE,), id="an unregistration over a newer connection"),
        pytest.param((REGISTERED, CLOSED, HEARTBEAT), (REGISTERED, HEARTBEAT), id="a heartbeat replaces a disconnect"),
        pytest.param((REGISTERED, HEARTBEAT), (REGISTERED,), id="a heartbeat does not replace a registration"),
        pytest.param((HEARTBEAT,), (HEARTBEAT,), id="a heartbeat alone"),
    ],
)
def test_the_latest_event_of_a_broker_is_kept_with_its_registration(
    came: tuple[BrokerEvent, ...], kept: tuple[BrokerEvent, ...]
) -> None:
    assert events(buffer_of(*came)) == list(kept)


def test_registrations_and_unregistrations_do_not_share_a_pending_entry() -> None:
    buffer, first, end = OutageBuffer(), item(UNCHANGED), item(END)
    buffer.add(first)
    assert buffer.add(end) == [first.pending]
    assert buffer.add(item(UNCHANGED)) == [end.pending]


def test_the_pending_entry_of_an_unregistration_over_an_older_connection_is_returned_at_once() -> None:
    buffer, end = OutageBuffer(), item(END)
    buffer.add(item(ELSEWHERE))
    assert buffer.add(end) == [end.pending]


def test_pending_entries_that_will_never_be_published_are_returned() -> None:
    buffer, first, life, end = OutageBuffer(), item(REGISTERED), item(UNCHANGED), item(END)
    newer = item(registered(digest="2"))
    assert [buffer.add(each) for each in (first, life, end)] == [[], [], [life.pending]]
    assert buffer.add(newer) == [first.pending, end.pending]
    assert events(buffer) == [newer.event]


def test_the_pending_entry_of_an_event_without_a_broker_process_is_returned_at_once() -> None:
    buffer, change = OutageBuffer(), item(WritePermChanged(ORIGIN, "b", False))
    assert buffer.add(change) == [change.pending]
    assert buffer.brokers == 0


@pytest.mark.parametrize("event", [HEARTBEAT, UNCHANGED])
def test_an_event_that_is_added_during_publication_is_kept(event: BrokerEvent) -> None:
    buffer = buffer_of(REGISTERED, registered("c"))
    buffer.to_publish()
    buffer.add(Item(event, None))
    buffer.published()
    assert events(buffer)[0] == REGISTERED
    assert buffer.brokers == 1


def test_the_buffer_is_bounded_by_the_number_of_brokers() -> None:
    buffer = buffer_of(*(registered(digest=str(i)) for i in range(100)))
    assert (buffer.brokers, len(buffer.to_publish())) == (1, 1)


def test_events_and_changes_are_published_in_the_order_of_acceptance() -> None:
    buffer = OutageBuffer()
    first, change, last = Item(REGISTERED, None, 1), Item(DELETE, None, 2), Item(registered("c"), None, 3)
    buffer.add_change(change)
    for each in (last, first):
        buffer.add(each)
    assert buffer.to_publish() == [first, change, last]


def test_a_change_is_published_until_it_is_in_the_log() -> None:
    buffer, items = OutageBuffer(), [Item(DELETE, None, number) for number in (1, 2)]
    for each in items:
        buffer.add_change(each)
    buffer.acked(items[:1])
    assert buffer.to_publish() == items[1:]
    buffer.published()  # changes are removed by their acknowledgement only
    assert buffer.changes == 1
    buffer.acked(items)
    assert (buffer.to_publish(), buffer.changes) == ([], 0)
