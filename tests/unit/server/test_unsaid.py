"""What a partition is told again: in the order of acceptance, until it has it."""

from namesrv_stream.route.events import BrokerRegistered, Origin, TopicDeleted
from namesrv_stream.route.model import DataVersion, Registration
from namesrv_stream.server.records import Item
from namesrv_stream.server.unsaid import Unsaid

ORIGIN = Origin("s1", 1, 1)
DELETE = TopicDeleted(ORIGIN, "t", None)


def registered(name: str, number: int) -> Item:
    return Item(BrokerRegistered(ORIGIN, Registration("c", name, "a:1", 0, "", DataVersion(), {})), None, number)


def test_facts_and_changes_are_said_in_the_order_of_acceptance() -> None:
    unsaid = Unsaid()
    first, change, last = registered("b1", 1), Item(DELETE, None, 2), registered("b2", 3)
    unsaid.keep(change)
    for item in (last, first):
        unsaid.remember(item)
    assert unsaid.say() == [first, change, last]


def test_a_change_is_said_until_it_is_in_the_log() -> None:
    unsaid = Unsaid()
    items = [Item(DELETE, None, number) for number in (1, 2)]
    for item in items:
        unsaid.keep(item)
    unsaid.acked(items[:1])
    assert unsaid.say() == items[1:]
    unsaid.was_said()  # of changes only an acknowledgement counts
    assert unsaid.changes == 1
    unsaid.acked(items)
    assert (unsaid.say(), unsaid.changes) == ([], 0)


def test_a_fact_that_changed_while_it_was_said_is_said_again() -> None:
    unsaid = Unsaid()
    unsaid.remember(registered("b1", 1))
    unsaid.say()
    newer = registered("b1", 2)
    unsaid.remember(newer)
    unsaid.was_said()
    assert (unsaid.say(), unsaid.brokers) == ([newer], 1)
