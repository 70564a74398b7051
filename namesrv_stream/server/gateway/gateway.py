"""From accepted events to the view and to the log.

Each partition of the log is reached by itself (``partition_log``), and the server may be blind for one and not for
another. An operator's change waits until Kafka takes records of all partitions that it concerns; it is refused at once
where Kafka is known to be away. One that was on its way when a record was lost has an unknown outcome.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.errors import SystemBusy
from namesrv_stream.logs import safe
from namesrv_stream.processor.name_server import Accepted
from namesrv_stream.route.events import AcceptedEvent, BrokerDisconnected, BrokerHeartbeat, Origin
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.partitioner import partition_of, routing_key
from namesrv_stream.server.gateway.backlog import Backlog
from namesrv_stream.server.gateway.observed_time import LastHeartbeats, LoopWatch
from namesrv_stream.server.gateway.operator_changes import NOT_TAKEN, Change, OperatorChanges, Outcome
from namesrv_stream.server.gateway.partition_log import LogParts, PartitionLog
from namesrv_stream.server.gateway.records import GatewayLimits, Item, Publisher, check_loggable
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.view.served_view import ServedView

logger = logging.getLogger(__name__)


class GatewayStatus(NamedTuple):
    """One moment of a gateway, for people and scrapes.

    Attributes:
        is_talking: Kafka takes records of all partitions.
        has_started: Kafka has taken records since this server's start.
        is_blind: For some partition at least.
        since_ms: Wall clock of the last time that Kafka began, or ceased, to take records; at first of the start.
        lost_sessions: How often it ceased.
        reason: Why it does not; "" while it does.
        away: The partitions of which Kafka takes no records.
        queued_records: Not acknowledged, and ``queued_bytes``.
        oldest_age_ms: For how long the oldest of them waits.
        unpublished_brokers: With events to publish when Kafka is back, and ``unpublished_changes``.
    """

    is_talking: bool
    has_started: bool
    is_blind: bool
    is_stopping: bool
    since_ms: int
    lost_sessions: int
    reason: str
    away: tuple[int, ...]
    partitions: int
    queued_records: int
    queued_bytes: int
    oldest_age_ms: int
    unpublished_brokers: int
    unpublished_changes: int


class Gateway:
    """One server's way into the log. All methods run on the event loop and never block.

    Attributes:
        view: What is changed by all that comes in.
        limits: On what waits for Kafka.
        last_heartbeats: When each broker was heard here.
        backlog: Requests that the server has received and not worked on yet.
        talking: Set once Kafka takes this server's records, of some partition at least.
    """

    def __init__(
        self, view: ServedView, identity: Identity, limits: GatewayLimits, clock: Clock, peer_log: PeerLog
    ) -> None:
        self.view = view
        self.last_heartbeats = LastHeartbeats(limits.partitions)
        self.backlog = Backlog()
        self.talking = asyncio.Event()
        self._identity = identity
        self.limits = limits
        self._clock = clock
        self._watch = LoopWatch(clock, limits.max_gap_ms)
        self._peer_log = peer_log
        self._changes = OperatorChanges(
            limits.change_timeout_ms, lambda p: self._logs[p].takes_changes, self._begin_change
        )
        parts = LogParts(view, identity, limits, clock, peer_log, self._changes)
        self._logs = [PartitionLog(p, parts, self) for p in range(limits.partitions)]
        self._numbers = count(1)
        self._is_stopping = False

    def attach(self, publisher_of: Callable[[PartitionLog], Publisher]) -> None:
        """Give each partition its publisher and begin to talk."""
        for log in self._logs:
            log.attach(publisher_of(log))

    def kafka_is_away(self, reason: str) -> None:
        """Kafka did not answer before there were publishers."""
        for log in self._logs:
            log.is_away(reason)

    # ---- events in ----

    def accept(self, accepted: Iterable[Accepted]) -> None:
        """Apply events to the view at once and log them."""
        self._take_in(accepted, None)

    def heard(self, heartbeat: BrokerHeartbeat) -> None:
        """Likewise one heartbeat that changes nothing: a short way for what comes most."""
        self.last_heartbeats.received(heartbeat, self.observed_ms)
        partition = partition_of(heartbeat.broker_name, self.limits.partitions)
        self._logs[partition].put(Item(heartbeat, None, next(self._numbers)))

    def change(self, accepted: Sequence[Accepted], outcome: Outcome) -> None:
        """Apply an operator's events to the view and log them; ``outcome`` hears once whether they are in the log.

        They wait for Kafka where it has not answered yet, or is slow. The outcome hears of ``SystemBusy`` where they
        waited too long, and where nobody knows. Events that take too long to be acknowledged stay on their way. Events
        that are lost are taken out of the view again, but for those that go to every partition: these are logged again
        until all partitions have them.

        Raises:
            SystemBusy: Kafka is known to be away, or too much waits; nothing was done.
            RequestRefused: No record can hold an event; nothing was done.
        """
        partitions = frozenset(p for event, _ in accepted for p in self._partitions_of(event))
        is_full = self._changes.waiting >= self.limits.queue_records // 2
        if self._is_stopping or is_full or any(self._logs[p].refuses_changes for p in partitions):
            raise SystemBusy(NOT_TAKEN)
        for event, _ in accepted:
            check_loggable(event, self.limits.record_bytes)
        self._changes.add(accepted, partitions, outcome, self._clock.monotonic_ms())

    def _begin_change(self, change: Change) -> None:
        change.unacked = sum(len(self._partitions_of(event)) for event, _ in change.accepted)
        self._take_in(change.accepted, change)

    def _take_in(self, accepted: Iterable[Accepted], change: Change | None) -> None:
        for logged, applied in accepted:
            self.last_heartbeats.received(logged, self.observed_ms)
            partitions = self._partitions_of(logged)
            tickets = [None] * len(partitions) if applied is None else self.view.accept(applied)
            for partition, pending in zip(partitions, tickets, strict=True):
                self._logs[partition].put(Item(logged, pending, next(self._numbers), change))

    def _partitions_of(self, event: AcceptedEvent) -> Sequence[int]:
        key = routing_key(event)
        partitions = self.limits.partitions
        return range(partitions) if key is None else (partition_of(key, partitions),)

    def disconnected(self, connection_id: int, keys: Iterable[LeaseKey], reason: str) -> None:
        """A peer closed its connection, over which brokers registered: evidence that they died, unless we were blind.

        It is logged, and takes effect with the fold's commit.
        """
        origin = Origin(*self._identity, connection_id)
        for key in keys:
            if self.is_blind_for(partition_of(key.broker_name, self.limits.partitions)):
                self._tell_ignored(key)
                continue
            live = self.view.live(key)
            held = live.holders.get(origin.server_id) if live else None
            if held is None:
                continue  # it unregistered, or has expired
            # The close of a superseded connection ends nothing; it is logged for the row that says so.
            self.accept([Accepted(BrokerDisconnected(origin, key.broker_name, key.live_key, reason), None)])
            if held == origin.holder:
                self.view.closed(key, held)

    def _tell_ignored(self, key: LeaseKey) -> None:
        if not self._is_stopping:
            text = "ignored disconnect while blind broker=%s addr=%s"
            broker = (safe(key.broker_name), safe(key.live_key.broker_addr))
            self._peer_log.tell(logger, logging.WARNING, text, *broker)

    def is_blind_for(self, partition: int) -> bool:
        """Whether what this server did not hear lately of a partition's brokers proves nothing."""
        log = self._logs[partition]
        return self._is_stopping or not log.is_talking or self._watch.stood_still or log.is_slow

    @property
    def is_talking(self) -> bool:
        """Whether Kafka takes this server's records of all partitions."""
        return all(log.is_talking for log in self._logs)

    @property
    def status(self) -> GatewayStatus:
        away = [p for p, log in enumerate(self._logs) if not log.is_talking]
        log = self._logs[away[0]] if away else max(self._logs, key=lambda each: each.since_ms)
        publishers = [each.publisher for each in self._logs if each.publisher is not None]
        oldest = [publisher.oldest_ms for publisher in publishers if publisher.oldest_ms is not None]
        return GatewayStatus(
            is_talking=not away,
            has_started=any(each.has_started for each in self._logs),
            is_blind=any(map(self.is_blind_for, range(len(self._logs)))),
            is_stopping=self._is_stopping,
            since_ms=log.since_ms,
            lost_sessions=sum(each.lost_sessions for each in self._logs),
            reason=log.failure if away else "",
            away=tuple(away),
            partitions=len(self._logs),
            queued_records=sum(publisher.queued_records for publisher in publishers),
            queued_bytes=sum(publisher.queued_bytes for publisher in publishers),
            oldest_age_ms=self._clock.monotonic_ms() - min(oldest) if oldest else 0,
            unpublished_brokers=sum(each.unpublished.brokers for each in self._logs),
            unpublished_changes=sum(each.unpublished.changes for each in self._logs),
        )

    @property
    def observed_ms(self) -> int:
        """For how long this server could listen."""
        return self._watch.observed_ms

    # ---- time ----

    def beat(self) -> None:
        """Called each tick interval: moves observed time, asks for a tick, tries again where Kafka was lost."""
        self._watch.beat()
        self._changes.expire(self._clock.monotonic_ms())
        for log in self._logs:
            log.beat()
        self._changes.proceed()
        self.backlog.when_worked_off(self._tick)

    def _tick(self) -> None:
        """Log that all that was received before is in the log; a broker of which something waits counts as heard."""
        for peer in self.backlog.waiting:
            for heartbeat in peer.heartbeats():
                self.heard(heartbeat)
        for log in self._logs:
            log.tick()

    # ---- what partitions tell ----

    def linked(self, partition: int) -> None:
        """Kafka takes a partition's records."""
        self.last_heartbeats.begin(partition, self.observed_ms)
        self.talking.set()
        self._changes.proceed()

    def unlinked(self, partition: int) -> None:
        """Kafka is away for a partition."""
        if not any(log.is_talking for log in self._logs):
            self.talking.clear()
        self._changes.refuse(partition)

    # ---- the end ----

    def begin_stop(self) -> None:
        """From now on closes prove nothing."""
        self._is_stopping = True

    async def stop(self, timeout_s: float) -> None:
        """Take leave of the log, in ``timeout_s`` or twice that where a session is just being opened."""
        self.begin_stop()
        self._changes.refuse()
        await asyncio.gather(*(log.stop(timeout_s) for log in self._logs))
        self._changes.fail_all()
        status = self.status
        unpublished = (status.unpublished_brokers, status.unpublished_changes)
        if any(unpublished):
            logger.warning("stopped with unpublished events brokers=%d changes=%d", *unpublished)
