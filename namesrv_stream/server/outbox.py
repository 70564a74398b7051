"""What one turn of the event loop brings for one partition of the log, gathered into one batch of records.

Mere signs of life wait for the next tick (ADR 0042).
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.logs import safe
from namesrv_stream.route.event_json import encode_event, routing_key
from namesrv_stream.route.events import BrokerHeartbeat, ServerEvent
from namesrv_stream.route.heartbeat_json import MAX_ITEMS
from namesrv_stream.server.identity import Identity
from namesrv_stream.server.operator_changes import OperatorChanges
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.records import Item, OutRecord, Publisher, Unloggable, records_of
from namesrv_stream.server.served_view import ServedView

logger = logging.getLogger(__name__)

#: So many of the largest records may wait, however small a partition's share of the queue is.
_LARGEST_RECORDS: Final = 2


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bounds on what waits for Kafka, and on one record.

    Attributes:
        partitions: Of the topic; each has its share of the queue.
        max_gap_ms: A longer silence of Kafka's is a blindness.
        change_timeout_ms: An operator's change that Kafka has not acknowledged by then is answered all the same;
            below the 5 s for which mqadmin waits.
        gather_items: So many signs of life do not wait for the next tick any more, for they fill a record.
    """

    partitions: int
    queue_records: int
    queue_bytes: int
    record_bytes: int
    max_gap_ms: int
    change_timeout_ms: int = 4_000
    gather_items: int = MAX_ITEMS


class LogParts(NamedTuple):
    """What the partitions share."""

    view: ServedView
    identity: Identity
    limits: GatewayLimits
    clock: Clock
    peer_log: PeerLog
    changes: OperatorChanges


class Outbox:
    """Items for a partition, on their way to its publisher in the order in which they came."""

    def __init__(self, partition: int, parts: LogParts) -> None:
        self._partition = partition
        self._publisher: Publisher | None = None
        self._parts = parts
        self._items: list[Item] = []
        self._is_flush_due = False  # at the end of this turn

    @property
    def publisher(self) -> Publisher:
        if self._publisher is None:
            raise RuntimeError("there is no publisher yet")
        return self._publisher

    @property
    def is_attached(self) -> bool:
        return self._publisher is not None

    @property
    def can_begin(self) -> bool:
        """Whether a session can begin."""
        return self.is_attached and self.publisher.can_begin

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be published."""
        return not self._items

    @property
    def is_full(self) -> bool:
        """Whether as much waits for Kafka as may."""
        return self._fill >= 1

    @property
    def is_half_full(self) -> bool:
        """Whether no more changes are taken: the rest is for brokers, whose events end the session at a full queue."""
        return self._fill >= 1 / 2

    @property
    def _fill(self) -> float:
        publisher, limits = self.publisher, self._parts.limits
        most_records = max(1, limits.queue_records // limits.partitions)
        most_bytes = max(limits.queue_bytes // limits.partitions, _LARGEST_RECORDS * limits.record_bytes)
        return max(publisher.queued_records / most_records, publisher.queued_bytes / most_bytes)

    @property
    def is_slow(self) -> bool:
        """Whether Kafka keeps a record waiting for longer than a gap may be."""
        oldest_ms = None if self._publisher is None else self._publisher.oldest_ms
        return oldest_ms is not None and self._parts.clock.monotonic_ms() - oldest_ms > self._parts.limits.max_gap_ms

    def attach(self, publisher: Publisher) -> None:
        """Give the box its publisher, without which nothing can be put into it."""
        self._publisher = publisher

    def put(self, item: Item) -> None:
        """Take in an item; it is published at the end of this turn of the loop, a mere sign of life by the next tick.

        Each publishing wakes Kafka and the job, which makes a batch of it; and what a heartbeat says is of no use to
        anybody before the tick behind it.
        """
        self._items.append(item)
        # A heartbeat that changes the view is news to the other servers.
        is_news = item.pending is not None or not isinstance(item.event, BrokerHeartbeat)
        if (is_news or len(self._items) >= self._parts.limits.gather_items) and not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Publish what is in the box, in the order in which it came."""
        self._is_flush_due = False
        self.publish(self.take())

    def take(self) -> list[Item]:
        """Empty the box; returns what was not published."""
        items, self._items = self._items, []
        return items

    def publish(self, items: Iterable[Item]) -> None:
        """Publish items at once; what no record can hold is dropped, for it would fail every session anew."""
        for record in records_of(self._partition, items, self._parts.limits.record_bytes):
            if isinstance(record, Unloggable):
                name = safe(routing_key(record.item.event) or "")
                text = "event cannot be logged, dropped broker=%s reason=%s"
                self._parts.peer_log.tell(logger, logging.ERROR, text, name, safe(record.reason))
                if record.item.pending is not None:
                    self._parts.view.drop(record.item.pending)
            else:
                self._publish(record)

    def say(self, event: ServerEvent) -> None:
        """Publish what this server says of itself."""
        self._publish(OutRecord(self._partition, None, encode_event(event)))

    def _publish(self, record: OutRecord) -> None:
        self.publisher.publish(record._replace(at_ms=self._parts.clock.monotonic_ms()))
