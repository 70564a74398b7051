"""What the log has beyond the tables, taken in once at a start.

An operator's change is acknowledged once it is in the log. A server that starts while the job is behind, dead or still
warming up opens tables that do not have it yet; so it reads the log from where its tables end, and applies what it
finds to its view as if it had accepted it itself. From there it drops out by itself as the job's commits cover it.

The fold alone ends brokers that did not say so themselves: who expired, whose connection was closed, whom the guard
keeps, which server is silent, a starting server learns from its commits.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import EventDecodeError, KafkaUnreachable, RecordsRemoved
from namesrv_stream.kafka import LogReader
from namesrv_stream.logs import safe
from namesrv_stream.route.event_json import decode_record
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
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.partitioner import partition_of, routing_key
from namesrv_stream.route.server_view.route_view import RouteView
from namesrv_stream.route.server_view.view_layers import group_after
from namesrv_stream.settings import Settings

logger = logging.getLogger(__name__)

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
    begin_ms, records = clock.monotonic_ms(), 0
    tail = LogTail(view, settings.kafka.partitions, settings.server.log_tail_bytes)
    try:
        with LogReader(settings, timeout_ms=settings.server.log_tail_timeout_ms) as reader:
            ranges = _behind(reader.extents(range(settings.kafka.partitions)), view.next_offsets)
            until_ms = begin_ms + settings.server.log_tail_timeout_ms
            records = _read(reader, ranges, tail, lambda: clock.monotonic_ms() >= until_ms) if ranges else 0
    except (KafkaUnreachable, RecordsRemoved) as error:
        logger.warning("log tail: Kafka does not tell it: %s", safe(str(error)))
    if records:
        took_ms = clock.monotonic_ms() - begin_ms
        logger.info("log tail: read records=%d events=%d ms=%d", records, tail.events, took_ms)


def _behind(extents: Mapping[int, tuple[int, int]], next_offsets: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """What there is to read: partition to begin and end.

    Args:
        extents: Of Kafka's log.
        next_offsets: Kafka partition to the first offset that the tables do not cover.
    """
    found: dict[int, tuple[int, int]] = {}
    for partition, (first, end) in extents.items():
        begin = next_offsets.get(partition, 0)
        if begin < first < end:
            text = "log tail: not read, the log begins too late partition=%d tables_end=%d log_begins=%d"
            logger.warning(text, partition, begin, first)
        elif begin < end:
            found[partition] = (begin, end)
    return found


def _read(reader: LogReader, ranges: Mapping[int, tuple[int, int]], tail: LogTail, is_late: Callable[[], bool]) -> int:
    """Hand over what there is, as far as time and room allow; how many records that were."""
    count, read_to = 0, {partition: begin for partition, (begin, _) in ranges.items()}
    is_whole = False
    try:
        for batch in reader.batches_of(ranges):
            for record in batch:
                if is_late() or not tail.take(record):
                    return count
                count += 1
                read_to[record.partition] = record.offset + 1
        is_whole = True
    except TimeoutError:
        pass
    finally:
        for partition, (_, end) in ranges.items():
            if not is_whole and read_to[partition] < end:
                place = (partition, read_to[partition], end)
                logger.warning("log tail: not read to its end partition=%d read_to=%d log_ends=%d", *place)
    return count
