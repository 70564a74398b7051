"""What a partition of the log lacks while Kafka takes no records: each broker's latest event, and operators' changes.

Its size is bounded by the number of brokers, and of the changes that were on their way when Kafka was lost.
"""

from collections.abc import Iterable

from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Proof,
)
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.server_view.overlay import Pending
from namesrv_stream.server.gateway.records import Item


class OutageBuffer:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        # A broker's latest event; before it the broker's full registration, if the log lacks that as well.
        self._latest: dict[LeaseKey, tuple[Item, ...]] = {}
        self._publishing: set[LeaseKey] = set()  # published by `to_publish`, and unchanged since
        self._changes: dict[int, Item] = {}  # by number

    @property
    def brokers(self) -> int:
        """Brokers with events that are not in the log."""
        return len(self._latest)

    @property
    def changes(self) -> int:
        """Records of changes to publish again."""
        return len(self._changes)

    def add(self, item: Item) -> list[Pending]:
        """Take in an event; returns the tickets of those that it replaces, and which will never be in the log."""
        event = item.event
        if not isinstance(event, BrokerRegistered | BrokerHeartbeat | BrokerUnregistered | BrokerDisconnected):
            return [item.pending] if item.pending else []
        before = self._latest.get(event.lease_key, ())
        self._publishing.discard(event.lease_key)
        if before and isinstance(event, BrokerHeartbeat) and event.proof is Proof.HEARTBEAT:
            # It refreshes and never creates: the event before it says more.
            return [item.pending] if item.pending else []
        if before and item.pending is None:
            item = item._replace(pending=_inherited_ticket(before[-1], event))
        registration = before[:1] if before and isinstance(before[0].event, BrokerRegistered) else ()
        after = (item,) if isinstance(event, BrokerRegistered) else (*registration, item)
        self._latest[event.lease_key] = after
        kept = [id(other.pending) for other in after]
        return [other.pending for other in before if other.pending and id(other.pending) not in kept]

    def add_change(self, item: Item) -> None:
        """Take in a change that goes to every partition and that this one may lack.

        It is published again until it is acknowledged: the partitions are parts of one table and would differ for good.
        """
        self._changes[item.number] = item

    def to_publish(self) -> list[Item]:
        """Everything that the log lacks, in the order of acceptance."""
        self._publishing = set(self._latest)
        items = [item for latest in self._latest.values() for item in latest]
        return sorted([*items, *self._changes.values()], key=lambda item: item.number)

    def published(self) -> None:
        """What ``to_publish`` returned is in the log, or on its way again: forget it, but for what came since."""
        for key in self._publishing:
            del self._latest[key]
        self._publishing = set()

    def acked(self, items: Iterable[Item]) -> None:
        """Items are in the log."""
        if self._changes:
            for item in items:
                self._changes.pop(item.number, None)


def _inherited_ticket(before: Item, event: AcceptedEvent) -> Pending | None:
    """The ticket of an unchanged registration for the next one, which found nothing to change in the view.

    The broker is in the view by that ticket only. Without it, an unregistration that the fold takes late would remove
    the broker from the view, and its heartbeats would be those of an unknown one, until the fold has the registration.
    """
    is_same = isinstance(before.event, BrokerHeartbeat) and before.event.proof is Proof.REGISTRATION
    return before.pending if is_same and isinstance(event, BrokerHeartbeat) else None
