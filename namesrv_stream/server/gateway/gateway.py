"""Applies accepted events to the view and writes them to the log.

Every partition has its own session with Kafka (``partition_log``), so the server can be blind for one partition only.
An operator's change waits until Kafka accepts records of all its partitions. It is refused at once if Kafka is known to
be unavailable. If a record is lost while a change is being published, the outcome of the change is unknown.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.errors import SystemBusy
from namesrv_stream.logs import safe
from namesrv_stream.processor.name_server import Accepted
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerHeartbeat,
    Origin,
    partition_of,
    routing_key,
)
from namesrv_stream.route.model import Holder, LeaseKey
from namesrv_stream.server.gateway.observed_time import Backlog, LastHeartbeats, LoopWatch
from namesrv_stream.server.gateway.operator_changes import NOT_TAKEN, Change, OperatorChanges, Outcome
from namesrv_stream.server.gateway.partition_log import LogParts, PartitionLog
from namesrv_stream.server.gateway.publisher import KafkaPublisher
from namesrv_stream.server.gateway.records import GatewayLimits, Item, check_loggable
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.turns import Queue, Turns
from namesrv_stream.server.view.served_view import ServedView

logger = logging.getLogger(__name__)

#: Heartbeats of waiting peers that are logged at once before a tick; 7 µs each.
_HEARTBEATS_A_STEP: Final = 100
#: Closed connections that are published together, within the turn: afterwards, those of thousands would take 10 ms.
_CLOSES_A_FLUSH: Final = 100


class GatewayStatus(NamedTuple):
    """The status of a gateway at one moment, for health checks, metrics and the console; see also ``PartitionLog``.

    Attributes:
        is_connected: Whether Kafka accepts records of all partitions.
        is_blind: Whether the server is blind for at least one partition.
        reason: Why Kafka does not accept records; "" while it does.
        away: The partitions whose records Kafka does not accept.
        queued_records: Number of records that Kafka has not acknowledged.
        oldest_age_ms: How long the oldest of them has waited.
        unpublished_brokers: Number of brokers with events to publish when Kafka is back.
    """

    is_connected: bool
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
    """Writes one server's events to the log. All methods run on the event loop and never block.

    Attributes:
        leaves_list: Whether this server is about to stop and advertises no address any more.
    """

    def __init__(
        self,
        view: ServedView,
        identity: Identity,
        limits: GatewayLimits,
        clock: Clock,
        peer_log: PeerLog,
        turns: Turns,
        address: str = "",
    ) -> None:
        """Create a gateway without publishers. ``address`` is for the list of name servers; "" means unlisted."""
        self.view = view
        self.last_heartbeats = LastHeartbeats()
        self.backlog = Backlog()
        self.connected = asyncio.Event()
        self._identity = identity
        self.limits = limits
        self._clock = clock
        self._watch = LoopWatch(clock, limits.max_gap_ms)
        self._peer_log = peer_log
        self._changes = OperatorChanges(
            limits.change_timeout_ms, lambda p: self._logs[p].takes_changes, self._begin_change
        )
        callbacks = self._linked, self._unlinked, self._filled
        parts = LogParts(view, identity, limits, clock, peer_log, self._changes, *callbacks)
        self._logs = [PartitionLog(p, parts) for p in range(limits.partitions)]
        self._numbers = count(1)
        self._blind_ms = [clock.monotonic_ms()] * limits.partitions  # when the server was last blind, by partition
        self.server_id = identity.server_id
        self.leaves_list = False
        self._address = address
        self._is_stopping = False
        self._turns = turns
        self._is_ticking = False
        self._half_full: set[int] = set()  # partitions of which half of the publish queue is used

    def attach(self, publisher_of: Callable[[PartitionLog], KafkaPublisher]) -> None:
        """Give every partition its publisher, which opens a session with Kafka."""
        for log in self._logs:
            log.attach(publisher_of(log))

    def kafka_is_away(self, reason: str) -> None:
        """Record that Kafka does not answer, before publishers are attached."""
        for log in self._logs:
            log.is_away(reason)

    # ---- accepting events ----

    def accept(self, accepted: Sequence[Accepted]) -> None:
        for logged, _ in accepted:
            self.last_heartbeats.received(logged, self.observed_ms)
        self._take_in(accepted, None)

    def is_unbroken(self, key: LeaseKey, since_ms: int) -> bool:
        """Return whether, since a monotonic time, this server has heard a broker without a pause.

        After a pause, the log may contain that the broker expired, although no commit says so yet. So a pause is a time
        without a sign of life that comes close to the broker's timeout, or in which the server was blind.
        """
        partition, live = partition_of(key.broker_name, self.limits.partitions), self.view.live(key)
        if since_ms < self._blind_ms[partition] or self.is_blind_for(partition):
            return False
        if live is None:
            return True  # it was refused; otherwise a registration changes the view, and is logged in full
        longest_ms = self.last_heartbeats.longest_gap_ms(key, self.observed_ms)
        return longest_ms is not None and longest_ms < self.view.timeout_ms(live) - self.limits.max_gap_ms

    def accept_heartbeat(self, heartbeat: BrokerHeartbeat) -> None:
        """Log a heartbeat that changes nothing in the view. Most events are such heartbeats, so this path is short."""
        self.last_heartbeats.received(heartbeat, self.observed_ms)
        partition = partition_of(heartbeat.broker_name, self.limits.partitions)
        self._logs[partition].put(Item(heartbeat, None, next(self._numbers)))

    def change(self, accepted: Sequence[Accepted], outcome: Outcome) -> None:
        """Apply an operator's events to the view and log them; call ``outcome`` once with the result.

        The events wait while Kafka has not answered yet, or is slow. ``outcome`` receives ``SystemBusy`` if they waited
        too long, or if the outcome is unknown. Events whose acknowledgement takes too long stay in the publish queue.
        The view drops lost events, except those that go to every partition: these are logged again until all partitions
        have them.

        Raises:
            SystemBusy: Kafka is known to be unavailable, too much is waiting, or the server stops; nothing was done.
            RequestRefused: An event does not fit into a record; nothing was done.
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
            partitions = self._partitions_of(logged)
            pendings = [None] * len(partitions) if applied is None else self.view.accept(applied)
            for partition, pending in zip(partitions, pendings, strict=True):
                self._logs[partition].put(Item(logged, pending, next(self._numbers), change))

    def _partitions_of(self, event: AcceptedEvent) -> Sequence[int]:
        key = routing_key(event)
        partitions = self.limits.partitions
        return range(partitions) if key is None else (partition_of(key, partitions),)

    def disconnected(self, connection_id: int, keys: Iterable[LeaseKey], reason: str) -> Iterator[None]:
        """Log that brokers disconnected, because their connection was closed; a step for each broker.

        A disconnect takes effect when the job commits it. It is ignored while the server is blind for the broker.
        """
        for number, key in enumerate(keys, 1):
            self.view.closed(key, Holder(self._identity.server_epoch, connection_id))
            self._disconnected(Origin(*self._identity, connection_id), key, reason)
            if number % _CLOSES_A_FLUSH == 0:
                for log in self._logs:
                    log.flush()
            yield

    def _disconnected(self, origin: Origin, key: LeaseKey, reason: str) -> None:
        if self.is_blind_for(partition_of(key.broker_name, self.limits.partitions)):
            if not self._is_stopping:
                text = "ignored disconnect while blind broker=%s addr=%s"
                broker = (safe(key.broker_name), safe(key.live_key.broker_addr))
                self._peer_log.log(logger, logging.WARNING, text, *broker)
            return
        live = self.view.live(key)
        if live is None or origin.server_id not in live.holders:
            return  # the broker has unregistered or expired
        # Closing a superseded connection removes no broker. It is logged so that a row documents it.
        self.accept([Accepted(BrokerDisconnected(origin, key.broker_name, key.live_key, reason), None)])

    def is_blind_for(self, partition: int) -> bool:
        """Return whether a closed connection currently proves nothing about a partition's brokers."""
        log = self._logs[partition]
        return self._is_stopping or not log.is_connected or self._watch.was_stalled or log.is_slow

    @property
    def is_connected(self) -> bool:
        return all(log.is_connected for log in self._logs)

    @property
    def status(self) -> GatewayStatus:
        away = [p for p, log in enumerate(self._logs) if not log.is_connected]
        log = self._logs[away[0]] if away else max(self._logs, key=lambda each: each.since_ms)
        publishers = [each.publisher for each in self._logs if each.publisher is not None]
        oldest = [publisher.oldest_ms for publisher in publishers if publisher.oldest_ms is not None]
        return GatewayStatus(
            is_connected=not away,
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
        """Observed time: how long this server could receive heartbeats."""
        return self._watch.observed_ms

    def beat(self) -> None:
        """Advance observed time, request a tick, and retry lost sessions. Called every tick interval."""
        self._watch.beat()
        self._changes.expire(self._clock.monotonic_ms())
        for partition, log in enumerate(self._logs):
            if self.is_blind_for(partition):
                self._blind_ms[partition] = self._clock.monotonic_ms()
            log.beat()
        self._changes.proceed()
        self.backlog.when_worked_off(self._tick)

    def _tick(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._turns.run(self._log_ticks(), Queue.VITAL, is_due=True)

    def _log_ticks(self) -> Iterator[None]:
        """Log ticks. First log heartbeats for the brokers of waiting peers, whose requests are not processed yet."""
        try:
            for number, heartbeat in enumerate(self.backlog.heartbeats(), 1):
                self.accept_heartbeat(heartbeat)
                if number % _HEARTBEATS_A_STEP == 0:
                    yield
            # Only a complete server is listed: one that has served everything in the log before its own start.
            is_listed = not self.leaves_list and self.view.has_own_start(self.limits.partitions)
            for log in self._logs:
                log.tick(self._address if is_listed else "")
        finally:
            self._is_ticking = False

    def _linked(self, partition: int) -> None:
        self._blind_ms[partition] = self._clock.monotonic_ms()
        self.connected.set()
        self._changes.proceed()

    def _unlinked(self, partition: int) -> None:
        if not any(log.is_connected for log in self._logs):
            self.connected.clear()
        self._changes.refuse(partition)

    def _filled(self, partition: int, is_half_full: bool) -> None:
        if is_half_full != (partition in self._half_full):
            self._half_full ^= {partition}
            self._turns.hold(Queue.LOGGED, is_held=bool(self._half_full))

    def leave_list(self) -> None:
        """Take this server off the list of name servers, with a tick that advertises no address."""
        self.leaves_list = True
        self.backlog.when_worked_off(self._tick)

    def begin_stop(self) -> None:
        """Treat the server as blind from now on: closed connections no longer remove brokers."""
        self._is_stopping = True

    async def stop(self, timeout_s: float) -> None:
        """Log the stop and close the sessions, within ``timeout_s``; twice that if a session is being opened."""
        self.begin_stop()
        self._changes.refuse()
        await asyncio.gather(*(log.stop(timeout_s) for log in self._logs))
        self._changes.fail_all()
        status = self.status
        unpublished = (status.unpublished_brokers, status.unpublished_changes)
        if any(unpublished):
            logger.warning("stopped with unpublished events brokers=%d changes=%d", *unpublished)
