"""Events that a partition of the log lacks during an outage of Kafka: every broker's latest event, operators' changes.

The number of brokers, and of changes that were queued when Kafka failed, limits the size of the buffer.
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
from namesrv_stream.route.view_layers import Pending
from namesrv_stream.server.gateway.records import Item


class OutageBuffer:
    """Keeps one partition's unpublished events. Only one event loop may use it."""

    def __init__(self) -> None:
        # A broker's latest event, preceded by the broker's full registration if the log lacks it too.
        self._latest: dict[LeaseKey, tuple[Item, ...]] = {}
        self._publishing: set[LeaseKey] = set()  # returned by `to_publish`, and unchanged since
        self._changes: dict[int, Item] = {}  # by number

    @property
    def brokers(self) -> int:
        """Number of brokers with events that are not in the log."""
        return len(self._latest)

    @property
    def changes(self) -> int:
        """Number of records of changes to publish again."""
        return len(self._changes)

    def add(self, item: Item) -> list[Pending]:
        """Add an event. Return the tickets of the events that it replaces; these will never be in the log."""
        event = item.event
        if not isinstance(event, BrokerRegistered | BrokerHeartbeat | BrokerUnregistered | BrokerDisconnected):
            return [item.pending] if item.pending else []
        before = self._latest.get(event.lease_key, ())
        self._publishing.discard(event.lease_key)
        if before and isinstance(event, BrokerHeartbeat) and event.proof is Proof.HEARTBEAT:
            # Such a heartbeat never creates a broker, so the previous event contains more information.
            return [item.pending] if item.pending else []
        if before and item.pending is None:
            item = item._replace(pending=_inherited_ticket(before[-1], event))
        registration = before[:1] if before and isinstance(before[0].event, BrokerRegistered) else ()
        after = (item,) if isinstance(event, BrokerRegistered) else (*registration, item)
        self._latest[event.lease_key] = after
        kept = [id(other.pending) for other in after]
        return [other.pending for other in before if other.pending and id(other.pending) not in kept]

    def add_change(self, item: Item) -> None:
        """Add a change that goes to every partition and that this one may lack.

        It is published again until it is acknowledged. Otherwise the partitions, which form one table, would differ.
        """
        self._changes[item.number] = item

    def to_publish(self) -> list[Item]:
        """Return everything that the log lacks, in the order of acceptance."""
        self._publishing = set(self._latest)
        items = [item for latest in self._latest.values() for item in latest]
        return sorted([*items, *self._changes.values()], key=lambda item: item.number)

    def published(self) -> None:
        """Forget what ``to_publish`` returned, except brokers with newer events: it is in the log or queued again."""
        for key in self._publishing:
            del self._latest[key]
        self._publishing = set()

    def acked(self, items: Iterable[Item]) -> None:
        """Forget the changes among these items, which are in the log."""
        if self._changes:
            for item in items:
                self._changes.pop(item.number, None)


def _inherited_ticket(before: Item, event: AcceptedEvent) -> Pending | None:
    """Return the ticket of an unchanged registration, for a later event that changed nothing in the view.

    Only that ticket keeps the broker in the view. Without it, an unregistration that the fold processes late would
    remove the broker from the view. Its heartbeats would then be unknown until the fold has the registration.
    """
    is_same = isinstance(before.event, BrokerHeartbeat) and before.event.proof is Proof.REGISTRATION
    return before.pending if is_same and isinstance(event, BrokerHeartbeat) else None
