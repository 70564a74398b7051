"""A model of Kafka: topics with partitions that stamp each record when they append it.

The product uses it through ``kafka_clients``. Faults are attributes: Kafka is away, a partition has no leader, answers
are slow or get lost, records disappear, the topic is recreated, old records are removed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka.errors import OutOfOrderSequenceNumberError

from tests.simulation.runtime.process import MS, Machine
from tests.simulation.runtime.scheduler import Scheduler, Waiters

EVENTS: Final = "namesrv.broker-events"
DEAD_LETTERS: Final = "namesrv.broker-events.dead-letters"


class Stored(NamedTuple):
    """A record in a partition, appended at the virtual time ``at``.

    ``producer`` and ``number`` identify it, so that a retry appends nothing.
    """

    at: int
    at_ms: int
    key: bytes | None
    value: bytes
    producer: int
    number: int


@dataclass(slots=True)
class Log:
    """One partition.

    Attributes:
        first: The first available offset.
        records: The records from there on.
        has_leader: Whether records can be appended and read.
    """

    first: int = 0
    records: list[Stored] = field(default_factory=list)
    has_leader: bool = True
    newest: dict[int, tuple[int, int]] = field(default_factory=dict)  # producer → number and offset of its last record

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def at(self, offset: int) -> Stored:
        return self.records[offset - self.first]


@dataclass(slots=True)
class Topic:
    topic_id: str
    logs: list[Log]
    configs: dict[str, str]


class SimKafka:
    """The cluster.

    Attributes:
        delay: Time of one way of a request.
        slowest: The longest delay so far.
        unacknowledged: Share of appended records whose acknowledgement gets lost, so that the client sends them again.
        acknowledged: (partition, offset) → value of all records that a producer was told are in the log.
        lost: Acknowledged records that Kafka has lost.
        jumps: Times at which its clock jumped.
    """

    def __init__(self, scheduler: Scheduler, machine: Machine) -> None:
        self.scheduler, self.machine = scheduler, machine
        self.topics: dict[str, Topic] = {}
        self._stops = 0  # faults that keep it from answering
        self.delay = self.slowest = 1 * MS
        self.unacknowledged = 0.0
        self.lost: list[Stored] = []
        self.jumps: list[int] = []
        self.is_recreated = False  # whether the topic was recreated
        self.generation = 0  # how often acknowledged records were lost or the topic was recreated
        self.on_append: Callable[[int], None] = lambda partition: None
        self._changed = Waiters(scheduler)
        self._sessions = 0

    def log(self, partition: int, topic: str = EVENTS) -> Log:
        return self.topics[topic].logs[partition]

    def is_available(self, topic: str, partition: int) -> bool:
        found = self.topics.get(topic)
        return self.is_up and found is not None and partition < len(found.logs) and found.logs[partition].has_leader

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        topic_id = f"topic-{self.scheduler.random.getrandbits(64):016x}"
        self.topics[topic] = Topic(topic_id, [Log() for _ in range(partitions)], configs)

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes, producer: int, number: int
    ) -> tuple[int, int]:
        """Append a record, unless this is a retry. Return its offset and its time stamp.

        Args:
            producer: The id of a producer's session; -1 for a producer that is not idempotent.
            number: 0, 1, … among the records of the session in this partition.

        Raises:
            OutOfOrderSequenceNumberError: An earlier record of the session is missing, because the log lost it.
        """
        log = self.topics[topic].logs[partition]
        before = log.newest.get(producer)
        if before is not None and before[0] >= number:
            return before[1], log.at(before[1]).at_ms if before[1] < log.end else 0
        if before is not None and producer >= 0 and number > before[0] + 1:
            raise OutOfOrderSequenceNumberError
        at_ms, offset = self.machine.wall_ms(), log.end
        log.records.append(Stored(self.scheduler.now, at_ms, key, value, producer, number))
        log.newest[producer] = (number, offset)
        if topic == EVENTS:
            self.scheduler.trace(f"kafka {partition}/{offset} {at_ms} {value!r}")
            self.on_append(partition)
        return offset, at_ms

    def next_session(self) -> int:
        """Return the id of a new session of a producer."""
        self._sessions += 1
        return self._sessions

    # ---- faults ----

    @property
    def is_up(self) -> bool:
        """Whether it answers."""
        return not self._stops

    def stop(self) -> None:
        self._stops += 1

    def start(self) -> None:
        self._stops -= 1

    def lose(self, partition: int, count: int) -> int:
        """Lose the newest records, as an unclean election of a leader does. Return the number of lost records."""
        log = self.log(partition)
        count = min(count, len(log.records))
        if count:
            self.generation += 1
            self.lost += log.records[-count:]
            del log.records[-count:]
            log.newest.clear()
            for offset, record in enumerate(log.records, log.first):
                log.newest[record.producer] = (record.number, offset)
        return count

    def recreate(self) -> None:
        """Replace the events topic by an empty one."""
        before = self.topics[EVENTS]
        self.generation += 1
        self.is_recreated = True
        self.lost += [record for log in before.logs for record in log.records]
        self.create(EVENTS, len(before.logs), before.configs)

    def remove_until(self, partition: int, offset: int) -> None:
        """Remove old records, as Kafka's retention does."""
        log = self.log(partition)
        count = min(max(0, offset - log.first), len(log.records))
        del log.records[:count]
        log.first += count
