"""A faulty producer: duplicates, repeated and reordered old records, wrong timestamps, and invalid records."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from kafka import KafkaProducer
from kafka.errors import KafkaError

from namesrv_stream.errors import KafkaUnreachable
from namesrv_stream.kafka import LogReader, producer_config
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import JOB, BrokerRegistered, Origin, partition_of
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from tests.chaos.direct import JUMPS_MS
from tests.chaos.truth import now_ms
from tests.support.builders import a_registration

#: Maximum number of newest records of a partition that are copied; a burst of copies takes a fraction of a second.
_COPIED: Final = 60
_ACK_S: Final = 15.0

#: (value, partition) → future of the record's metadata.
Send = Callable[[bytes, int], Any]


@dataclass(frozen=True, slots=True)
class Poison:
    """An invalid record, and its place in the log."""

    kind: str
    partition: int
    offset: int


class FaultyProducer:
    """Publishes records that no server writes, each time with a new producer, because Kafka may be down afterwards.

    Attributes:
        copies: Number of duplicates.
        failures: Number of attempts that Kafka refused.
    """

    def __init__(self, settings: Settings, seed: int) -> None:
        self.poisons: list[Poison] = []
        self.copies = 0
        self.failures = 0
        self._settings = settings
        self._draw = random.Random(f"{seed}/liar")

    def duplicate(self) -> None:
        """Publish the newest records of each partition again, like a producer that retries without idempotence."""
        self._republish(lambda records: records)

    def reorder(self) -> None:
        """Publish the newest records again in random order."""
        self._republish(lambda records: self._draw.sample(records, len(records)))

    def poison(self) -> None:
        """Publish one record of each kind that the fold refuses."""

        def produce(send: Send) -> None:
            for kind, partition, value in _poison_records(self._settings.kafka.partitions):
                offset = send(value, partition).get(timeout=_ACK_S).offset
                self.poisons.append(Poison(kind, partition, offset))

        self._produce(produce)

    def _republish(self, order: Callable[[list[Record]], Sequence[Record]]) -> None:
        def produce(send: Send) -> None:
            with LogReader(self._settings) as log:
                for partition in range(self._settings.kafka.partitions):
                    begin, end = log.extent(partition)
                    batches = log.batches(partition, max(begin, end - _COPIED), end)
                    records = [record for batch in batches for record in batch]
                    for future in [send(record.value, partition) for record in order(records)]:
                        future.get(timeout=_ACK_S)
                    self.copies += len(records)

        self._produce(produce)

    def _produce(self, produce: Callable[[Send], None]) -> None:
        topic = self._settings.kafka.broker_events_topic
        try:
            producer = KafkaProducer(**producer_config(self._settings))
            try:
                produce(
                    lambda value, partition: producer.send(
                        topic, value=value, partition=partition, timestamp_ms=now_ms() + self._draw.choice(JUMPS_MS)
                    )
                )
            finally:
                producer.close(timeout=1)
        except (KafkaUnreachable, KafkaError):
            self.failures += 1


def _poison_records(partitions: int) -> list[tuple[str, int, bytes]]:
    """Return (fault, partition, value) of each kind of invalid record."""
    head = {"schema_version": 1, "server_id": "poisoner", "server_epoch": 1}
    registered = BrokerRegistered(Origin("poisoner", 1, 1), a_registration(broker_name="poisoned", cluster="poison"))
    own = partition_of("poisoned", partitions)
    found = [
        ("no JSON", 0, b"\xff\xfe poison"),
        ("an empty value", 0, b""),
        ("no object", 0, b"[1, 2]"),
        ("a newer schema", 0, orjson.dumps(head | {"schema_version": 99, "kind": "tick"})),
        ("an unknown kind", 0, orjson.dumps(head | {"kind": "broker_exploded"})),
        ("a field of the wrong type", own, orjson.dumps(orjson.loads(encode_event(registered)) | {"broker_id": "x"})),
        ("an item that cannot be read", 0, orjson.dumps(head | {"kind": "broker_heartbeats", "items": [{"proof": 1}]})),
        ("an event for servers only", own, encode_event(BrokerRegistered(Origin(JOB, 1), registered.registration))),
    ]
    if partitions > 1:
        found.append(("the wrong partition", (own + 1) % partitions, encode_event(registered)))
    return found
