"""A whole server without sockets and Kafka: real connections, gateway and view; clients and Kafka are in memory."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import orjson

from namesrv_stream.kafka import ENVELOPE_BYTES
from namesrv_stream.processor.name_server import Access, Options
from namesrv_stream.remoting.command import RemotingCommand, RequestCode
from namesrv_stream.remoting.frame import FrameBuffer, decode_frame, encode_frame
from namesrv_stream.route.address_views import VIEWS_NAMESPACE
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.event_json import MAX_ITEMS
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.core import Ports, build_core
from namesrv_stream.server.gateway.partition_log import PartitionLog
from namesrv_stream.server.gateway.publisher import KafkaPublisher
from namesrv_stream.server.gateway.records import Acked, OutRecord
from namesrv_stream.server.native.lane import Lane
from namesrv_stream.server.net.connection import RemotingConnection
from namesrv_stream.server.net.connections import CONNECTION_EVENTS
from namesrv_stream.server.net.decoder import RegistrationDecoder
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.turns import Turns
from namesrv_stream.settings import RemotingSettings, Settings, TlsSettings
from tests.support.builders import BEGIN_MS, Log
from tests.support.clocks import LeapingClock

MAX_GAP_MS = 2_000
#: A piece of work of this duration ends with its work, however slow the machine is.
AT_ONCE_NS = 10**12
TICK_MS = 500


class MemoryPublisher:
    """Accepts the records of one partition; they reach the log when Kafka has opened the session and acknowledges.

    Attributes:
        unacked: Records that were published in this session and are not in the log.
    """

    def __init__(self, kafka: "MemoryKafka", log: PartitionLog) -> None:
        self.log = log
        self.unacked: list[OutRecord] = []
        self.sessions = 0
        self.is_begun = False
        self._kafka = kafka

    # ---- interface for the gateway ----

    @property
    def can_begin(self) -> bool:
        return not self.is_begun and not self._kafka.is_ending

    @property
    def queued_records(self) -> int:
        return len(self.unacked)

    @property
    def queued_bytes(self) -> int:
        return sum(len(r.value) for r in self.unacked)

    @property
    def oldest_ms(self) -> int | None:
        return self.unacked[0].at_ms if self.unacked else None

    def begin(self) -> None:
        assert self.can_begin
        self.sessions += 1
        self.is_begun = True

    def publish(self, record: OutRecord) -> None:
        if self.is_begun:
            self.unacked.append(record)

    def abort(self, reason: str) -> None:
        self.fail(reason)

    async def close(self, timeout_s: float) -> bool:
        if self._kafka.acks_at_close:
            self.ack()
        self.is_begun = False
        return not self.unacked

    # ---- Kafka's behaviour ----

    def ack(self, most: int | None = None) -> None:
        """Acknowledge all published records, or the first ``most``: they are in the log."""
        count = len(self.unacked) if most is None else most
        taken, self.unacked = self.unacked[:count], self.unacked[count:]
        self.log.acked([self._kafka.append(record) for record in taken])

    def fail(self, reason: str) -> None:
        if self.is_begun:
            lost, self.unacked = self.unacked, []
            self.is_begun = False
            self.log.failed(reason, lost)


class MemoryKafka:
    """A log in memory, with a publisher for each partition.

    Attributes:
        log: All records of the log, by arrival.
        is_ending: Whether a former session could still reach the log.
        acks_at_close: Whether a publisher that is closed gets its last acknowledgements.
    """

    def __init__(self) -> None:
        self.log: list[OutRecord] = []
        self.is_ending = False
        self.acks_at_close = True
        self._publishers: list[MemoryPublisher] = []
        self._next_offsets: dict[int, int] = {}

    def publisher_of(self, log: PartitionLog) -> KafkaPublisher:
        publisher = MemoryPublisher(self, log)
        self._publishers.append(publisher)
        return cast(KafkaPublisher, publisher)

    def append(self, record: OutRecord) -> Acked:
        offset = self._next_offsets.get(record.partition, 0)
        self._next_offsets[record.partition] = offset + 1
        self.log.append(record)
        return Acked(record, offset)

    # ---- Kafka's behaviour, for one partition or for all ----

    def open(self, partition: int | None = None) -> None:
        for publisher in self._of(partition):
            publisher.log.opened()

    def ack(self, partition: int | None = None, most: int | None = None) -> None:
        """Acknowledge all published records, or the first ``most`` of each partition: they are in the log."""
        for publisher in self._of(partition):
            publisher.ack(most)

    def fail(self, reason: str = "gone", partition: int | None = None) -> None:
        for publisher in self._of(partition):
            publisher.fail(reason)

    # ---- queries of tests ----

    @property
    def next_offsets(self) -> dict[int, int]:
        return dict(self._next_offsets)

    @property
    def unacked(self) -> list[OutRecord]:
        return [record for publisher in self._publishers for record in publisher.unacked]

    @property
    def queued_records(self) -> int:
        return len(self.unacked)

    @property
    def sessions(self) -> int:
        """Number of sessions that were begun, over all partitions."""
        return sum(publisher.sessions for publisher in self._publishers)

    @property
    def is_begun(self) -> bool:
        return any(publisher.is_begun for publisher in self._publishers)

    def kinds(self, records: Sequence[OutRecord] | None = None) -> list[str]:
        return [orjson.loads(r.value)["kind"] for r in (self.log if records is None else records)]

    def _of(self, partition: int | None) -> list[MemoryPublisher]:
        return self._publishers if partition is None else [self._publishers[partition]]


class MemoryTransport(asyncio.Transport):
    """A peer that reads at once, or nothing until ``read_all`` if ``is_stuck``."""

    def __init__(self, peer: tuple[str, int] = ("10.9.9.9", 4711)) -> None:
        super().__init__({"peername": peer})
        self.protocol: RemotingConnection | None = None
        self.received = b""
        self.buffered = b""
        self.high = 64 * 1024
        self.is_stuck = False
        self.is_reading_paused = False
        self.is_aborted = False
        self._is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_stuck:
            self.buffered += bytes(data)
            if len(self.buffered) > self.high and self.protocol is not None:
                self.protocol.pause_writing()
        else:
            self.received += bytes(data)

    def read_all(self) -> None:
        """Let the peer read everything; it may become stuck again afterwards."""
        self.received += self.buffered
        was_paused = len(self.buffered) > self.high
        self.buffered = b""
        if was_paused and self.protocol is not None:
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.buffered)

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def deliver(self, data: bytes) -> None:
        """Deliver bytes of the peer."""
        if self.protocol is not None:
            self.protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if not self.buffered:
                self._lose()

    def abort(self) -> None:
        self._is_closed = self.is_aborted = True
        self._lose()

    def _lose(self) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.connection_lost(None)

    def answers(self, since: int = 0) -> list[RemotingCommand]:
        """Return all received answers, or those after ``since`` bytes."""
        return [decode_frame(frame) for frame in FrameBuffer(1 << 30).feed(self.received[since:])]


class Rig:
    """One server, wired as in production; connections are opened by ``connect``."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        queue_records: int = 10_000,
        record_bytes: int = 1 << 20,
        gather_items: int = MAX_ITEMS,
        write_buffer_bytes: int = 1 << 20,
        max_connections: int = 100,
        limits: RemotingSettings | None = None,
        tls: TlsSettings | None = None,
        options: Options | None = None,
        access: Access | None = None,
        lane: Lane | None = None,
        decoder: RegistrationDecoder | None = None,
        turns: Turns | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.clock = LeapingClock()
        self.view = RouteView(partitions=partitions)
        self.identity = identity or Identity("s1", 7)
        self.limits = limits or RemotingSettings(max_connections=max_connections, write_buffer_bytes=write_buffer_bytes)
        settings = Settings(remoting=self.limits, tls=tls or TlsSettings())
        # Without validation, because tests use lower limits than operators may set.
        changes = {
            "kafka": {"partitions": partitions, "max_message_bytes": record_bytes + ENVELOPE_BYTES},
            "server": {"publish_queue_records": queue_records, "publish_queue_bytes": 64 << 20},
            "liveness": {"max_gap_ms": MAX_GAP_MS},
        }
        sections = {name: getattr(settings, name).model_copy(update=values) for name, values in changes.items()}
        ports = Ports(self.clock, self.identity, lane, 0, decoder, turns or Turns(AT_ONCE_NS), gather_items)
        self.core = build_core(settings.model_copy(update=sections), self.view, ports)
        self.server = self.core.name_server
        if options is not None:
            self.server.reconfigure(asdict(options))
        if access is not None:
            self.server.access = access
        self.served, self.gateway, self.connections = self.core.view, self.core.gateway, self.core.connections
        self.tls, self.decoder = self.core.services.tls, self.core.services.decoder
        self.request_metrics, self.peer_log = self.core.services.request_metrics, self.core.peer_log
        self.publisher = MemoryKafka()
        counts_all = FoldSettings(guard_known_ms=0)
        self._logs = [Log(counts_all, partition=p, partitions=partitions) for p in range(partitions)]
        self._folded = 0

    def talk(self) -> None:
        """Let the server reach Kafka for the first time."""
        self.gateway.attach(self.publisher.publisher_of)
        self.publisher.open()
        self.publisher.ack()

    def connect(self, host: str = "10.9.9.9", listener: str = "") -> MemoryTransport:
        transport = MemoryTransport((host, 4711))
        connection = self.new_connection(listener)
        transport.protocol = connection
        connection.connection_made(transport)
        return transport

    def new_connection(self, listener: str = "") -> RemotingConnection:
        return self.core.new_connection(listener)

    def connection_events(self, event: str) -> int:
        """Return how often an event happened to connections."""
        return self.core.services.counters.value(CONNECTION_EVENTS, event)

    def ask(self, transport: MemoryTransport, request: RemotingCommand) -> RemotingCommand:
        """Send one request and return its answer."""
        assert transport.protocol is not None
        before = len(transport.received)
        transport.deliver(encode_frame(request))
        return transport.answers(before)[0]

    def commit(self, most: int | None = None) -> list[RouteChange]:
        """Acknowledge all published records, fold and commit the next ones as the job does; returns the rows.

        ``most`` limits the number of records; None means all of them. Kafka's stamps are the moments at which the
        records were published.
        """
        self.publisher.ack()
        rows = []
        for record in self.publisher.log[self._folded :][:most]:
            self._folded += 1
            log = self._logs[record.partition]
            rows += log.append(record.value, max(0, BEGIN_MS + record.at_ms - log.now_ms))
        self.served.committed(rows, {log.state.partition: len(log.records) for log in self._logs})
        return rows

    async def put_view(self, name: str, **document: Any) -> RemotingCommand:
        """Set an address view; returns the answer."""
        fields = {"namespace": VIEWS_NAMESPACE, "key": name, "value": orjson.dumps(document).decode()}
        operator = self.connect("127.0.0.1")
        operator.deliver(encode_frame(RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields)))
        await turn()
        self.publisher.ack()
        return operator.answers()[0]

    def beat(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(TICK_MS)
            self.gateway.beat()


async def turn() -> None:
    """Run one iteration of the event loop, which flushes due data."""
    await asyncio.sleep(0)
