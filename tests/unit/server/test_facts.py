"""Facts: the last of each broker, in order, bounded."""

from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerEvent,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Origin,
    Proof,
    WritePermChanged,
)
from namesrv_stream.route.model import DataVersion, LiveKey, Registration
from namesrv_stream.route.view import Pending
from namesrv_stream.server.facts import Facts
from namesrv_stream.server.records import Item

ORIGIN = Origin("s1", 1, 1)
LIVE = LiveKey("c0", "10.0.0.1:1")


def registered(name: str = "b", digest: str = "h") -> BrokerRegistered:
    return BrokerRegistered(
        ORIGIN, Registration("c0", name, LIVE.broker_addr, 0, "", DataVersion(), {}, registration_hash=digest)
    )


def heartbeat(proof: Proof, name: str = "b") -> BrokerHeartbeat:
    return BrokerHeartbeat(ORIGIN, name, LIVE, proof, "h" if proof is Proof.REGISTRATION else "")


def item(event: BrokerEvent) -> Item:
    return Item(event, Pending(event))


def said(facts: Facts) -> list[AcceptedEvent]:
    return [i.event for fact in facts.all() for i in fact.items()]


def test_a_registration_is_said_once() -> None:
    facts = Facts()
    facts.remember(item(registered()))
    assert said(facts) == [registered()]


def test_a_registration_is_said_before_the_life_behind_it() -> None:
    facts = Facts()
    for event in (registered(), heartbeat(Proof.REGISTRATION)):
        facts.remember(item(event))
    assert said(facts) == [registered(), heartbeat(Proof.REGISTRATION)]


def test_an_unchanged_registration_stays_in_the_view_by_the_ticket_of_the_one_before() -> None:
    facts = Facts()
    first = item(heartbeat(Proof.REGISTRATION))
    facts.remember(first)
    assert facts.remember(Item(heartbeat(Proof.REGISTRATION), None, 2)) == []
    (fact,) = facts.all()
    assert (fact.last.pending, fact.last.number) == (first.pending, 2)


def test_the_ticket_of_a_registration_is_none_of_the_goodbye_behind_it() -> None:
    facts = Facts()
    first, end = item(heartbeat(Proof.REGISTRATION)), item(BrokerUnregistered(ORIGIN, "b", LIVE, 0))
    facts.remember(first)
    assert facts.remember(end) == [first.pending]
    assert facts.remember(item(heartbeat(Proof.REGISTRATION))) == [end.pending]


def test_a_registration_is_said_before_the_end_behind_it() -> None:
    facts = Facts()
    end = BrokerUnregistered(ORIGIN, "b", LIVE, 0)
    for event in (registered(), heartbeat(Proof.REGISTRATION), end):
        facts.remember(item(event))
    assert said(facts) == [registered(), end]


def test_an_end_is_forgotten_when_the_broker_registers_again() -> None:
    facts = Facts()
    for event in (BrokerDisconnected(ORIGIN, "b", LIVE, "x"), registered()):
        facts.remember(item(event))
    assert said(facts) == [registered()]


def test_the_newer_registration_replaces_the_older() -> None:
    facts = Facts()
    older, newer = item(registered(digest="1")), item(registered(digest="2"))
    facts.remember(older)
    assert facts.remember(newer) == [older.pending]
    assert said(facts) == [newer.event]


def test_tickets_of_what_will_never_be_said_come_back() -> None:
    facts = Facts()
    first, life, end = (
        item(registered()),
        item(heartbeat(Proof.REGISTRATION)),
        item(BrokerUnregistered(ORIGIN, "b", LIVE, 0)),
    )
    assert facts.remember(first) == []
    assert facts.remember(life) == []
    assert facts.remember(end) == [life.pending]


def test_an_event_of_no_broker_process_comes_back_at_once() -> None:
    facts = Facts()
    change = item(WritePermChanged(ORIGIN, "b", False))
    assert facts.remember(change) == [change.pending]
    assert len(facts) == 0


def test_a_mere_heartbeat_says_less_than_what_is_known() -> None:
    facts = Facts()
    for event in (registered(), heartbeat(Proof.HEARTBEAT)):
        facts.remember(Item(event, None))
    assert said(facts) == [registered()]


def test_a_mere_heartbeat_is_said_where_nothing_else_is_known() -> None:
    facts = Facts()
    facts.remember(Item(heartbeat(Proof.HEARTBEAT), None))
    assert said(facts) == [heartbeat(Proof.HEARTBEAT)]


def test_what_changed_since_it_was_said_is_kept() -> None:
    facts = Facts()
    for name in ("b", "c"):
        facts.remember(item(registered(name)))
    before = facts.all()
    facts.remember(Item(heartbeat(Proof.HEARTBEAT), None))
    facts.forget(before)
    assert said(facts) == [registered()]


def test_facts_are_bounded_by_brokers() -> None:
    facts = Facts()
    for i in range(100):
        facts.remember(item(registered(digest=str(i))))
    assert (len(facts), len(said(facts))) == (1, 1)
