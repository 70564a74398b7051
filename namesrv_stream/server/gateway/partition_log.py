"""Writes one server's events to one partition of the log.

While Kafka accepts records, the events of one event-loop turn become one batch of records. A tick is published after
all earlier events, because it states that the log contains them. Heartbeats that change nothing in the view wait for
the next tick (ADR 0042).

When a record is lost, the server is *blind* for this partition. Events still change the view, but only the latest
event of every broker is kept. When Kafka is back, the server publishes ``server_resumed``, then these events, then
ticks. So no tick comes before a sign of life that the server received meanwhile. Every partition has its own producer,
so none waits for another that is unreachable.

A partition's share of the publish queue limits what peers can make the server hold. When half of it is used, requests
that need room wait (``Queue.LOGGED``); operators' changes, which cannot wait long, may use the other half. Heartbeats,
closed connections and unregistrations that count are small and few, so they always fit. A full queue therefore
says nothing about Kafka: only a record that Kafka does not accept in time ends a session.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

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
    routing_key,
)
from namesrv_stream.server.gateway.operator_changes import Change, OperatorChanges
from namesrv_stream.server.gateway.publisher import KafkaPublisher
from namesrv_stream.server.gateway.records import (
    Acked,
    GatewayLimits,
    Item,
    OutageBuffer,
    OutRecord,
    Unloggable,
    records_of,
)
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.view.served_view import ServedView

logger = logging.getLogger(__name__)

_RETRY_AFTER_MS: Final = 1_000
#: Number of records of maximum size that may always wait, even if a partition's share of the queue is smaller.
_LARGEST_RECORDS: Final = 2


class LogParts(NamedTuple):
    """Objects that all partitions share.

    ``linked`` and ``unlinked`` are called when a session begins or ends; ``filled`` when records were published or
    acknowledged, with the partition and whether half of its share of the publish queue is used.
    """

    view: ServedView
    identity: Identity
    limits: GatewayLimits
    clock: Clock
    peer_log: PeerLog
    changes: OperatorChanges
    linked: Callable[[int], None]
    unlinked: Callable[[int], None]
    filled: Callable[[int, bool], None]


class Link(Enum):
    """State of the session with Kafka for one partition."""

    CONNECTING = "connecting"  # Kafka has not answered yet
    AWAY = "away"  # the last session failed, and Kafka has not answered since
    RESUMING = "resuming"  # Kafka answers; the events that the log lacks are being published
    CONNECTED = "connected"  # Kafka accepts records


class PartitionLog:
    """Writes events to one partition. Only one event loop may use it; no method blocks.

    Attributes:
        since_ms: Wall-clock time at which Kafka last started or stopped accepting records; at first the start time.
        has_started: Whether Kafka has accepted records since this server's start.
        lost_sessions: Number of times Kafka stopped accepting records.
        unpublished: Events that are not in the log, while Kafka does not accept records.
    """

    def __init__(self, partition: int, parts: LogParts) -> None:
        self.link = Link.CONNECTING
        self.failure = "it has not answered yet"
        self.since_ms = parts.clock.now_ms()
        self.has_started = False
        self.lost_sessions = 0
        self.unpublished = OutageBuffer()
        self.partition = partition
        self._parts = parts
        self.publisher: KafkaPublisher | None = None
        self._items: list[Item] = []  # not yet given to the publisher, in order of arrival
        self._is_flush_due = False  # whether `_flush` runs at the end of this turn
        self._session_began_ms = 0
        self._acked_ms = 0  # monotonic time of the last acknowledgement
        self._connected = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return self.link is Link.CONNECTED

    @property
    def is_slow(self) -> bool:
        """Whether Kafka has acknowledged none of the waiting records for longer than ``max_gap_ms``."""
        oldest_ms = None if self.publisher is None else self.publisher.oldest_ms
        if oldest_ms is None:
            return False
        return self._parts.clock.monotonic_ms() - max(oldest_ms, self._acked_ms) > self._parts.limits.max_gap_ms

    @property
    def takes_changes(self) -> bool:
        """Whether Kafka is likely to acknowledge an operator's change soon."""
        return self.is_connected and not self.is_slow

    @property
    def refuses_changes(self) -> bool:
        """Whether an operator's change must be refused: waiting would be useless, or the queue is full."""
        return self.link is Link.AWAY or self._fill >= 1

    @property
    def _fill(self) -> float:
        """The used fraction of this partition's share of the publish queue; 1 means full."""
        if self.publisher is None:
            return 0.0
        limits = self._parts.limits
        most_records = max(1, limits.queue_records // limits.partitions)
        most_bytes = max(limits.queue_bytes // limits.partitions, _LARGEST_RECORDS * limits.record_bytes)
        return max(self.publisher.queued_records / most_records, self.publisher.queued_bytes / most_bytes)

    def attach(self, publisher: KafkaPublisher) -> None:
        self.publisher = publisher
        self._begin_session(publisher)

    def put(self, item: Item) -> None:
        """Log an event, or keep it while Kafka does not accept records.

        The event is published at the end of this iteration of the loop; a heartbeat waits for the next tick. Every
        publication wakes Kafka and the job. Most heartbeats have no effect before the tick that follows them; that of a
        registration may change the connection or bring a deleted topic back, which can wait for half a second.
        """
        if not self.is_connected:
            self._remember(item)
            return
        self._items.append(item)
        is_news = not isinstance(item.event, BrokerHeartbeat)
        if (is_news or len(self._items) >= self._parts.limits.gather_items) and not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def beat(self) -> None:
        """Publish the events that wait for the next tick, or try to open a session again if the last one failed."""
        if self.is_connected:
            self.flush()
            return
        is_due = self._parts.clock.monotonic_ms() - self._session_began_ms >= _RETRY_AFTER_MS
        if self.publisher is not None and self.publisher.can_begin and is_due:
            self._begin_session(self.publisher)

    def tick(self, address: str) -> None:
        if self.is_connected:
            self.flush()
            self._publish_event(Tick(self._origin, address))

    def is_away(self, reason: str) -> None:
        """Record that Kafka was unavailable before the first session."""
        self.link, self.failure = Link.AWAY, reason

    async def stop(self, timeout_s: float) -> None:
        """Log the stop and close the session, within ``timeout_s``; twice that if a session is being opened."""
        publisher = self.publisher
        if publisher is None:
            return
        if publisher.queued_records and not self.is_connected:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._connected.wait(), timeout_s)
        if self.is_connected:
            self.flush()
            self._publish_event(ServerStopped(self._origin))
            if not await publisher.close(timeout_s):
                logger.warning("stopped before all records were in the log partition=%d", self.partition)
            self.link = Link.AWAY

    def flush(self) -> None:
        """Publish the events that were put."""
        self._is_flush_due = False
        items, self._items = self._items, []
        self._publish_all(items)

    def _publish_all(self, items: Iterable[Item]) -> None:
        """Publish events immediately. An event that no record can contain is dropped: it would end every session."""
        for record in records_of(self.partition, items, self._parts.limits.record_bytes):
            if isinstance(record, Unloggable):
                name = safe(routing_key(record.item.event) or "")
                text = "event cannot be logged, dropped broker=%s reason=%s"
                self._parts.peer_log.log(logger, logging.ERROR, text, name, safe(record.reason))
                if record.item.pending is not None:
                    self._parts.view.drop(record.item.pending)
            else:
                self._publish(record)

    def _publish_event(self, event: ServerEvent) -> None:
        self._publish(OutRecord(self.partition, None, encode_event(event)))

    def _publish(self, record: OutRecord) -> None:
        assert self.publisher is not None
        covered = self._parts.view.next_offset(self.partition)
        self.publisher.publish(record._replace(at_ms=self._parts.clock.monotonic_ms(), covered=covered))
        self._report_fill()

    def _report_fill(self) -> None:
        self._parts.filled(self.partition, self.is_connected and self._fill >= 1 / 2)

    # ---- sessions with Kafka: called by the publisher ----

    def opened(self) -> None:
        """Publish the events that the log lacks, because a session was opened; ``acked`` detects that it has them."""
        self.link = Link.RESUMING
        self._publish_event((ServerResumed if self.has_started else ServerStarted)(self._origin))
        self._publish_all(self.unpublished.to_publish())

    def acked(self, records: list[Acked]) -> None:
        """Give pending entries the positions of their records in the log; this can complete operators' changes."""
        view = self._parts.view
        self._acked_ms = self._parts.clock.monotonic_ms()
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
            self._resumed()
        self._report_fill()
        for change in changes:
            self._parts.changes.acked(change)

    def failed(self, reason: str, lost: Sequence[OutRecord]) -> None:
        """Keep the events of lost records, because a session failed; the log may lack these records."""
        was_talking = self.is_connected
        if self.link in (Link.CONNECTING, Link.CONNECTED):
            text = "Kafka accepts no records, queries are answered from memory partition=%d reason=%s"
            logger.warning(text, self.partition, safe(reason))
        self.link, self.failure = Link.AWAY, reason
        self._connected.clear()
        if was_talking:  # otherwise the buffer still contains everything that the session published
            self.lost_sessions += 1
            self.since_ms = self._parts.clock.now_ms()
            gathered, self._items = self._items, []
            for item in (*(item for record in lost for item in record.items), *gathered):
                if routing_key(item.event) is None:
                    self.unpublished.add_change(item)
                else:
                    self._remember(item)
                if item.change is not None:
                    self._parts.changes.fail(item.change)
        self._report_fill()
        self._parts.unlinked(self.partition)

    def _begin_session(self, publisher: KafkaPublisher) -> None:
        self._session_began_ms = self._parts.clock.monotonic_ms()
        publisher.begin()

    def _resumed(self) -> None:
        self.link = Link.CONNECTED
        self._connected.set()
        self.has_started = True
        self.since_ms = self._parts.clock.now_ms()
        self.unpublished.published()
        logger.info("Kafka session established partition=%d server_id=%s epoch=%d", self.partition, *self._origin[:2])
        # Publish the events that arrived while the session was being opened.
        self._publish_all(self.unpublished.to_publish())
        self.unpublished.published()
        self._parts.linked(self.partition)

    def _remember(self, item: Item) -> None:
        for pending in self.unpublished.add(item):
            self._parts.view.drop(pending)

    @property
    def _origin(self) -> Origin:
        return Origin(*self._parts.identity)
