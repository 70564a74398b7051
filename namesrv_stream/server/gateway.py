"""From accepted events to the view and to the log.

While Kafka takes records, each event-loop turn's events become one batch of records, ticks among them: a tick says that
all heard before it is in the log. When a record is lost the gateway is *blind*: events still change the view, but only
the last fact of each broker is kept; once Kafka is back these are published, then ``server_resumed`` (its brokers start
again from age zero), then ticks again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.logs import safe
from namesrv_stream.processor.name_server import Accepted
from namesrv_stream.route.event_json import encode_event, routing_key
from namesrv_stream.route.events import (
    BrokerDisconnected,
    Origin,
    ServerEvent,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    Tick,
)
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.server.facts import Fact, Facts
from namesrv_stream.server.identity import Identity
from namesrv_stream.server.loop_watch import LoopWatch
from namesrv_stream.server.records import Acked, Item, OutRecord, Publisher, Unloggable, records_of
from namesrv_stream.server.served_view import ServedView

logger = logging.getLogger(__name__)

_RETRY_AFTER_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bounds on what waits for Kafka and on one record, and how long a silence is a blindness."""

    queue_records: int
    queue_bytes: int
    record_bytes: int
    max_gap_ms: int


class Gateway:
    """One server's way into the log. All methods run on the event loop and never block."""

    def __init__(
        self,
        view: ServedView,
        identity: Identity,
        partitions: int,
        limits: GatewayLimits,
        clock: Clock,
    ) -> None:
        self._view = view
        self._identity = identity
        self._partitions = partitions
        self._limits = limits
        self._clock = clock
        self._watch = LoopWatch(clock, limits.max_gap_ms)
        self._publisher: Publisher | None = None
        self._outbox: dict[int, list[Item]] = {}
        self._is_flush_due = False
        self._facts = Facts()
        self._said: list[Fact] = []
        self._is_talking = False
        self._has_started = False
        self._is_stopping = False
        self._session_began_ms = 0
        self.talking = asyncio.Event()

    def attach(self, publisher: Publisher) -> None:
        """Give the gateway its publisher and begin to talk."""
        self._publisher = publisher
        self._begin_session()

    # ---- events in ----

    def accept(self, accepted: Iterable[Accepted]) -> None:
        """Apply events to the view at once and log them."""
        for item in accepted:
            pending = None
            if item.applied is not None:
                pending = self._view.accept(item.applied)
            self._log(Item(item.logged, pending))

    def disconnected(self, connection_id: int, keys: Iterable[LeaseKey], reason: str) -> None:
        """A connection over which brokers registered is closed: evidence that they died, unless we were blind."""
        if self.is_blind:
            for key in () if self._is_stopping else keys:
                logger.warning(
                    "close not taken as death, this server was blind broker=%s addr=%s",
                    safe(key.broker_name),
                    safe(key.live_key.broker_addr),
                )
            return
        origin = self._origin(connection_id)
        for key in keys:
            live = self._view.live(key)
            held = live.holders.get(origin.server_id) if live else None
            if held is None:
                continue  # it said good-bye, or has expired
            event = BrokerDisconnected(origin, key.broker_name, key.live_key, reason)
            # The close of a superseded connection ends nothing; it is logged for the row that says so.
            self.accept([Accepted(event, event if held == origin.holder else None)])

    @property
    def is_blind(self) -> bool:
        """Whether what this server did not hear lately proves nothing."""
        return self._is_stopping or not self._is_talking or self._watch.stood_still or self._is_kafka_slow

    @property
    def _is_kafka_slow(self) -> bool:
        oldest_ms = self._publisher.oldest_ms if self._publisher else None
        return oldest_ms is not None and self._clock.monotonic_ms() - oldest_ms > self._limits.max_gap_ms

    @property
    def is_talking(self) -> bool:
        """Whether Kafka takes this server's records."""
        return self._is_talking

    @property
    def observed_ms(self) -> int:
        """For how long this server could listen."""
        return self._watch.observed_ms

    # ---- time ----

    def beat(self) -> None:
        """Called each tick interval: moves observed time, logs a tick, tries again where Kafka was lost."""
        self._watch.beat()
        if self._is_talking:
            self._flush()
            self._broadcast(Tick(self._origin()))
        elif (
            self._publisher is not None
            and self._publisher.can_begin
            and self._clock.monotonic_ms() - self._session_began_ms >= _RETRY_AFTER_MS
        ):
            self._begin_session()

    # ---- events out ----

    def _log(self, item: Item) -> None:
        if self._is_talking and self._is_queue_full:
            self._publisher_or_fail().abort("the publish queue is full")
        if not self._is_talking:
            self._remember(item)
            return
        partition = partition_of(routing_key(item.event) or "", self._partitions)
        self._outbox.setdefault(partition, []).append(item)
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _remember(self, item: Item) -> None:
        for pending in self._facts.remember(item):
            self._view.drop(pending)

    @property
    def _is_queue_full(self) -> bool:
        publisher = self._publisher_or_fail()
        return (
            publisher.queued_records >= self._limits.queue_records or publisher.queued_bytes >= self._limits.queue_bytes
        )

    def _flush(self) -> None:
        self._is_flush_due = False
        outbox, self._outbox = self._outbox, {}
        for partition, items in outbox.items():
            self._publish_items(partition, items)

    def _publish_items(self, partition: int, items: Iterable[Item]) -> None:
        for record in records_of(partition, items, self._limits.record_bytes):
            if isinstance(record, Unloggable):
                name = safe(routing_key(record.item.event) or "")
                logger.error("event cannot be logged, dropped broker=%s reason=%s", name, safe(record.reason))
                if record.item.pending is not None:
                    self._view.drop(record.item.pending)
            else:
                self._publish(record)

    def _publish(self, record: OutRecord) -> None:
        self._publisher_or_fail().publish(record._replace(at_ms=self._clock.monotonic_ms()))

    def _broadcast(self, event: ServerEvent) -> None:
        value = encode_event(event)
        for partition in range(self._partitions):
            self._publish(OutRecord(partition, None, value))

    # ---- sessions with Kafka ----

    def _begin_session(self) -> None:
        self._session_began_ms = self._clock.monotonic_ms()
        self._publisher_or_fail().begin()

    def opened(self) -> None:
        """Kafka is there: say what is not in the log; ``acked`` hears when all of it is. Called by the publisher."""
        if not self._has_started:
            self._broadcast(ServerStarted(self._origin()))
        self._said = self._facts.all()
        self._publish_facts(self._said)
        if self._has_started:
            self._broadcast(ServerResumed(self._origin()))

    def acked(self, records: list[Acked]) -> None:
        """Records that are in the log; called by the publisher."""
        is_covered = False
        for record, offset in records:
            for _, pending in record.items:
                if pending is not None:
                    is_covered |= self._view.settle(pending, (record.partition, offset))
        if is_covered:
            self._view.sweep()
        if not self._is_talking and not self._publisher_or_fail().queued_records:
            self._talk()

    def _talk(self) -> None:
        self._is_talking = self._has_started = True
        self._facts.forget(self._said)
        self._said = []
        logger.info("talking to Kafka server_id=%s epoch=%d", *self._identity)
        # What came while the session was being opened is said right behind it.
        later = self._facts.all()
        self._facts.forget(later)
        self._publish_facts(later)
        self.talking.set()

    def _publish_facts(self, facts: Iterable[Fact]) -> None:
        items: dict[int, list[Item]] = {}
        for fact in facts:
            partition = partition_of(routing_key(fact.last.event) or "", self._partitions)
            items.setdefault(partition, []).extend(fact.items())
        for partition, of_partition in items.items():
            self._publish_items(partition, of_partition)

    def failed(self, reason: str, lost: Sequence[OutRecord]) -> None:
        """A session ended; called by the publisher."""
        if self._is_talking or not self._has_started:
            logger.warning("Kafka does not take records, queries go on from memory reason=%s", safe(reason))
        was_talking, self._is_talking = self._is_talking, False
        self.talking.clear()
        self._said = []
        if not was_talking:
            return  # what the session said at its beginning is among the facts still
        outbox, self._outbox = self._outbox, {}
        for items in (*(record.items for record in lost), *outbox.values()):
            for item in items:
                self._remember(item)

    def begin_stop(self) -> None:
        """From now on closes prove nothing."""
        self._is_stopping = True

    async def stop(self, timeout_s: float) -> None:
        """Say good-bye to the log, in ``timeout_s`` or twice that where a session is just being opened."""
        self.begin_stop()
        publisher = self._publisher
        if publisher is not None and publisher.queued_records and not self._is_talking:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.talking.wait(), timeout_s)
        if publisher is not None and self._is_talking:
            self._flush()
            self._broadcast(ServerStopped(self._origin()))
            if not await publisher.close(timeout_s):
                logger.warning("stopped before all records were in the log")
            self._is_talking = False
        if len(self._facts):
            logger.warning("stopped while the last facts of brokers are not in the log brokers=%d", len(self._facts))

    def _publisher_or_fail(self) -> Publisher:
        if self._publisher is None:
            raise RuntimeError("the gateway has no publisher yet")
        return self._publisher

    def _origin(self, connection_id: int = 0) -> Origin:
        return Origin(self._identity.server_id, self._identity.server_epoch, connection_id)
