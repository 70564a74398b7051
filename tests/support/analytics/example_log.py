"""The example log of docs/analytics.md: three hours of two clusters, two name servers and two partitions.

It is the night of 20 November 2026, UTC. All brokers send heartbeats to ``ns1`` every 30 s, and broker-a and broker-c
also to ``ns2``.
"""

from datetime import UTC, datetime
from typing import Final

from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    KvDeleted,
    KvPut,
    Origin,
    Proof,
    ServerStarted,
    SettingsChanged,
    Tick,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
    partition_of,
    routing_key,
)
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import DataVersion, QueueData, Registration
from tests.support.builders import Log, a_registration, heartbeats_with, over

PARTITIONS: Final = 2
NS1: Final = Origin("ns1", 1)
NS2: Final = Origin("ns2", 1)
_TICK_MS: Final = 10_000
_FOUR, _EIGHT = QueueData(4, 4, 6), QueueData(8, 8, 6)

A = a_registration(cluster="shop", topics={"TopicTest": _EIGHT, "Orders": _FOUR})
A_GROWN = a_registration(
    cluster="shop",
    topics={"TopicTest": _EIGHT, "Orders": _EIGHT},
    registration_hash="grown",
    data_version=DataVersion(2, 2_000, 0),
)
A_SLAVE = a_registration("10.0.0.11:10911", 1, cluster="shop", topics={})
B = a_registration(
    "10.0.0.2:10911", broker_name="broker-b", cluster="shop", topics={"TopicTest": _EIGHT, "Orders": _FOUR}
)
C = a_registration(
    "10.0.0.3:10911", broker_name="broker-c", cluster="shop", topics={"TopicTest": _EIGHT, "Stock": _FOUR}
)
D = a_registration(
    "10.0.0.4:10911", broker_name="broker-d", cluster="shop", topics={"TopicTest": _FOUR, "Stock": _FOUR}
)
LOGGER = a_registration(
    *("10.9.0.1:10911", 0),
    broker_name="logger",
    cluster="logs",
    topics={"Audit": _FOUR, "Metrics": _FOUR},
    timeout_ms=60_000,
)


def instant_ms(clock: str) -> int:
    """Convert ``HH:MM:SS`` of that night to epoch milliseconds."""
    return int(datetime.fromisoformat(f"2026-11-20T{clock}+00:00").astimezone(UTC).timestamp() * 1000)


class ExampleLogWriter:
    """Writes and folds the logs.

    Attributes:
        logs: One log per partition.
        alive: The brokers that send heartbeats, by address.
        lost: (server, broker name) pairs whose heartbeats are lost at present.
    """

    def __init__(self) -> None:
        self._now_ms = instant_ms("02:00:00")
        settings = FoldSettings(max_gap_ms=_TICK_MS)
        self.logs = [
            Log(settings, partition=p, partitions=PARTITIONS, begin_ms=self._now_ms) for p in range(PARTITIONS)
        ]
        self.alive: dict[str, Registration] = {}
        self.lost: set[tuple[str, str]] = set()

    def append(self, *events: Event, at: str | None = None) -> None:
        """Append events to their partitions, at a time of that night."""
        if at is not None:
            self._pass_time_until(instant_ms(at))
        for event in events:
            key = routing_key(event)
            for log in self.logs if key is None else [self.logs[partition_of(key, PARTITIONS)]]:
                log.now_ms = self._now_ms
                log.append(encode_event(event))

    def register(self, *registrations: Registration, at: str, connection: int = 1) -> None:
        """Register brokers with their servers."""
        self._pass_time_until(instant_ms(at))
        for registration in registrations:
            self.alive[registration.broker_addr] = registration
            for server in _servers_of(registration):
                self.append(BrokerRegistered(over(server, connection), registration))

    def stop_heartbeats(self, *registrations: Registration, at: str) -> None:
        """Stop the heartbeats of brokers to all servers."""
        self._pass_time_until(instant_ms(at))
        for registration in registrations:
            del self.alive[registration.broker_addr]

    def resume_heartbeats(self, *registrations: Registration, at: str) -> None:
        """Resume the heartbeats of brokers over their old connections."""
        self._pass_time_until(instant_ms(at))
        self.alive |= {r.broker_addr: r for r in registrations}

    def unregister(self, *registrations: Registration, at: str, connection: int = 1) -> None:
        """Unregister brokers (UNREGISTER_BROKER)."""
        self.stop_heartbeats(*registrations, at=at)
        for r in registrations:
            for server in _servers_of(r):
                self.append(BrokerUnregistered(over(server, connection), r.broker_name, r.live_key, r.broker_id))

    def disconnect(self, registration: Registration, at: str, connection: int) -> None:
        """Close the connections of a broker."""
        self.stop_heartbeats(registration, at=at)
        r = registration
        for server in _servers_of(r):
            self.append(BrokerDisconnected(over(server, connection), r.broker_name, r.live_key, "closed by peer"))

    def append_invalid(self, value: bytes, at: str) -> None:
        """Append a record that is no event to the second partition."""
        self._pass_time_until(instant_ms(at))
        self.logs[1].now_ms = self._now_ms
        self.logs[1].append(value)

    def lose_heartbeats(self, server: Origin, registration: Registration, begin: str, end: str) -> None:
        """Lose the heartbeats of a broker to one server for a while, although the connection stays open."""
        self._pass_time_until(instant_ms(begin))
        self.lost.add((server.server_id, registration.broker_name))
        self._pass_time_until(instant_ms(end))
        self.lost.clear()

    def finish(self, at: str) -> list[Log]:
        self._pass_time_until(instant_ms(at))
        return self.logs

    def _pass_time_until(self, end_ms: int) -> None:
        while self._now_ms // _TICK_MS * _TICK_MS + _TICK_MS <= end_ms:
            self._now_ms = self._now_ms // _TICK_MS * _TICK_MS + _TICK_MS
            for server in (NS1, NS2):
                if self._now_ms % 30_000 == 0:
                    self._send_heartbeats(server)
                self.append(Tick(server))
        self._now_ms = end_ms

    def _send_heartbeats(self, server: Origin) -> None:
        for partition, log in enumerate(self.logs):
            heartbeats = [
                BrokerHeartbeat(over(server, 1), r.broker_name, r.live_key, Proof.HEARTBEAT)
                for r in self.alive.values()
                if server in _servers_of(r)
                and (server.server_id, r.broker_name) not in self.lost
                and partition_of(r.broker_name, PARTITIONS) == partition
            ]
            if heartbeats:
                log.now_ms = self._now_ms
                log.append(heartbeats_with(heartbeats))


def _servers_of(registration: Registration) -> tuple[Origin, ...]:
    return (NS1, NS2) if registration in (A, A_GROWN, C) else (NS1,)


def example_log() -> list[Log]:
    """Return the logs; every event that the questions of the document need happens at least once."""
    writer = ExampleLogWriter()
    writer.append(ServerStarted(NS1), ServerStarted(NS2))
    writer.register(A, A_SLAVE, B, C, D, LOGGER, at="02:00:02")
    writer.append(TopicRegistered(NS1, "broker-a", "Payments", _FOUR), at="02:20:00")
    writer.register(A_GROWN, at="02:40:00")
    writer.append(WritePermChanged(NS1, "broker-a", False), at="02:50:05")
    writer.append(WritePermChanged(NS1, "broker-a", True), at="02:55:05")
    writer.stop_heartbeats(B, at="03:08:05")  # expires at 03:10
    writer.register(B, at="03:20:15", connection=2)
    writer.append(SettingsChanged(NS1, "ada", (("default_timeout_ms", 100_000),)), at="03:30:00")
    writer.append(KvPut(NS1, "ORDER_TOPIC_CONFIG", "Orders", "broker-a:4"), at="03:31:00")
    writer.append(KvPut(NS1, "ORDER_TOPIC_CONFIG", "Orders", "broker-a:8"), at="03:36:00")
    for restart, minute in enumerate((40, 48, 56), start=1):
        writer.disconnect(LOGGER, at=f"03:{minute}:05", connection=restart)
        writer.register(LOGGER, at=f"03:{minute + 2}:05", connection=restart + 1)
    writer.lose_heartbeats(NS2, C, "04:05:05", "04:06:15")
    writer.lose_heartbeats(NS2, C, "04:08:05", "04:09:15")
    writer.append_invalid(b"{no JSON", at="04:12:00")
    writer.stop_heartbeats(B, C, D, at="04:15:05")  # all brokers of a partition: the guard holds them
    writer.resume_heartbeats(B, C, D, at="04:18:25")
    for number, registration in enumerate((A_GROWN, A_SLAVE, B, C, D)):
        writer.unregister(registration, at=f"04:30:{10 + 2 * number}", connection=2 if registration is B else 1)
    for number, registration in enumerate((A_GROWN, A_SLAVE, B, C, D)):
        writer.register(registration, at=f"04:34:{10 + 2 * number}", connection=3)
    writer.append(TopicDeleted(NS1, "Orders", None), at="04:40:00")
    writer.append(KvDeleted(NS1, "ORDER_TOPIC_CONFIG", "Orders"), at="04:41:00")
    writer.unregister(C, at="04:50:05", connection=3)
    return writer.finish(at="05:00:05")
