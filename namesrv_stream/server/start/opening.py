"""Opens what a starting server needs before it answers: the tables, then the log (topics, first settings, tail).

The tail is the part of the log that the tables do not cover yet. An operator's change is acknowledged when it is in the
log. If the job is behind, down or still warming up, the tables of a starting server lack the change. So the server
reads the log from the end of its tables, and applies the events to its view as if it had accepted them itself. The view
forgets them as soon as commits of the job cover them.

Only the fold decides about expired brokers, closed connections, silent servers and the guard. A starting server learns
these from the job's commits.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import EventDecodeError, KafkaUnreachable, NamesrvStreamError, StoreUnreachable
from namesrv_stream.kafka import LogReader, ensure_topics
from namesrv_stream.kafka.event_topics import log_first_settings
from namesrv_stream.kafka.log_reader import check_log
from namesrv_stream.logs import progress, safe
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
    partition_of,
    routing_key,
)
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.steps import result
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.route.view.view_layers import group_after
from namesrv_stream.server.start.identity import refuse_rival
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import LogReplaced, LogTruncated, RecordsRemoved, TableDamaged
from namesrv_stream.tables.snapshot import Snapshot, load_snapshot
from namesrv_stream.tables.storage import Storage

#: Approximate memory of a pending event, in addition to the bytes of its record.
_EVENT_BYTES: Final = 512

#: Events whose effect only the fold decides.
_FoldOnly = ServerEvent | GuardReleased | BrokerDisconnected


class LogTail:
    """Applies the records that the tables do not cover to a view, in log order within each partition.

    Attributes:
        events: Number of events that were added to the view; heartbeats that change nothing are not counted.
        epochs: Server id → the latest epoch of that server's records.
    """

    def __init__(self, view: RouteView, partitions: int, max_bytes: int) -> None:
        """Prepare to apply records whose pending events take at most ``max_bytes``."""
        self.events = 0
        self.epochs: dict[str, int] = {}
        self._view = view
        self._partitions = partitions
        self._free_bytes = max_bytes
        self._closed: set[tuple[str, LeaseKey]] = set()  # disconnected, but still in the view until the job's commit

    def take(self, record: Record) -> bool:
        """Apply a record. Return False if the memory limit is reached; then the caller must not apply later records."""
        try:
            events = decode_record(record.value)
        except EventDecodeError:
            return True  # the job writes it to the dead-letter topic
        for server_id, epoch, _ in (e.origin for e in events if not isinstance(e, EventDecodeError)):
            self.epochs[server_id] = max(epoch, self.epochs.get(server_id, 0))
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
            except Exception as error:  # the job writes it to the dead-letter topic, and the server must start
                at = (record.partition, record.offset)
                logger.warning("log tail: an event is left out partition=%d offset=%d: %s", *at, safe(repr(error)))
            else:
                self._free_bytes -= size
                self.events += 1
        return True

    def _changes_nothing(self, event: AcceptedEvent) -> bool:
        """Return whether an event is a heartbeat that changes nothing in the view, as most events of a log are."""
        if not isinstance(event, BrokerHeartbeat):
            return False
        if event.proof is Proof.HEARTBEAT:
            return True
        if (event.origin.server_id, event.lease_key) in self._closed:
            return False  # it restores the broker after the commit of the disconnect
        group = self._view.table.group(event.broker_name)
        settings = self._view.table.settings_of(partition_of(event.broker_name, self._partitions))
        return result(group_after(group, [event], settings)) is group


def _is_refused(event: Event, partition: int, partitions: int) -> bool:
    """Return whether the fold refuses the event in this partition."""
    key = routing_key(event)
    if isinstance(event, SettingsChanged):
        FoldSettings().with_values(dict(event.values))  # raises if the fold would
        return False
    return event.origin.server_id == JOB or (key is not None and partition_of(key, partitions) != partition)


def read_log_tail(settings: Settings, view: RouteView, clock: Clock) -> Mapping[str, int]:
    """Apply the log's tail to a view; blocks for at most ``server.log_tail_timeout_ms``.

    If limits are exceeded or Kafka fails, a warning is logged. The view then lacks the rest of the tail until the job
    has folded it. Return the latest epoch of each server that wrote to the tail, as far as it was read.
    """
    begin_ms, records = clock.monotonic_ms(), 0
    tail = LogTail(view, settings.kafka.partitions, settings.server.log_tail_bytes)
    try:
        with LogReader(settings, timeout_ms=settings.server.log_tail_timeout_ms) as reader:
            ranges = _behind(reader.extents(range(settings.kafka.partitions)), view.next_offsets)
            until_ms = begin_ms + settings.server.log_tail_timeout_ms
            records = _read(reader, ranges, tail, lambda: clock.monotonic_ms() >= until_ms) if ranges else 0
    except (KafkaUnreachable, RecordsRemoved) as error:
        logger.warning("log tail: cannot be read from Kafka reason=%s", safe(str(error)))
    if records:
        took_ms = clock.monotonic_ms() - begin_ms
        logger.info("log tail: read records=%d events=%d ms=%d", records, tail.events, took_ms)
    return tail.epochs


def _behind(extents: Mapping[int, tuple[int, int]], next_offsets: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return partition → (first offset, end) to read; ``extents`` contains the same for everything that Kafka has."""
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
    """Apply the records as far as time and memory allow. Return their number."""
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


logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


async def first_snapshot(tables: Storage, stop: asyncio.Event) -> Snapshot | None:
    """Load the tables. If their object store is unreachable, wait for it, because no route is known without it.

    Returns:
        The snapshot; an empty one that names the damage if no version of a table can be read (the server then accepts
        registrations until the job has repaired the tables); None if the server was stopped meanwhile.

    Raises:
        TableSchemaMismatch: A table has a different schema from what this version expects.
    """
    reported = ""
    while not stop.is_set():
        try:
            snapshot = await asyncio.to_thread(load_snapshot, tables)
        except TableDamaged as error:
            snapshot = Snapshot(RouteTable(), {}, -1, damage=str(error))
        except StoreUnreachable as error:
            if str(error) != reported:
                reported = str(error)
                logger.error("waiting for the tables: %s", reported)
                progress(f"waiting for the tables: {error.place} cannot be reached")
            await asyncio.sleep(_RETRY_S)
            continue
        if snapshot.damage:
            logger.error("tables damaged version=%d reason=%s", snapshot.version, snapshot.damage)
            progress(f"tables damaged: {snapshot.damage}")
        return snapshot
    return None


async def open_log(
    settings: Settings, server_id: str, view: RouteView, folded: FoldedLog, clock: Clock
) -> tuple[bool, int]:
    """Apply the log's tail to the view of the tables, which were ``folded`` from it.

    Returns:
        Whether Kafka answers, and the latest epoch of this server in tables and tail; 0 if they do not contain it.

    Raises:
        KafkaUnreachable: Kafka does not answer, and there are no earlier tables to serve.
        DuplicateServerId: Another server with the same id writes to the log.
    """
    if any(view.next_offsets.values()):
        # In parallel, because all of them mostly wait for Kafka.
        has_kafka, epochs, _ = await asyncio.gather(
            has_topics(settings, is_needed=not (view.table.groups or view.table.kv)),
            asyncio.to_thread(_read_tail, settings, view, folded, clock),
            asyncio.to_thread(refuse_rival, settings, server_id),
        )
    else:
        # Nothing has been folded yet. If the log is empty, it must begin with the settings.
        has_kafka = await has_topics(settings, is_needed=True)
        await asyncio.to_thread(log_first_settings, settings)
        epochs, _ = await asyncio.gather(
            asyncio.to_thread(read_log_tail, settings, view, clock),
            asyncio.to_thread(refuse_rival, settings, server_id),
        )
    in_tables = (epoch for (_, other), (epoch, _) in view.table.servers.items() if other == server_id)
    return has_kafka, max(epochs.get(server_id, 0), *in_tables, 0)


def _read_tail(settings: Settings, view: RouteView, folded: FoldedLog, clock: Clock) -> Mapping[str, int]:
    """Apply the log's tail to the view, unless Kafka has another log; ``LogGuard`` then refuses all sessions."""
    try:
        check_log(settings, folded)
    except (LogReplaced, LogTruncated) as error:
        logger.error("the tail of the log is not read: %s", error)
        return {}
    except NamesrvStreamError as error:
        logger.warning("the tail of the log is not read: %s", error)
        return {}
    return read_log_tail(settings, view, clock)


async def has_topics(settings: Settings, *, is_needed: bool = False) -> bool:
    """Create missing topics. Return whether Kafka answers and permits it.

    Raises:
        KafkaUnreachable: Kafka does not answer or permit it, and ``is_needed`` is set.
    """
    try:
        await asyncio.to_thread(ensure_topics, settings)
    except KafkaUnreachable as error:
        if is_needed:
            raise
        logger.warning("serving the existing tables, registrations stay in memory: %s", error)
        return False
    return True
