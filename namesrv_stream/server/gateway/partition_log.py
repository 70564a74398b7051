"""One server's way into one partition of the log.

While Kafka takes records, each event-loop turn's events become one batch of records, ticks among them: a tick says that
all that the server received before it is in the log. Mere signs of life wait for the next tick (ADR 0042). When a
record is lost, the server is *blind* for this partition: events still change the view, but only the latest event of
each broker is kept. Once Kafka is back, ``server_resumed`` is published (the partition's brokers start again from age
zero, before any of these events lets time pass), then these events, then ticks again. Each partition has a producer of
its own, so none waits for another that cannot be reached.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from namesrv_stream.clock import Clock
from namesrv_stream.logs import safe
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import (
    BrokerHeartbeat,
    Origin,
    ServerEvent,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    Tick,
)
from namesrv_stream.route.partitioner import routing_key
from namesrv_stream.server.gateway.operator_changes import Change, OperatorChanges
from namesrv_stream.server.gateway.outage_buffer import OutageBuffer
from namesrv_stream.server.gateway.records import (
    Acked,
    GatewayLimits,
    Item,
    OutRecord,
    Publisher,
    Unloggable,
    records_of,
)
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.view.served_view import ServedView

logger = logging.getLogger(__name__)

_RETRY_AFTER_MS: Final = 1_000
#: So many of the largest records may wait, however small a partition's share of the queue is.
_LARGEST_RECORDS: Final = 2


class LogParts(NamedTuple):
    """What the partitions share."""

    view: ServedView
    identity: Identity
    limits: GatewayLimits
    clock: Clock
    peer_log: PeerLog
    changes: OperatorChanges


class Link(Enum):
    """How Kafka is for this partition."""

    CONNECTING = "connecting"  # nothing is known yet
    AWAY = "away"  # the last session failed, and Kafka has not answered since
    RESUMING = "resuming"  # Kafka answers, and is told what is not in the log
    TALKING = "talking"  # Kafka takes records


class PartitionLogOwner(Protocol):
    """Who is told of what Kafka does to a partition."""

    def linked(self, partition: int) -> None:
        """Kafka takes the partition's records."""

    def unlinked(self, partition: int) -> None:
        """Kafka is away for the partition."""


class PartitionLog:
    """Belongs to one event loop; nothing of it blocks.

    Attributes:
        partition: Kafka partition.
        link: How Kafka is.
        failure: Why Kafka takes no records.
        since_ms: Wall clock of the last time that Kafka began, or ceased, to take records; at first of the start.
        has_started: Kafka has taken records since this server's start.
        lost_sessions: How often it ceased.
        unpublished: What is not in the log, while Kafka takes no records.
        publisher: Takes records to Kafka; None until there is one.
    """

    def __init__(self, partition: int, parts: LogParts, owner: PartitionLogOwner) -> None:
        self.link = Link.CONNECTING
        self.failure = "it has not answered yet"
        self.since_ms = parts.clock.now_ms()
        self.has_started = False
        self.lost_sessions = 0
        self.unpublished = OutageBuffer()
        self.partition = partition
        self._parts = parts
        self._owner = owner
        self.publisher: Publisher | None = None
        self._items: list[Item] = []  # on their way to the publisher, in the order in which they came
        self._is_flush_due = False  # at the end of this turn
        self._session_began_ms = 0
        self._talks = asyncio.Event()

    @property
    def is_talking(self) -> bool:
        return self.link is Link.TALKING

    @property
    def is_slow(self) -> bool:
        """Whether Kafka keeps a record waiting for longer than a gap may be."""
        oldest_ms = None if self.publisher is None else self.publisher.oldest_ms
        return oldest_ms is not None and self._parts.clock.monotonic_ms() - oldest_ms > self._parts.limits.max_gap_ms

    @property
    def takes_changes(self) -> bool:
        """Whether an operator's change can be expected to be acknowledged."""
        return self.is_talking and not self.is_slow

    @property
    def refuses_changes(self) -> bool:
        """Whether an operator's change would wait in vain.

        Half of the queue is for brokers, whose events end the session where it is full.
        """
        return self.link is Link.AWAY or self._fill >= 1 / 2

    @property
    def _fill(self) -> float:
        """How much of what may wait for Kafka does."""
        if self.publisher is None:
            return 0.0
        limits = self._parts.limits
        most_records = max(1, limits.queue_records // limits.partitions)
        most_bytes = max(limits.queue_bytes // limits.partitions, _LARGEST_RECORDS * limits.record_bytes)
        return max(self.publisher.queued_records / most_records, self.publisher.queued_bytes / most_bytes)

    def attach(self, publisher: Publisher) -> None:
        """Give the partition its publisher and begin to talk."""
        self.publisher = publisher
        self._begin_session(publisher)

    # ---- events out ----

    def put(self, item: Item) -> None:
        """Log an event, or remember it while Kafka takes no records.

        It is published at the end of this turn of the loop, a mere sign of life by the next tick: each publishing wakes
        Kafka and the job, and what a heartbeat says is of no use to anybody before the tick behind it.
        """
        # What is gathered already was looked at when the first of it came.
        if self.is_talking and self.publisher is not None and not self._items and self._fill >= 1:
            self.publisher.abort("the publish queue is full")
        if not self.is_talking:
            self._remember(item)
            return
        self._items.append(item)
        # A heartbeat that changes the view is news to the other servers.
        is_news = item.pending is not None or not isinstance(item.event, BrokerHeartbeat)
        if (is_news or len(self._items) >= self._parts.limits.gather_items) and not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def beat(self) -> None:
        """Publish what is gathered; try again where Kafka was lost."""
        if self.is_talking:
            self._flush()
            return
        is_due = self._parts.clock.monotonic_ms() - self._session_began_ms >= _RETRY_AFTER_MS
        if self.publisher is not None and self.publisher.can_begin and is_due:
            self._begin_session(self.publisher)

    def tick(self) -> None:
        """Say that all that was received before is in the log."""
        if self.is_talking:
            self._flush()
            self._say(Tick(self._origin))

    def is_away(self, reason: str) -> None:
        """Kafka is known to be away before there was any session."""
        self.link, self.failure = Link.AWAY, reason

    async def stop(self, timeout_s: float) -> None:
        """Take leave of the log, in ``timeout_s`` or twice that where a session is just being opened."""
        publisher = self.publisher
        if publisher is None:
            return
        if publisher.queued_records and not self.is_talking:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._talks.wait(), timeout_s)
        if self.is_talking:
            self._flush()
            self._say(ServerStopped(self._origin))
            if not await publisher.close(timeout_s):
                logger.warning("stopped before all records were in the log partition=%d", self.partition)
            self.link = Link.AWAY

    def _flush(self) -> None:
        """Publish what is gathered, in the order in which it came."""
        self._is_flush_due = False
        items, self._items = self._items, []
        self._publish_all(items)

    def _publish_all(self, items: Iterable[Item]) -> None:
        """Publish items at once; what no record can hold is dropped, for it would fail every session."""
        for record in records_of(self.partition, items, self._parts.limits.record_bytes):
            if isinstance(record, Unloggable):
                name = safe(routing_key(record.item.event) or "")
                text = "event cannot be logged, dropped broker=%s reason=%s"
                self._parts.peer_log.tell(logger, logging.ERROR, text, name, safe(record.reason))
                if record.item.pending is not None:
                    self._parts.view.drop(record.item.pending)
            else:
                self._publish(record)

    def _say(self, event: ServerEvent) -> None:
        """Publish what this server says of itself."""
        self._publish(OutRecord(self.partition, None, encode_event(event)))

    def _publish(self, record: OutRecord) -> None:
        assert self.publisher is not None
        self.publisher.publish(record._replace(at_ms=self._parts.clock.monotonic_ms()))

    # ---- sessions with Kafka: called by the publisher ----

    def opened(self) -> None:
        """Kafka is there: say what is not in the log; ``acked`` hears when all of it is."""
        self.link = Link.RESUMING
        self._say((ServerResumed if self.has_started else ServerStarted)(self._origin))
        self._publish_all(self.unpublished.to_publish())

    def acked(self, records: list[Acked]) -> None:
        """Records are in the log."""
        view = self._parts.view
        is_covered = False
        changes: list[Change] = []
        for record, offset in records:
            for item in record.items:
                if item.pending is not None:
                    is_covered |= view.settle(item.pending, (record.partition, offset))
                if item.change is not None:
                    changes.append(item.change)
            self.unpublished.acked(record.items)
        if is_covered:
            view.sweep()
        if self.link is Link.RESUMING and self.publisher is not None and not self.publisher.queued_records:
            self._talk()
        for change in changes:
            self._parts.changes.acked(change)

    def failed(self, reason: str, lost: Sequence[OutRecord]) -> None:
        """A session ended, and these records may not be in the log."""
        was_talking = self.is_talking
        if self.link in (Link.CONNECTING, Link.TALKING):
            text = "Kafka does not take records, queries are answered from memory partition=%d reason=%s"
            logger.warning(text, self.partition, safe(reason))
        self.link, self.failure = Link.AWAY, reason
        self._talks.clear()
        if was_talking:  # what another session published at its beginning is still in the buffer
            self.lost_sessions += 1
            self.since_ms = self._parts.clock.now_ms()
            self._remember_lost(lost)
        self._owner.unlinked(self.partition)

    def _remember_lost(self, lost: Sequence[OutRecord]) -> None:
        gathered, self._items = self._items, []
        for item in (*(item for record in lost for item in record.items), *gathered):
            if routing_key(item.event) is None:
                self.unpublished.add_change(item)
            else:
                self._remember(item)
            if item.change is not None:
                self._parts.changes.fail(item.change)

    def _begin_session(self, publisher: Publisher) -> None:
        self._session_began_ms = self._parts.clock.monotonic_ms()
        publisher.begin()

    def _talk(self) -> None:
        self.link = Link.TALKING
        self._talks.set()
        self.has_started = True
        self.since_ms = self._parts.clock.now_ms()
        self.unpublished.published()
        logger.info("Kafka session established partition=%d server_id=%s epoch=%d", self.partition, *self._origin[:2])
        # What came while the session was being opened comes right behind it.
        self._publish_all(self.unpublished.to_publish())
        self.unpublished.published()
        self._owner.linked(self.partition)

    def _remember(self, item: Item) -> None:
        for pending in self.unpublished.add(item):
            self._parts.view.drop(pending)

    @property
    def _origin(self) -> Origin:
        return Origin(*self._parts.identity)
