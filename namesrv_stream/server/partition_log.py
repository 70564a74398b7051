"""One server's way into one partition of the log.

While Kafka takes records, each event-loop turn's events become one batch of records, ticks among them: a tick says that
all that the server received before it is in the log. When a record is lost, the server is *blind* for this partition:
events still change the view, but only the latest event of each broker is kept. Once Kafka is back, ``server_resumed``
is published (the partition's brokers start again from age zero, before any of these events lets time pass), then these
events, then ticks again. Each partition has a producer of its own, so none waits for another that cannot be reached.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from namesrv_stream.logs import safe
from namesrv_stream.route.event_json import routing_key
from namesrv_stream.route.events import Origin, ServerResumed, ServerStarted, ServerStopped, Tick
from namesrv_stream.server.operator_changes import Change
from namesrv_stream.server.outage_buffer import OutageBuffer
from namesrv_stream.server.outbox import LogParts, Outbox
from namesrv_stream.server.records import Acked, Item, OutRecord, Publisher

logger = logging.getLogger(__name__)

_RETRY_AFTER_MS: Final = 1_000


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
        self._outbox = Outbox(partition, parts)
        self._session_began_ms = 0
        self._talks = asyncio.Event()

    @property
    def is_talking(self) -> bool:
        return self.link is Link.TALKING

    @property
    def is_slow(self) -> bool:
        """Whether Kafka keeps a record waiting for longer than a gap may be."""
        return self._outbox.is_slow

    @property
    def takes_changes(self) -> bool:
        """Whether an operator's change can be expected to be acknowledged."""
        return self.is_talking and not self.is_slow

    @property
    def refuses_changes(self) -> bool:
        """Whether an operator's change would wait in vain."""
        return self.link is Link.AWAY or (self._outbox.is_attached and self._outbox.is_half_full)

    @property
    def publisher(self) -> Publisher | None:
        return self._outbox.publisher if self._outbox.is_attached else None

    def attach(self, publisher: Publisher) -> None:
        """Give the partition its publisher and begin to talk."""
        self._outbox.attach(publisher)
        self._begin_session()

    # ---- events out ----

    def put(self, item: Item) -> None:
        """Log an event, or remember it while Kafka takes no records."""
        # What is gathered already was looked at when the first of it came.
        if self.is_talking and self._outbox.is_empty and self._outbox.is_full:
            self._outbox.publisher.abort("the publish queue is full")
        if self.is_talking:
            self._outbox.put(item)
        else:
            self._remember(item)

    def beat(self) -> None:
        """Publish what is gathered; try again where Kafka was lost."""
        if self.is_talking:
            self._outbox.flush()
        elif self._outbox.can_begin and self._parts.clock.monotonic_ms() - self._session_began_ms >= _RETRY_AFTER_MS:
            self._begin_session()

    def tick(self) -> None:
        """Say that all that was received before is in the log."""
        if self.is_talking:
            self._outbox.flush()
            self._outbox.say(Tick(self._origin))

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
            self._outbox.flush()
            self._outbox.say(ServerStopped(self._origin))
            if not await publisher.close(timeout_s):
                logger.warning("stopped before all records were in the log partition=%d", self.partition)
            self.link = Link.AWAY

    # ---- sessions with Kafka: called by the publisher ----

    def opened(self) -> None:
        """Kafka is there: say what is not in the log; ``acked`` hears when all of it is."""
        self.link = Link.RESUMING
        self._outbox.say((ServerResumed if self.has_started else ServerStarted)(self._origin))
        self._outbox.publish(self.unpublished.to_publish())

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
        if self.link is Link.RESUMING and not self._outbox.publisher.queued_records:
            self._talk()
        for change in changes:
            self._parts.changes.acked(change)

    def failed(self, reason: str, lost: Sequence[OutRecord]) -> None:
        """A session ended, and these records may not be in the log."""
        was_talking = self.is_talking
        if self.link in (Link.CONNECTING, Link.TALKING):
            text = "Kafka does not take records, queries go on from memory partition=%d reason=%s"
            logger.warning(text, self.partition, safe(reason))
        self.link, self.failure = Link.AWAY, reason
        self._talks.clear()
        if was_talking:  # what another session published at its beginning is still in the buffer
            self.lost_sessions += 1
            self.since_ms = self._parts.clock.now_ms()
            self._remember_lost(lost)
        self._owner.unlinked(self.partition)

    def _remember_lost(self, lost: Sequence[OutRecord]) -> None:
        for item in (*(item for record in lost for item in record.items), *self._outbox.take()):
            if routing_key(item.event) is None:
                self.unpublished.add_change(item)
            else:
                self._remember(item)
            if item.change is not None:
                self._parts.changes.fail(item.change)

    def _begin_session(self) -> None:
        self._session_began_ms = self._parts.clock.monotonic_ms()
        self._outbox.publisher.begin()

    def _talk(self) -> None:
        self.link = Link.TALKING
        self._talks.set()
        self.has_started = True
        self.since_ms = self._parts.clock.now_ms()
        self.unpublished.published()
        logger.info("Kafka session established partition=%d server_id=%s epoch=%d", self.partition, *self._origin[:2])
        # What came while the session was being opened comes right behind it.
        self._outbox.publish(self.unpublished.to_publish())
        self.unpublished.published()
        self._owner.linked(self.partition)

    def _remember(self, item: Item) -> None:
        for pending in self.unpublished.add(item):
            self._parts.view.drop(pending)

    @property
    def _origin(self) -> Origin:
        return Origin(*self._parts.identity)
