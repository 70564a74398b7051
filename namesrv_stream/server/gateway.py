"""From accepted events to the log, and back from the tables into the view.

While Kafka takes records, each event-loop turn's events become one batch of records, ticks among them: a tick says that
all heard before it is in the log. When a record is lost the gateway is *blind*: events still change the view, but only
the last fact of each broker is kept; once Kafka is back these are published, then ``server_resumed`` (its brokers start
again from age zero), then ticks again.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.logs import safe
from namesrv_stream.processor.name_server import Accepted, NameServer
from namesrv_stream.processor.prepared import PreparedAnswers
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.event_json import encode_event, encode_heartbeats, routing_key
from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerEvent,
    BrokerHeartbeat,
    Origin,
    ServerEvent,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    Tick,
)
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.model import LiveKey
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view import Pending
from namesrv_stream.server.facts import Fact, Facts
from namesrv_stream.server.identity import Identity
from namesrv_stream.server.publisher import Acked, KafkaPublisher, OutRecord

logger = logging.getLogger(__name__)

_MAX_HEARTBEATS_A_RECORD: Final = 2_000
_RETRY_AFTER_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bounds on what waits for Kafka, and how long a silence is a blindness."""

    queue_records: int
    queue_bytes: int
    max_gap_ms: int


class Gateway:
    """One server's way into the log. All methods run on the event loop and never block."""

    def __init__(
        self,
        server: NameServer,
        prepared: PreparedAnswers,
        identity: Identity,
        partitions: int,
        limits: GatewayLimits,
        clock: Clock,
    ) -> None:
        self._server = server
        self._prepared = prepared
        self._identity = identity
        self._partitions = partitions
        self._limits = limits
        self._clock = clock
        self._publisher: KafkaPublisher | None = None
        self._outbox: dict[int, list[tuple[BrokerEvent, Pending | None]]] = {}
        self._is_flush_due = False
        self._facts = Facts()
        self._said: list[Fact] = []
        self._is_talking = False
        self._has_started = False
        self._is_stopping = False
        self._session_began_ms = 0
        self._acked_ms = clock.monotonic_ms()
        self._alive_ms = clock.monotonic_ms()
        self._stalled_ms = -limits.max_gap_ms
        self.observed_ms = 0
        self.talking = asyncio.Event()

    def attach(self, publisher: KafkaPublisher) -> None:
        """Give the gateway its publisher and begin to talk."""
        self._publisher = publisher
        self._begin_session()

    # ---- events in ----

    def accept(self, accepted: Iterable[Accepted]) -> None:
        """Apply events to the view at once and log them."""
        for item in accepted:
            pending = None
            if item.applied is not None:
                pending, touched = self._server.view.accept(item.applied)
                self._invalidate(touched)
            self._log(item.logged, pending)

    def disconnected(self, connection_id: int, keys: Iterable[LeaseKey], reason: str) -> None:
        """A connection over which brokers registered is closed: evidence that they died, unless we were blind."""
        if self.is_blind:
            for key in keys:
                logger.warning(
                    "close not taken as death, this server was blind broker=%s addr=%s",
                    safe(key.broker_name),
                    safe(key.live_key.broker_addr),
                )
            return
        origin = self._origin(connection_id)
        for key in keys:
            live = self._server.table.group(key.broker_name).lives.get(key.live_key)
            if live is None or live.holders.get(origin.server_id) != origin.holder:
                continue
            event = BrokerDisconnected(origin, key.broker_name, key.live_key, reason)
            self.accept([Accepted(event, event)])

    @property
    def is_blind(self) -> bool:
        """Whether what this server did not hear lately proves nothing."""
        now_ms = self._clock.monotonic_ms()
        gap_ms = self._limits.max_gap_ms
        return (
            self._is_stopping
            or not self._is_talking
            or now_ms - self._alive_ms > gap_ms
            or now_ms - self._stalled_ms < gap_ms
            or (self._unacked > 0 and now_ms - self._acked_ms > gap_ms)
        )

    @property
    def is_talking(self) -> bool:
        """Whether Kafka takes this server's records."""
        return self._is_talking

    @property
    def _unacked(self) -> int:
        return self._publisher.queued_records if self._publisher else 0

    # ---- time ----

    def beat(self) -> None:
        """Called each tick interval: moves observed time, logs a tick, tries again where Kafka was lost."""
        now_ms = self._clock.monotonic_ms()
        step_ms = now_ms - self._alive_ms
        if step_ms > self._limits.max_gap_ms:
            self._stalled_ms = now_ms
            logger.warning("event loop stood still for %d ms", step_ms)
        self._alive_ms = now_ms
        self.observed_ms += min(step_ms, self._limits.max_gap_ms)
        if self._is_talking:
            if self._unacked == 0:
                self._acked_ms = now_ms
            self._flush()
            self._broadcast(Tick(self._origin()))
        elif (
            self._publisher is not None
            and not self._publisher.is_open
            and now_ms - self._session_began_ms >= _RETRY_AFTER_MS
        ):
            self._begin_session()

    # ---- from the tables ----

    def committed(self, changes: list[RouteChange], next_offsets: Mapping[int, int]) -> None:
        """Rows and offsets of one commit of the job."""
        for change in changes:
            if change.kind == ChangeKind.REGISTRATION_WANTED and change.server_id == self._identity.server_id:
                self._server.memory.wanted.add(_lease_key(change))
            elif change.kind == ChangeKind.BROKER_LIVE and change.gone:
                self._server.memory.forget(_lease_key(change))
        self._invalidate(self._server.view.commit(changes, next_offsets))

    def reloaded(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """The tables were opened anew."""
        self._server.view.reload(table, next_offsets)
        self._server.answers.clear()
        self._prepared.clear()

    def _invalidate(self, topics: set[str]) -> None:
        if topics:
            self._server.answers.invalidate(topics)
            self._prepared.invalidate(topics)

    # ---- events out ----

    def _log(self, event: BrokerEvent, pending: Pending | None) -> None:
        if self._is_talking and self._is_queue_full:
            self._publisher_or_fail().abort("the publish queue is full")
        if not self._is_talking:
            self._facts.remember(event, [pending] if pending else [])
            return
        partition = partition_of(routing_key(event) or "", self._partitions)
        self._outbox.setdefault(partition, []).append((event, pending))
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

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
            for record in _records(partition, items):
                self._publish(record)

    def _publish(self, record: OutRecord) -> None:
        publisher = self._publisher_or_fail()
        if publisher.queued_records == 0:
            self._acked_ms = self._clock.monotonic_ms()
        publisher.publish(record)

    def _broadcast(self, event: ServerEvent) -> None:
        value = encode_event(event)
        for partition in range(self._partitions):
            self._publish(OutRecord(partition, None, value))

    # ---- sessions with Kafka ----

    def _begin_session(self) -> None:
        """Open a session by saying what is not in the log; ``acked`` hears when all of it is."""
        self._session_began_ms = self._clock.monotonic_ms()
        self._publisher_or_fail().begin()
        if not self._has_started:
            self._broadcast(ServerStarted(self._origin()))
        self._said = self._facts.all()
        for fact in self._said:
            for record in self._fact_records(fact):
                self._publish(record)
        if self._has_started:
            self._broadcast(ServerResumed(self._origin()))

    def acked(self, records: list[Acked]) -> None:
        """Records that are in the log; called by the publisher."""
        self._acked_ms = self._clock.monotonic_ms()
        for record, offset in records:
            for pending in record.pendings:
                pending.position = (record.partition, offset)
        if not self._is_talking and self._unacked == 0:
            self._talk()

    def _talk(self) -> None:
        self._is_talking = self._has_started = True
        self._facts.forget(self._said)
        self._said = []
        logger.info("talking to Kafka server_id=%s epoch=%d", *self._identity)
        # What came while the session was being opened is said right behind it.
        later = self._facts.all()
        self._facts.forget(later)
        for fact in later:
            for record in self._fact_records(fact):
                self._publish(record)
        self.talking.set()

    def _fact_records(self, fact: Fact) -> list[OutRecord]:
        partition = partition_of(routing_key(fact.last) or "", self._partitions)
        *before, last = _records(partition, [(event, None) for event in fact.events()])
        return [*before, last._replace(pendings=fact.pendings)]

    def failed(self, reason: str, lost: Sequence[OutRecord]) -> None:
        """A session ended; called by the publisher."""
        if self._is_talking or not self._has_started:
            logger.warning("Kafka does not take records, queries go on from memory reason=%s", safe(reason))
        was_talking, self._is_talking = self._is_talking, False
        self.talking.clear()
        if not was_talking:
            return  # what the session said at its beginning is among the facts still
        for record in lost:
            for event in record.events:
                self._facts.remember(event, record.pendings)
        outbox, self._outbox = self._outbox, {}
        for items in outbox.values():
            for event, pending in items:
                self._facts.remember(event, [pending] if pending else [])

    async def stop(self, timeout_s: float) -> None:
        """Say good-bye to the log; from now on closes prove nothing."""
        self._is_stopping = True
        if self._is_talking:
            self._flush()
            self._broadcast(ServerStopped(self._origin()))
            if not await self._publisher_or_fail().close(timeout_s):
                logger.warning("stopped before all records were in the log")

    def _publisher_or_fail(self) -> KafkaPublisher:
        if self._publisher is None:
            raise RuntimeError("the gateway has no publisher yet")
        return self._publisher

    def _origin(self, connection_id: int = 0) -> Origin:
        return Origin(self._identity.server_id, self._identity.server_epoch, connection_id)


def _lease_key(change: RouteChange) -> LeaseKey:
    return LeaseKey(change.broker_name or "", LiveKey(change.cluster or "", change.broker_addr or ""))


def _records(partition: int, items: Iterable[tuple[BrokerEvent, Pending | None]]) -> Iterator[OutRecord]:
    """Events as records, in order: runs of heartbeats share one."""
    for batch in _batches(items):
        events = [event for event, _ in batch]
        heartbeats = [event for event in events if isinstance(event, BrokerHeartbeat)]
        value = encode_heartbeats(heartbeats) if heartbeats else encode_event(events[0])
        key = (routing_key(events[0]) or "").encode()
        yield OutRecord(partition, key, value, events, [p for _, p in batch if p is not None])


def _batches(
    items: Iterable[tuple[BrokerEvent, Pending | None]],
) -> Iterator[list[tuple[BrokerEvent, Pending | None]]]:
    for is_run, run in groupby(items, lambda item: isinstance(item[0], BrokerHeartbeat)):
        size = _MAX_HEARTBEATS_A_RECORD if is_run else 1
        while batch := list(islice(run, size)):
            yield batch
