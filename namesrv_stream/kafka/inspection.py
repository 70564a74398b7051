"""Inspects Kafka and the two topics without changing anything, for diagnostic commands and starting servers."""

import base64
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from kafka import KafkaAdminClient
from kafka.errors import AuthorizationError, TopicAuthorizationFailedError

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.kafka.clients import admin_client, bootstrap_servers, describe_topic, topic_values
from namesrv_stream.kafka.event_topics import create_topic, topic_doubts, topic_faults, wanted_topics
from namesrv_stream.kafka.log_reader import LogReader
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import JOB, Tick
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import RecordsRemoved

#: Records at each end of the log that are searched for signs of a commit: some minutes of ticks.
_SEARCHED_RECORDS: Final = 1_000
_READ_TIMEOUT_MS: Final = 5_000
#: Operations that the parts need on a topic: kafka-python's name → the name of ``kafka-acls``.
_NEEDED: Final = {"READ": "Read", "WRITE": "Write", "DESCRIBE_CONFIGS": "DescribeConfigs"}


@dataclass(frozen=True, slots=True)
class InspectedTopic:
    """The state of a topic.

    Attributes:
        name: Name of the topic.
        topic_id: Kafka's id of the topic.
        partitions: Number of partitions.
        without_leader: Partitions without a leader, which are not writable.
        behind: Partitions with a replica that is not in sync.
        replicas: The lowest number of replicas of a partition.
        faults: Kafka's setting → actual and required value, for settings that do not work.
        doubts: Kafka's setting → actual and recommended value, for settings that may lose acknowledged records.
    """

    name: str
    topic_id: str
    partitions: int
    without_leader: tuple[int, ...]
    behind: tuple[int, ...]
    replicas: int
    faults: Mapping[str, str]
    doubts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InspectedLog:
    """The state of Kafka.

    Attributes:
        servers: The addresses that were used.
        brokers: Number of Kafka brokers in the cluster.
        events: The events topic; None if it does not exist yet.
        dead_letters: The dead-letter topic; None if it does not exist yet.
        earliest: Partition of the events topic → its first available offset.
        end: Partition → offset of its next record.
        newest_ms: Partition → LogAppendTime of its newest record, epoch milliseconds; without empty partitions.
        dead_letters_held: Number of records in the dead-letter topic.
        has_commits: Whether the log shows that a job has committed (see ``log_shows_commits``).
        missing_rights: Topic → operations on it that the product needs and this user lacks, named as in ``kafka-acls``.
            Without Describe, Kafka does not say whether the topic exists. Create is needed only if it does not exist.
    """

    servers: str
    brokers: int
    events: InspectedTopic | None
    dead_letters: InspectedTopic | None
    earliest: Mapping[int, int]
    end: Mapping[int, int]
    newest_ms: Mapping[int, int]
    dead_letters_held: int
    has_commits: bool = False
    missing_rights: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def inspect_log(settings: Settings) -> InspectedLog:
    """Inspect Kafka; blocks, at most for seconds.

    Raises:
        KafkaUnreachable: No Kafka broker answers.
        ConfigError: ``kafka.extra`` has an option that the client does not accept, or Kafka would refuse to create a
            missing topic.
    """
    servers = bootstrap_servers(settings)
    with admin_client(settings) as admin:
        brokers = len(admin.describe_cluster()["brokers"])
        (events, lacks), (dead_letters, more) = (_topic(admin, settings, *t) for t in wanted_topics(settings))
    extents = _extents(settings, events)
    earliest = {partition: first for partition, (first, _) in extents.items()}
    ends = {partition: end for partition, (_, end) in extents.items()}
    held = sum(end - first for first, end in _extents(settings, dead_letters).values())
    can_read = events is not None and "Read" not in lacks
    newest_ms = _newest_ms(settings, extents) if can_read else {}
    has_commits = can_read and log_shows_commits(settings)
    rights = {name: missing for (name, _), missing in zip(wanted_topics(settings), (lacks, more), strict=True)}
    return InspectedLog(servers, brokers, events, dead_letters, earliest, ends, newest_ms, held, has_commits, rights)


def log_shows_commits(settings: Settings) -> bool:
    """Return whether the first and the newest records of the log show that a job has committed; blocks.

    Two kinds of ticks show it: ticks of the job, which it writes only when its tables exist; and ticks of servers with
    an address, which a server adds only after it has read the commit of its own start. Both kinds are written to every
    partition, so only partition 0 is read.

    Raises:
        KafkaUnreachable: No Kafka broker answers.
    """
    with LogReader(settings, timeout_ms=_READ_TIMEOUT_MS) as reader:
        first, end = reader.extent(0)
        head = first, min(first + _SEARCHED_RECORDS, end)
        newest = max(head[1], end - _SEARCHED_RECORDS), end
        with suppress(RecordsRemoved, TimeoutError):
            for begin, stop in (newest, head):
                for batch in reader.batches(0, begin, stop):
                    if has_sign_of_commit(record.value for record in batch):
                        return True
    return False


def has_sign_of_commit(values: Iterable[bytes]) -> bool:
    """Return whether one of these records shows that a job has committed."""
    for value in values:
        if b'"tick"' in value:  # other records may be large
            with suppress(EventDecodeError):
                for event in decode_record(value):
                    if isinstance(event, Tick) and (event.origin.server_id == JOB or event.address):
                        return True
    return False


def stored_topic_id(settings: Settings) -> str | None:
    """Return Kafka's id of the events topic from the files of the embedded Kafka; None if there are none.

    Kafka need not be running. All partitions have the same id, and partition 0 always exists.
    """
    metadata = settings.data.kafka_dir / "log" / f"{settings.kafka.broker_events_topic}-0" / "partition.metadata"
    try:
        lines = metadata.read_text(encoding="ascii").splitlines()
        encoded = next(line.removeprefix("topic_id: ") for line in lines if line.startswith("topic_id: "))
        return str(UUID(bytes=base64.urlsafe_b64decode(f"{encoded}==")))
    except (OSError, StopIteration, ValueError):
        return None


def _topic(
    admin: KafkaAdminClient, settings: Settings, name: str, wanted_partitions: int
) -> tuple[InspectedTopic | None, tuple[str, ...]]:
    """Return a topic and the operations on it that this user lacks. The topic is None if Kafka does not show it."""
    try:
        described = describe_topic(admin, name)
    except TopicAuthorizationFailedError:
        return None, ("Describe", "Read", "Write")  # Read and Write include Describe
    partitions: list[dict[str, Any]] = described["partitions"]
    if not partitions:
        try:
            create_topic(admin, name, wanted_partitions, settings, is_trial=True)
        except AuthorizationError:
            return None, ("Create",)
        return None, ()
    permitted = described.get("authorized_operations")  # None: Kafka is too old to return them
    missing = tuple(text for op, text in _NEEDED.items() if permitted is not None and op not in permitted)
    actual = {} if "DescribeConfigs" in missing else topic_values(admin, name)
    replicas = min(len(p["replica_nodes"]) for p in partitions)
    topic = InspectedTopic(
        name=name,
        topic_id=str(described["topic_id"]),
        partitions=len(partitions),
        without_leader=tuple(p["partition_index"] for p in partitions if p["leader_id"] < 0),
        behind=tuple(p["partition_index"] for p in partitions if len(p["isr_nodes"]) < len(p["replica_nodes"])),
        replicas=replicas,
        faults=dict(topic_faults(actual, settings)) if actual else {},
        doubts=dict(topic_doubts(actual, replicas)) if actual else {},
    )
    return topic, missing


def _extents(settings: Settings, topic: InspectedTopic | None) -> dict[int, tuple[int, int]]:
    """Return ``LogReader.extents`` of the partitions that have a leader. Kafka does not know those of the others."""
    if topic is None:
        return {}
    with LogReader(settings, topic.name) as reader:
        return reader.extents([p for p in range(topic.partitions) if p not in topic.without_leader])


def _newest_ms(settings: Settings, extents: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    newest = {partition: (end - 1, end) for partition, (first, end) in extents.items() if end > first}
    found: dict[int, int] = {}
    with LogReader(settings, timeout_ms=_READ_TIMEOUT_MS) as reader, suppress(RecordsRemoved, TimeoutError):
        for batch in reader.batches_of(newest):
            found |= {record.partition: record.at_ms for record in batch}
    return found
