"""A random log of two partitions, from a seed: a small fleet, two name servers, and operators.

The tests assume that Kafka's own log survives a power cut, because it is replicated or on another disk. The log is
therefore not recorded; the seed alone determines it.
"""

import random
from collections.abc import Callable, Mapping
from typing import Final

from namesrv_stream.route.event_json import encode_event, encode_heartbeats
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
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.model import DataVersion, QueueData, Registration
from tests.support.builders import BEGIN_MS

PARTITIONS: Final = 2

#: partition → its records, by offset.
RecordsOf = Mapping[int, list[Record]]

_SERVERS: Final = (Origin("s1", 1), Origin("s2", 1))
_BROKERS: Final = tuple((f"broker-{n // 2}", f"10.0.0.{n}:10911", n % 2) for n in range(24))
_TOPICS: Final = tuple(f"topic-{n}" for n in range(8))
_TIMEOUT_MS: Final = 4_000
_SILENT_STEPS: Final = 3  # of two ticks each, so that some silent brokers expire before they return


class _Fleet:
    """Brokers whose events the log contains."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._registered: dict[str, Registration] = {}
        self._silent: set[str] = set()
        self._changes = 0
        self._acts: tuple[Callable[[], Event | None], ...] = (
            self._register,
            self._register,
            self._register,
            self._fall_silent,
            self._leave,
            self._permission,
            self._key_value,
            self._topic,
            self._settings,
        )

    def act(self) -> Event | None:
        """Return a random event, or None if nothing happens."""
        return self._draw.choice(self._acts)()

    def heartbeats(self) -> list[BrokerHeartbeat]:
        """Return the heartbeats of the brokers that are not silent."""
        return [
            BrokerHeartbeat(self._origin(r), r.broker_name, r.live_key, Proof.REGISTRATION, r.registration_hash)
            for addr, r in self._registered.items()
            if addr not in self._silent
        ]

    def _origin(self, registration: Registration) -> Origin:
        number = int(registration.broker_addr.split(":")[0].rpartition(".")[2])
        return _SERVERS[number % len(_SERVERS)]._replace(connection_id=number + 1)

    def _register(self) -> Event:
        name, addr, broker_id = self._draw.choice(_BROKERS)
        self._changes += 1
        topics = self._draw.sample(_TOPICS, self._draw.randint(1, 5))
        registration = Registration(
            cluster="c0" if name < "broker-5" else "c1",
            broker_name=name,
            broker_addr=addr,
            broker_id=broker_id,
            ha_server_addr=addr.replace(":10911", ":10912"),
            data_version=DataVersion(0, 1_000 + self._changes, self._changes),
            topics={t: QueueData(self._draw.choice((4, 8)), 8, self._draw.choice((4, 6)), 0) for t in topics},
            timeout_ms=_TIMEOUT_MS,
            enable_acting_master=False,
            registration_hash=f"hash {self._changes}",
        )
        self._registered[addr] = registration
        self._silent.discard(addr)
        return BrokerRegistered(self._origin(registration), registration)

    def _any(self) -> Registration | None:
        return self._draw.choice(list(self._registered.values())) if self._registered else None

    def _fall_silent(self) -> None:
        if registration := self._any():
            self._silent.add(registration.broker_addr)

    def _leave(self) -> Event | None:
        if (r := self._any()) is None:
            return None
        del self._registered[r.broker_addr]
        if self._draw.random() < 0.5:
            return BrokerDisconnected(self._origin(r), r.broker_name, r.live_key, "closed by the peer")
        return BrokerUnregistered(self._origin(r), r.broker_name, r.live_key, r.broker_id)

    def _permission(self) -> Event | None:
        if (r := self._any()) is None:
            return None
        return WritePermChanged(self._origin(r), r.broker_name, self._draw.random() < 0.5)

    def _key_value(self) -> Event:
        namespace, key = self._draw.choice(("ORDER", "UNIT")), f"key-{self._draw.randint(0, 5)}"
        if self._draw.random() < 0.3:
            return KvDeleted(_SERVERS[0], namespace, key)
        self._changes += 1
        return KvPut(_SERVERS[0], namespace, key, f"value {self._changes}")

    def _topic(self) -> Event | None:
        topic, r = self._draw.choice(_TOPICS), self._any()
        if r is None or self._draw.random() < 0.3:
            return TopicDeleted(_SERVERS[0], topic, None)
        return TopicRegistered(_SERVERS[0], r.broker_name, topic, QueueData(2, 2, 6, 0))

    def _settings(self) -> Event:
        return SettingsChanged(_SERVERS[0], "operator", (("max_gap_ms", self._draw.choice((1_500, 2_000))),))


def made_up_log(seed: int, records: int) -> RecordsOf:
    """Return at least ``records`` records of each partition; the seed determines them."""
    draw = random.Random(f"log {seed}")
    fleet = _Fleet(draw)
    log: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    now_ms = BEGIN_MS

    def say(event: Event) -> None:
        key = routing_key(event)
        for partition in range(PARTITIONS) if key is None else [partition_of(key, PARTITIONS)]:
            append(partition, encode_event(event))

    def append(partition: int, value: bytes) -> None:
        log[partition].append(Record(partition, len(log[partition]), now_ms, value))

    for server in _SERVERS:
        say(ServerStarted(server))
    while min(map(len, log.values())) < records:
        for _ in range(draw.randint(0, 4)):
            now_ms += draw.randint(0, 150)
            if event := fleet.act():
                say(event)
        if draw.random() < 0.5:
            heard: dict[int, list[BrokerHeartbeat]] = {}
            for item in fleet.heartbeats():
                heard.setdefault(partition_of(item.broker_name, PARTITIONS), []).append(item)
            for partition, items in heard.items():
                by_server = [[i for i in items if i.origin.server_id == s.server_id] for s in _SERVERS]
                for of_server in filter(None, by_server):
                    append(partition, encode_heartbeats(of_server))
        now_ms += draw.randint(300, 900)
        for server in _SERVERS:
            say(Tick(server))
    return log
