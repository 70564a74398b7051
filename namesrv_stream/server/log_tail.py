"""What the log has beyond the tables, taken in once at a start.

An operator's change is acknowledged once it is in the log. A server that starts while the job is behind, dead or still
warming up opens tables that do not have it yet; so it reads the log from where its tables end, and applies what it
finds to its view as if it had accepted it itself. From there it drops out by itself as the job's commits cover it.

The fold alone ends brokers that did not say so themselves: who expired, whose connection was closed, whom the guard
keeps, which server is silent, a starting server learns from its commits.
"""

import logging
from collections.abc import Mapping
from typing import Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from namesrv_stream.clock import Clock
from namesrv_stream.errors import EventDecodeError
from namesrv_stream.kafka import consumer_config
from namesrv_stream.logs import safe
from namesrv_stream.route.event_json import decode_record, routing_key
from namesrv_stream.route.events import (
    JOB,
    AcceptedEvent,
    BrokerDisconnected,
    BrokerHeartbeat,
    Event,
    GuardReleased,
    Proof,
    ServerEvent,
    SettingsChanged,
)
from namesrv_stream.route.fold import Record
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.route.view import RouteView
from namesrv_stream.route.view_rules import group_after
from namesrv_stream.settings import Settings

logger = logging.getLogger(__name__)

_POLL_MS: Final = 200
_BATCH_RECORDS: Final = 2_000
#: What a pending event takes in memory beside the bytes of its record, about.
_EVENT_BYTES: Final = 512

#: What the fold alone decides about.
_FoldOnly = ServerEvent | GuardReleased | BrokerDisconnected


class LogTail:
    """Applies the records behind the tables to a view; each partition's in their order.

    Attributes:
        events: How many are pending in the view by now; heartbeats that change nothing are not among them.
    """

    def __init__(self, view: RouteView, partitions: int, max_bytes: int) -> None:
        """Take in nothing yet."""
        self.events = 0
        self._view = view
        self._partitions = partitions
        self._free_bytes = max_bytes
        self._closed: set[tuple[str, LeaseKey]] = set()  # which the view still shows, until the fold's commit

    def take(self, record: Record) -> bool:
        """Apply a record; False if it has no room, and then none behind it may be taken in."""
        try:
            events = decode_record(record.value)
        except EventDecodeError:
            return True  # the job makes it a dead letter
        self._closed |= {(e.origin.server_id, e.lease_key) for e in events if isinstance(e, BrokerDisconnected)}
        wanted = [event for event in events if not isinstance(event, EventDecodeError | _FoldOnly)]
        for event in wanted:
            try:
                if _is_refused(event, record.partition, self._partitions) or self._changes_nothing(event):
                    continue
                size = len(record.value) // len(events) + _EVENT_BYTES
                if size > self._free_bytes:
                    return False
                self._view.accept_at(event, record.partition, record.offset)
            except Exception as error:  # the fold makes it a dead letter, and a server must start
                at = (record.partition, record.offset)
                logger.warning("log tail: an event is left out partition=%d offset=%d: %s", *at, safe(repr(error)))
            else:
                self._free_bytes -= size
                self.events += 1
        return True

    def _changes_nothing(self, event: AcceptedEvent) -> bool:
        """Whether it is a heartbeat of a broker that the view has so already: most of the log is that."""
        if not isinstance(event, BrokerHeartbeat):
            return False
        if event.proof is Proof.HEARTBEAT:
            return True
        if (event.origin.server_id, event.lease_key) in self._closed:
            return False  # it brings the broker back once the close is committed
        group = self._view.table.group(event.broker_name)
        settings = self._view.table.settings_of(partition_of(event.broker_name, self._partitions))
        return group_after(group, [event], settings) is group


def _is_refused(event: Event, partition: int, partitions: int) -> bool:
    """Whether the fold does not take the event here."""
    key = routing_key(event)
    if isinstance(event, SettingsChanged):
        FoldSettings().with_values(dict(event.values))  # raises where the fold would
        return False
    return event.origin.server_id == JOB or (key is not None and partition_of(key, partitions) != partition)


def read_log_tail(settings: Settings, view: RouteView, clock: Clock) -> None:
    """Apply to a view what the log has beyond its tables; blocks, for ``server.log_tail_timeout_ms`` at most.

    What is not read within the limits, or because Kafka fails, is told in the log; it is seen once the job has folded
    it.
    """
    begin_ms = clock.monotonic_ms()
    try:
        with _Reader(settings, clock, begin_ms + settings.server.log_tail_timeout_ms) as reader:
            tail = LogTail(view, settings.kafka.partitions, settings.server.log_tail_bytes)
            reader.find(view.next_offsets)
            reader.read(tail)
    except (KafkaError, OSError) as error:
        logger.warning("log tail: Kafka does not tell it: %s", safe(f"{type(error).__name__}: {error}"))
        return
    if reader.records:
        took_ms = clock.monotonic_ms() - begin_ms
        logger.info("log tail: read records=%d events=%d ms=%d", reader.records, tail.events, took_ms)


class _Reader:
    """Reads all partitions at once, so that none waits for another, until a moment of the monotonic clock.

    Attributes:
        records: How many were read.
    """

    def __init__(self, settings: Settings, clock: Clock, until_ms: int) -> None:
        """Connect.

        Raises:
            KafkaError: No broker answers.
        """
        self.records = 0
        self._clock = clock
        self._until_ms = until_ms
        self._partitions = [
            TopicPartition(settings.kafka.broker_events_topic, p) for p in range(settings.kafka.partitions)
        ]
        self._ends: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        limits = {"max_poll_records": _BATCH_RECORDS, "bootstrap_timeout_ms": self._left_ms}
        self._consumer = KafkaConsumer(**consumer_config(settings) | limits)

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close(timeout_ms=self._left_ms)

    @property
    def _left_ms(self) -> int:
        return max(1, self._until_ms - self._clock.monotonic_ms())

    def find(self, next_offsets: Mapping[int, int]) -> None:
        """Find out what there is to read.

        Args:
            next_offsets: Kafka partition to the first offset that the tables do not cover.

        Raises:
            KafkaError: Kafka does not say.
        """
        ends = self._consumer.end_offsets(self._partitions, timeout_ms=self._left_ms)
        behind = [tp for tp in self._partitions if next_offsets.get(tp.partition, 0) < ends[tp]]
        if not behind:
            return
        firsts = self._consumer.beginning_offsets(behind, timeout_ms=self._left_ms)
        for tp in behind:
            begin = next_offsets.get(tp.partition, 0)
            if firsts[tp] > begin:
                place = (tp.partition, begin, firsts[tp])
                logger.warning(
                    "log tail: not read, the log begins too late partition=%d tables_end=%d log_begins=%d", *place
                )
            else:
                self._next[tp], self._ends[tp] = begin, ends[tp]

    def read(self, tail: LogTail) -> None:
        """Hand over what was found, as far as time and room allow.

        Raises:
            KafkaError: Kafka went away.
        """
        if not self._ends:
            return
        self._consumer.assign(list(self._ends))
        for tp, begin in self._next.items():
            self._consumer.seek(tp, begin)
        try:
            while self._is_more and self._clock.monotonic_ms() < self._until_ms:
                if not self._hand_over(tail):
                    break
        finally:
            for tp, end in self._ends.items():
                if self._next[tp] < end:
                    place = (tp.partition, self._next[tp], end)
                    logger.warning("log tail: not read to its end partition=%d read_to=%d log_ends=%d", *place)

    @property
    def _is_more(self) -> bool:
        return any(self._next[tp] < end for tp, end in self._ends.items())

    def _hand_over(self, tail: LogTail) -> bool:
        """One batch; False once the limits are reached."""
        for tp, fetched in self._consumer.poll(timeout_ms=min(_POLL_MS, self._left_ms)).items():
            for r in fetched:
                if r.offset >= self._ends[tp]:
                    break
                if self._clock.monotonic_ms() >= self._until_ms:
                    return False
                if not tail.take(Record(tp.partition, r.offset, r.timestamp, r.value)):
                    return False
                self.records += 1
                self._next[tp] = r.offset + 1
        for tp, end in self._ends.items():
            # Behind the last record there may be offsets that hold none.
            reached = self._consumer.position(tp, timeout_ms=self._left_ms)
            self._next[tp] = self._next[tp] if reached is None else min(reached, end)
        return True
