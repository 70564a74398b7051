"""Kafka records that contain a server's events, limits on them, and the events that the log lacks in a Kafka outage."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple

from namesrv_stream.errors import RequestRefused
from namesrv_stream.route.event_json import MAX_ITEMS, encode_event, encode_heartbeats
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerEvent,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Origin,
    Proof,
    routing_key,
)
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.view.view_layers import Pending
from namesrv_stream.server.gateway.operator_changes import Change


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Limits on the records that wait for Kafka, and on the size of one record.

    Attributes:
        partitions: Number of partitions of the topic; the queue is divided among them.
        max_gap_ms: The server is blind if a record waits longer than this for Kafka.
        change_timeout_ms: The longest time until an operator's change is answered, acknowledged by Kafka or not;
            less than the 5 s for which mqadmin waits.
        gather_items: Number of queued heartbeats that are published before the next tick, because they fill a record.
    """

    partitions: int
    queue_records: int
    queue_bytes: int
    record_bytes: int
    max_gap_ms: int
    change_timeout_ms: int = 4_000
    gather_items: int = MAX_ITEMS


class Item(NamedTuple):
    """An event that will be published to one partition.

    ``pending`` is its entry in the view, which gets a position when the event is in the log; None if the event does not
    change the view. ``number`` counts events in the order of acceptance.
    """

    event: AcceptedEvent
    pending: Pending | None
    number: int = 0
    change: Change | None = None


class OutRecord(NamedTuple):
    """A record for the log.

    Attributes:
        items: Its events; none if it is about the server itself.
        at_ms: Monotonic time at which the publisher received it, milliseconds.
        covered: The offset up to which the tables covered the partition then. Its own offset cannot be lower.
    """

    partition: int
    key: bytes | None
    value: bytes
    items: Sequence[Item] = ()
    at_ms: int = 0
    covered: int = 0


class Acked(NamedTuple):
    """A record that is in the log at ``offset``."""

    record: OutRecord
    offset: int


class Unloggable(NamedTuple):
    """An event that no record can contain, and why: it is too large, or JSON cannot represent it."""

    item: Item
    reason: str


def records_of(partition: int, items: Iterable[Item], max_bytes: int) -> Iterator[OutRecord | Unloggable]:
    """Yield the records for events, in order. Consecutive heartbeats share a record.

    Kafka refuses a value of more than ``max_bytes``, which would end every session.
    """
    for is_run, run in groupby(items, lambda item: isinstance(item.event, BrokerHeartbeat)):
        size = MAX_ITEMS if is_run else 1
        while batch := list(islice(run, size)):
            yield from _records(partition, batch, max_bytes)


def check_loggable(event: AcceptedEvent, max_bytes: int) -> None:
    """Raise RequestRefused, with the reason, if an operator's event does not fit into a record."""
    try:
        _encoded([event], max_bytes)
    except ValueError as error:
        raise RequestRefused(f"the change cannot be logged: {error}") from error


def _records(partition: int, batch: list[Item], max_bytes: int) -> Iterator[OutRecord | Unloggable]:
    try:
        key, value = _encoded([item.event for item in batch], max_bytes)
    except ValueError as error:
        if len(batch) == 1:
            yield Unloggable(batch[0], str(error))
        else:
            middle = len(batch) // 2
            yield from _records(partition, batch[:middle], max_bytes)
            yield from _records(partition, batch[middle:], max_bytes)
    else:
        yield OutRecord(partition, key, value, batch)


def _encoded(events: Sequence[AcceptedEvent], max_bytes: int) -> tuple[bytes | None, bytes]:
    try:
        heartbeats = [event for event in events if isinstance(event, BrokerHeartbeat)]
        value = encode_heartbeats(heartbeats) if heartbeats else encode_event(events[0])
        name = routing_key(events[0])
        key = None if name is None else name.encode()
    except (ValueError, TypeError) as error:  # text or a number that JSON cannot carry
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if len(value) > max_bytes:
        raise ValueError(f"{len(value)} bytes exceed {max_bytes}")
    return key, value


class OutageBuffer:
    """Keeps the events that a partition lacks during an outage of Kafka. Only one event loop may use it.

    It keeps every broker's latest event, and operators' changes. So its size is limited by the number of brokers and of
    the changes that were queued when Kafka failed.
    """

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
        """Number of operators' changes to publish again."""
        return len(self._changes)

    def add(self, item: Item) -> list[Pending]:
        """Add an event. Return the pending entries of the events that it replaces, which will never be in the log."""
        event = item.event
        if not isinstance(event, BrokerRegistered | BrokerHeartbeat | BrokerUnregistered | BrokerDisconnected):
            return [item.pending] if item.pending else []
        before = self._latest.get(event.lease_key, ())
        if before and _is_superseded(event, before[-1].event.origin):
            return [item.pending] if item.pending else []
        self._publishing.discard(event.lease_key)
        is_closed = bool(before) and isinstance(before[-1].event, BrokerDisconnected)
        if before and not is_closed and isinstance(event, BrokerHeartbeat) and event.proof is Proof.HEARTBEAT:
            # Such a heartbeat never creates a broker, so the previous event contains more information.
            return [item.pending] if item.pending else []
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
        """Forget the brokers' events that ``to_publish`` returned, because they are in the log or queued again.

        Brokers with newer events stay. Operators' changes stay until ``acked``.
        """
        for key in self._publishing:
            del self._latest[key]
        self._publishing = set()

    def acked(self, items: Iterable[Item]) -> None:
        if self._changes:
            for item in items:
                self._changes.pop(item.number, None)


def _is_superseded(event: BrokerEvent, latest: Origin) -> bool:
    """Whether a broker's end came over another connection than its latest event, so that the fold would refuse it.

    The rule is that of ``refusal_of_end``: an unregistration over a later connection counts, a close does not.
    """
    if isinstance(event, BrokerDisconnected):
        return event.origin != latest
    return isinstance(event, BrokerUnregistered) and event.origin.holder < latest.holder
