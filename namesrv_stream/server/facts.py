"""The last that is known of each broker and is not in the log: what a blind server keeps, bounded by its brokers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Proof,
)
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.view import Pending
from namesrv_stream.server.records import Item


@dataclass(frozen=True, slots=True)
class Fact:
    """What is to be said of one broker once the log is back.

    Attributes:
        last: The last event; tells life, or the end of it.
        registered: Its last full registration, if that is not in the log either.
    """

    last: Item
    registered: Item | None = None

    def items(self) -> Iterator[Item]:
        """What to log, in order."""
        if self.registered is not None and self.registered is not self.last:
            yield self.registered
        yield self.last


class Facts:
    """Facts by broker process, in the order in which the brokers first had one."""

    def __init__(self) -> None:
        self._facts: dict[LeaseKey, Fact] = {}

    def __len__(self) -> int:
        return len(self._facts)

    def remember(self, item: Item) -> list[Pending]:
        """Take in a newer event of a broker; returns the tickets of events that will never be in the log."""
        event = item.event
        key = _key(event)
        if key is None:
            return [item.pending] if item.pending else []
        before = self._facts.get(key)
        if isinstance(event, BrokerHeartbeat) and event.proof is Proof.HEARTBEAT and before is not None:
            # It refreshes and never creates: what was known says more. The copy counts as not said yet.
            self._facts[key] = replace(before)
            return [item.pending] if item.pending else []
        if before is not None and item.pending is None:
            item = item._replace(pending=_ticket_of(before.last, event))
        registered = item if isinstance(event, BrokerRegistered) else before.registered if before else None
        after = self._facts[key] = Fact(item, registered)
        kept = [id(i.pending) for i in after.items()]
        return [i.pending for i in before.items() if i.pending and id(i.pending) not in kept] if before else []

    def all(self) -> list[Fact]:
        return list(self._facts.values())

    def forget(self, said: Iterable[Fact]) -> None:
        """Drop facts that are in the log by now; one that changed since is kept."""
        for fact in said:
            key = _key(fact.last.event)
            if key is not None and self._facts.get(key) is fact:
                del self._facts[key]


def _ticket_of(before: Item, event: AcceptedEvent) -> Pending | None:
    """The ticket of an unchanged registration for the next one, which found nothing to change in the view.

    The broker is in the view by that ticket only. Without it a goodbye that the fold takes late would take it out of
    there, and its heartbeats would be those of an unknown one, until the fold has the registration.
    """
    is_same = isinstance(before.event, BrokerHeartbeat) and before.event.proof is Proof.REGISTRATION
    return before.pending if is_same and isinstance(event, BrokerHeartbeat) else None


def _key(event: AcceptedEvent) -> LeaseKey | None:
    if isinstance(event, BrokerRegistered | BrokerHeartbeat | BrokerUnregistered | BrokerDisconnected):
        return event.lease_key
    return None
