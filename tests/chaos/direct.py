"""Direct publishers, brokers that publish to Kafka themselves: ``python -m tests.chaos.direct SPEC``.

Their producer sets timestamps (CreateTime) alternately five minutes early and late; the topic replaces them
(LogAppendTime), so they must have no effect. The process obeys ``calm`` and ``stop`` like the fleet.
"""

import itertools
import json
import random
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kafka import KafkaProducer
from kafka.errors import KafkaError

from namesrv_stream.kafka import producer_config
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import (
    DIRECT,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Origin,
    Proof,
    partition_of,
)
from namesrv_stream.route.model import DataVersion, LiveKey
from namesrv_stream.settings import Settings, load_settings
from tests.chaos.fleet_plan import FleetSize, Slot, SlotDraws, direct_slots
from tests.chaos.truth import STALL_MS, Journal, now_ms
from tests.support.builders import a_registration

JUMPS_MS: Final = (0, 300_000, -300_000)
_JUMP_EACH_MS: Final = 4_000
_LOOP_S: Final = 0.1
_REGISTER_EACH: Final = 4  # every fourth heartbeat is a registration, so that a broker returns within a run
_ORIGIN: Final = Origin(DIRECT, 0)


class Publisher:
    """A producer with wrong timestamps; it is replaced after a loss of Kafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer: KafkaProducer | None = None
        self._failed = threading.Event()
        self.jump_ms = 0

    def send(self, broker_name: str, value: bytes, on_ack: Any) -> None:
        """Publish a record or drop it; ``on_ack`` runs on another thread when Kafka has stored it."""
        if self._failed.is_set() and self._producer is not None:
            self._failed.clear()
            producer, self._producer = self._producer, None
            threading.Thread(target=producer.close, kwargs={"timeout": 1}, daemon=True).start()
        try:
            if self._producer is None:
                self._producer = KafkaProducer(**producer_config(self._settings))
            future = self._producer.send(
                self._settings.kafka.broker_events_topic,
                value=value,
                partition=partition_of(broker_name, self._settings.kafka.partitions),
                timestamp_ms=now_ms() + self.jump_ms,
            )
        except (KafkaError, OSError):
            self._failed.set()
            return
        future.add_callback(lambda _: on_ack())
        future.add_errback(lambda _: self._failed.set())


class DirectBroker:
    """A broker in one slot of the direct cluster."""

    def __init__(self, slot: Slot, size: FleetSize, seed: int, journal: Journal, lives: "itertools.count[int]") -> None:
        self._slot = slot
        self._fate = SlotDraws(slot, size, seed)
        self._journal = journal
        self._lives = lives
        self._life: int | None = None
        self._incarnation = -1
        self._next_ms = 0
        self._beats = 0
        self._change_ms = 0

    def step(self, publisher: Publisher, at_ms: int, *, is_calm: bool) -> None:
        """Execute the actions that are due."""
        if self._life is None:
            if at_ms < self._change_ms or (is_calm and self._incarnation >= 0):
                return
            self._begin(at_ms)
        elif at_ms >= self._change_ms and not is_calm and not self._slot.is_immortal:
            self._end(publisher, at_ms)
            return
        if at_ms >= self._next_ms:
            self._next_ms = at_ms + int(self._slot.beat_ms * self._fate.jitter())
            self._beat(publisher, at_ms)

    def _begin(self, at_ms: int) -> None:
        self._life = next(self._lives)
        self._incarnation += self._incarnation < 0 or self._fate.restart() != "same"
        self._change_ms = at_ms + int(self._fate.up_s() * 1000)
        self._next_ms, self._beats = at_ms, 0
        self._journal.write(
            "up",
            life=self._life,
            **self._key()._asdict(),
            broker_name=self._slot.broker_name,
            broker_id=0,
            timeout_ms=self._slot.effective_ms,
            servers=self._slot.servers,
        )

    def _end(self, publisher: Publisher, at_ms: int) -> None:
        how = "unregistered" if self._fate.death() == "unregistered" else "silent"
        self._journal.write("down", life=self._life, how=how)
        if how == "unregistered":
            event = BrokerUnregistered(_ORIGIN, self._slot.broker_name, self._key(), 0)
            publisher.send(self._slot.broker_name, encode_event(event), lambda: None)
        self._life = None
        self._change_ms = at_ms + int(self._fate.down_s() * 1000)

    def _beat(self, publisher: Publisher, at_ms: int) -> None:
        life = self._life
        name, key = self._slot.broker_name, self._key()
        event: BrokerRegistered | BrokerHeartbeat
        if self._beats % _REGISTER_EACH == 0:
            version = DataVersion(1, at_ms + publisher.jump_ms, 0)
            event = BrokerRegistered(
                _ORIGIN,
                a_registration(key.broker_addr, broker_name=name, cluster=key.cluster, data_version=version),
            )
        else:
            event = BrokerHeartbeat(_ORIGIN, name, key, Proof.HEARTBEAT)
        self._beats += 1
        publisher.send(
            name, encode_event(event), lambda: self._journal.write("ack", life=life, server="direct", at=at_ms)
        )

    def _key(self) -> LiveKey:
        return LiveKey(self._slot.cluster, self._slot.addr(max(self._incarnation, 0)))


def spec_of(conf: Path, journal: Path, size: FleetSize, seed: int) -> str:
    """Return the only argument of the command line."""
    return json.dumps({"conf": str(conf), "journal": str(journal), "size": asdict(size), "seed": seed})


def main() -> None:
    """Publish until ``stop`` is received."""
    spec = json.loads(sys.argv[1])
    settings = load_settings(environ={}, conf=Path(spec["conf"])).settings
    size = FleetSize.from_json(spec["size"])
    journal = Journal(Path(spec["journal"]))
    # Numbers of broker processes that the fleet does not use.
    lives = itertools.count(1_000_000)
    brokers = [DirectBroker(slot, size, spec["seed"], journal, lives) for slot in direct_slots(size)]
    calm, stop = threading.Event(), threading.Event()

    def obey() -> None:
        for line in sys.stdin:
            (calm if line.strip() == "calm" else stop).set()
        stop.set()

    threading.Thread(target=obey, daemon=True).start()
    publisher = Publisher(settings)
    draw = random.Random(spec["seed"])
    jump_at_ms = 0
    while not stop.is_set():
        at_ms = now_ms()
        if at_ms >= jump_at_ms:
            jump_at_ms = at_ms + _JUMP_EACH_MS
            publisher.jump_ms = draw.choice(JUMPS_MS)
            journal.write("jump", ms=publisher.jump_ms)
        for broker in brokers:
            broker.step(publisher, at_ms, is_calm=calm.is_set())
        began_s = time.monotonic()
        time.sleep(_LOOP_S)
        # A publisher that waits for Kafka is not stalled: its brokers must not expire because of it.
        stood_ms = int((time.monotonic() - began_s - _LOOP_S) * 1000)
        if stood_ms > STALL_MS:
            journal.write("stall", ms=stood_ms, part="direct")


if __name__ == "__main__":
    main()
