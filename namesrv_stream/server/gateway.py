"""From accepted events to the view and to the log.

While Kafka takes records, each event-loop turn's events become one batch of records, ticks among them: a tick says that
all heard before it is in the log. When a record is lost the gateway is *blind*: events still change the view, but only
the last fact of each broker is kept; once Kafka is back ``server_resumed`` is published (its brokers start again from
age zero, before any of these facts lets time pass), then these, then ticks again. An operator's change is not accepted
while blind; one that was on its way when the record was lost has an unknown outcome.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import SystemBusy
from namesrv_stream.logs import safe
from namesrv_stream.processor.name_server import Accepted
from namesrv_stream.route.event_json import routing_key
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerHeartbeat,
    Origin,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    Tick,
)
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.server.gateway_standing import GatewayStanding
from namesrv_stream.server.hearings import Hearings
from namesrv_stream.server.identity import Identity
from namesrv_stream.server.loop_watch import LoopWatch
from namesrv_stream.server.outbox import GatewayLimits, Outbox
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.receipts import NOT_TAKEN, UNKNOWN, Outcome, Receipt, Receipts
from namesrv_stream.server.records import Acked, Item, OutRecord, Publisher, check_loggable
from namesrv_stream.server.served_view import ServedView
from namesrv_stream.server.unsaid import Unsaid

logger = logging.getLogger(__name__)

_RETRY_AFTER_MS: Final = 1_000


class Gateway:
    """One server's way into the log. All methods run on the event loop and never block.

    Attributes:
        view: What is changed by all that comes in.
        hearings: When each broker was heard here.
        talking: Set while Kafka takes this server's records.
    """

    def __init__(
        self,
        view: ServedView,
        identity: Identity,
        partitions: int,
        limits: GatewayLimits,
        clock: Clock,
        peer_log: PeerLog,
    ) -> None:
        self.view = view
        self.hearings = Hearings()
        self._identity = identity
        self._partitions = partitions
        self._limits = limits
        self._clock = clock
        self._watch = LoopWatch(clock, limits.max_gap_ms)
        self._outbox = Outbox(view, partitions, limits, clock, peer_log)
        self._peer_log = peer_log
        self._unsaid = Unsaid(partitions)
        self._receipts = Receipts(limits.change_timeout_ms)
        self._numbers = count(1)
        self._is_talking = False
        self._has_started = False
        self._is_stopping = False
        self._session_began_ms = 0
        self._since_ms = clock.now_ms()
        self._lost_sessions = 0
        self._failure = "it has not answered yet"
        self.talking = asyncio.Event()

    def attach(self, publisher: Publisher) -> None:
        """Give the gateway its publisher and begin to talk."""
        self._outbox.attach(publisher)
        self._begin_session()

    # ---- events in ----

    def accept(self, accepted: Iterable[Accepted]) -> None:
        """Apply events to the view at once and log them."""
        self._take_in(accepted, None)

    def heard(self, heartbeat: BrokerHeartbeat) -> None:
        """Likewise one heartbeat that changes nothing: a short way for what comes most."""
        self.hearings.heard(heartbeat, self.observed_ms)
        self._log(partition_of(heartbeat.broker_name, self._partitions), Item(heartbeat, None, next(self._numbers)))

    def change(self, accepted: Sequence[Accepted], outcome: Outcome) -> None:
        """Apply an operator's events to the view and log them; ``outcome`` hears once whether they are in the log.

        It hears of ``SystemBusy`` where nobody knows. Events that take too long stay on their way. Events that are lost
        are taken out of the view again, but for those that go to every partition: these are said until all have them.

        Raises:
            SystemBusy: The log takes no change now; nothing was done.
            RequestRefused: No record can hold an event; nothing was done.
        """
        if not self._is_talking or self._is_stopping or self._outbox.is_slow or self._outbox.is_half_full:
            raise SystemBusy(NOT_TAKEN)
        for event, _ in accepted:
            check_loggable(event, self._limits.record_bytes)
        receipt = self._receipts.open(outcome, self._clock.monotonic_ms())
        receipt.missing = sum(len(self._partitions_of(event)) for event, _ in accepted)
        self._take_in(accepted, receipt)

    def _take_in(self, accepted: Iterable[Accepted], receipt: Receipt | None) -> None:
        for logged, applied in accepted:
            self.hearings.take_in(logged, self.observed_ms)
            partitions = self._partitions_of(logged)
            tickets = [None] * len(partitions) if applied is None else self.view.accept(applied)
            for partition, pending in zip(partitions, tickets, strict=True):
                self._log(partition, Item(logged, pending, next(self._numbers), receipt))

    def _partitions_of(self, event: AcceptedEvent) -> Sequence[int]:
        key = routing_key(event)
        return range(self._partitions) if key is None else (partition_of(key, self._partitions),)

    def disconnected(self, connection_id: int, keys: Iterable[LeaseKey], reason: str) -> None:
        """A connection over which brokers registered is closed: evidence that they died, unless we were blind.

        It is logged, and takes effect with the fold's commit.
        """
        if self.is_blind:
            for key in () if self._is_stopping else keys:
                broker = (safe(key.broker_name), safe(key.live_key.broker_addr))
                text = "close not taken as death, this server was blind broker=%s addr=%s"
                self._peer_log.tell(logger, logging.WARNING, text, *broker)
            return
        origin = self._origin(connection_id)
        for key in keys:
            live = self.view.live(key)
            held = live.holders.get(origin.server_id) if live else None
            if held is None:
                continue  # it said good-bye, or has expired
            # The close of a superseded connection ends nothing; it is logged for the row that says so.
            self.accept([Accepted(BrokerDisconnected(origin, key.broker_name, key.live_key, reason), None)])
            if held == origin.holder:
                self.view.closed(key, held)

    @property
    def is_blind(self) -> bool:
        """Whether what this server did not hear lately proves nothing."""
        return self._is_stopping or not self._is_talking or self._watch.stood_still or self._outbox.is_slow

    @property
    def is_talking(self) -> bool:
        """Whether Kafka takes this server's records."""
        return self._is_talking

    @property
    def standing(self) -> GatewayStanding:
        publisher = self._outbox.publisher if self._outbox.is_attached else None
        oldest_ms = publisher.oldest_ms if publisher else None
        return GatewayStanding(
            is_talking=self._is_talking,
            has_started=self._has_started,
            is_blind=self.is_blind,
            is_stopping=self._is_stopping,
            since_ms=self._since_ms,
            lost_sessions=self._lost_sessions,
            reason="" if self._is_talking else self._failure,
            queued_records=publisher.queued_records if publisher else 0,
            queued_bytes=publisher.queued_bytes if publisher else 0,
            oldest_age_ms=0 if oldest_ms is None else self._clock.monotonic_ms() - oldest_ms,
            unsaid_brokers=self._unsaid.brokers,
            unsaid_changes=self._unsaid.changes,
        )

    @property
    def observed_ms(self) -> int:
        """For how long this server could listen."""
        return self._watch.observed_ms

    # ---- time ----

    def beat(self) -> None:
        """Called each tick interval: moves observed time, logs a tick, tries again where Kafka was lost."""
        self._watch.beat()
        self._receipts.expire(self._clock.monotonic_ms())
        if self._is_talking:
            self._outbox.flush()
            self._outbox.broadcast(Tick(self._origin()))
        elif self._outbox.can_begin and self._clock.monotonic_ms() - self._session_began_ms >= _RETRY_AFTER_MS:
            self._begin_session()

    # ---- events out ----

    def _log(self, partition: int, item: Item) -> None:
        # What is gathered already was looked at when the first of it came.
        if self._is_talking and self._outbox.is_empty and self._outbox.is_full:
            self._outbox.publisher.abort("the publish queue is full")
        if self._is_talking:
            self._outbox.put(partition, item)
        else:
            self._remember(item)

    def _remember(self, item: Item) -> None:
        for pending in self._unsaid.remember(item):
            self.view.drop(pending)

    # ---- sessions with Kafka ----

    def _begin_session(self) -> None:
        self._session_began_ms = self._clock.monotonic_ms()
        self._outbox.publisher.begin()

    def opened(self) -> None:
        """Kafka is there: say what is not in the log; ``acked`` hears when all of it is. Called by the publisher."""
        self._outbox.broadcast((ServerResumed if self._has_started else ServerStarted)(self._origin()))
        self._outbox.publish(self._unsaid.say())

    def acked(self, records: list[Acked]) -> None:
        """Records that are in the log; called by the publisher."""
        is_covered = False
        receipts: list[Receipt] = []
        for record, offset in records:
            for item in record.items:
                if item.pending is not None:
                    is_covered |= self.view.settle(item.pending, (record.partition, offset))
                if item.receipt is not None:
                    receipts.append(item.receipt)
            self._unsaid.acked(record.items)
        if is_covered:
            self.view.sweep()
        if not self._is_talking and not self._outbox.publisher.queued_records:
            self._talk()
        for receipt in receipts:
            self._receipts.acked(receipt)

    def _talk(self) -> None:
        self._is_talking = self._has_started = True
        self._since_ms = self._clock.now_ms()
        self.hearings.begin(self.observed_ms)
        self._unsaid.was_said()
        logger.info("talking to Kafka server_id=%s epoch=%d", *self._identity)
        # What came while the session was being opened is said right behind it.
        self._outbox.publish(self._unsaid.say())
        self._unsaid.was_said()
        self.talking.set()

    def failed(self, reason: str, lost: Sequence[OutRecord]) -> None:
        """A session ended; called by the publisher."""
        if self._is_talking or not self._has_started:
            logger.warning("Kafka does not take records, queries go on from memory reason=%s", safe(reason))
        was_talking, self._is_talking = self._is_talking, False
        self._failure = reason
        if was_talking:
            self._lost_sessions += 1
            self._since_ms = self._clock.now_ms()
        self.talking.clear()
        if not was_talking:
            return  # what the session said at its beginning is unsaid still
        remarks: dict[Receipt, str] = {}
        for record in lost:
            for item in record.items:
                if routing_key(item.event) is None:
                    self._unsaid.keep(record.partition, item)
                else:
                    self._remember(item)
                if item.receipt is not None:
                    remarks[item.receipt] = UNKNOWN
        for items in self._outbox.take().values():
            for item in items:
                self._remember(item)
                if item.receipt is not None:
                    remarks.setdefault(item.receipt, NOT_TAKEN)
        for receipt, remark in remarks.items():
            self._receipts.fail(receipt, remark)

    def begin_stop(self) -> None:
        """From now on closes prove nothing."""
        self._is_stopping = True

    async def stop(self, timeout_s: float) -> None:
        """Say good-bye to the log, in ``timeout_s`` or twice that where a session is just being opened."""
        self.begin_stop()
        publisher = self._outbox.publisher if self._outbox.is_attached else None
        if publisher is not None and publisher.queued_records and not self._is_talking:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.talking.wait(), timeout_s)
        if publisher is not None and self._is_talking:
            self._outbox.flush()
            self._outbox.broadcast(ServerStopped(self._origin()))
            if not await publisher.close(timeout_s):
                logger.warning("stopped before all records were in the log")
            self._is_talking = False
        self._receipts.fail_all()
        unsaid = (self._unsaid.brokers, self._unsaid.changes)
        if any(unsaid):
            logger.warning("stopped while last facts are not in the log brokers=%d changes=%d", *unsaid)

    def _origin(self, connection_id: int = 0) -> Origin:
        return Origin(self._identity.server_id, self._identity.server_epoch, connection_id)
