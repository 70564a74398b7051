"""What Kafka says of our topics, looked at and not touched: for those who diagnose."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaConfigurationError, KafkaError

from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.kafka.clients import admin_config, bootstrap_servers, consumer_config, reason_of
from namesrv_stream.kafka.topics import topic_doubts, topic_faults
from namesrv_stream.settings import Settings

_NEWEST_TIMEOUT_MS: Final = 3_000


@dataclass(frozen=True, slots=True)
class InspectedTopic:
    """A topic as it is.

    Attributes:
        name: Of the topic.
        topic_id: Kafka's own id.
        partitions: How many.
        without_leader: Partitions that nobody can write to.
        behind: Partitions of which a replica is behind.
        replicas: Fewest replicas that a partition has.
        faults: Kafka's setting → what it is and should be.
        doubts: The same of settings that work, and may lose acknowledged records.
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
    """Kafka, at one moment.

    Attributes:
        servers: Where it was asked.
        brokers: Kafka brokers in the cluster.
        events: The events topic; None where there is none yet.
        dead_letters: The dead-letter topic; None where there is none yet.
        earliest: partition → first offset of the events topic that is held.
        end: partition → offset of its next record.
        newest_ms: partition → LogAppendTime of its newest record, epoch milliseconds; none of an empty partition.
        dead_letters_held: Records in the dead-letter topic.
    """

    servers: str
    brokers: int
    events: InspectedTopic | None
    dead_letters: InspectedTopic | None
    earliest: Mapping[int, int]
    end: Mapping[int, int]
    newest_ms: Mapping[int, int]
    dead_letters_held: int


def inspect_log(settings: Settings) -> InspectedLog:
    """Ask Kafka; blocks, for seconds at worst, and changes nothing.

    Raises:
        KafkaUnreachable: No broker answers.
        ConfigError: ``kafka.extra`` holds what the client does not take.
    """
    servers = bootstrap_servers(settings)
    try:
        admin = KafkaAdminClient(**admin_config(settings))
        try:
            brokers = len(admin.describe_cluster()["brokers"])
            events = _topic(admin, settings, settings.kafka.broker_events_topic)
            dead_letters = _topic(admin, settings, settings.kafka.dead_letter_topic)
        finally:
            admin.close()
        consumer = KafkaConsumer(**consumer_config(settings))
        try:
            earliest, end = _extent(consumer, events)
            newest_ms = _newest_ms(consumer, settings.kafka.broker_events_topic, earliest, end)
            first, last = _extent(consumer, dead_letters)
        finally:
            consumer.close()
    except KafkaConfigurationError as error:
        raise ConfigError("settings", "kafka.extra", str(error)) from None
    except (KafkaError, OSError) as error:
        raise KafkaUnreachable(servers, reason_of(error)) from None
    held = sum(last.values()) - sum(first.values())
    return InspectedLog(servers, brokers, events, dead_letters, earliest, end, newest_ms, held)


def stored_topic_id(settings: Settings) -> str | None:
    """Kafka's id of the events topic in the files of the embedded Kafka, which need not run; None where there is none.

    All partitions have it; the first one is always there.
    """
    metadata = settings.data.kafka_dir / "log" / f"{settings.kafka.broker_events_topic}-0" / "partition.metadata"
    try:
        lines = metadata.read_text(encoding="ascii").splitlines()
        encoded = next(line.removeprefix("topic_id: ") for line in lines if line.startswith("topic_id: "))
        return str(UUID(bytes=base64.urlsafe_b64decode(f"{encoded}==")))
    except (OSError, StopIteration, ValueError):
        return None


def _topic(admin: KafkaAdminClient, settings: Settings, name: str) -> InspectedTopic | None:
    described = admin.describe_topics([name])[0]
    partitions: list[dict[str, Any]] = described["partitions"]
    if not partitions:
        return None
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    configs = admin.describe_configs([resource], config_filter="all")["topic"][name]
    actual = {key: str(value["value"]) for key, value in configs.items()}
    replicas = min(len(p["replica_nodes"]) for p in partitions)
    return InspectedTopic(
        name=name,
        topic_id=str(described["topic_id"]),
        partitions=len(partitions),
        without_leader=tuple(p["partition_index"] for p in partitions if p["leader_id"] < 0),
        behind=tuple(p["partition_index"] for p in partitions if len(p["isr_nodes"]) < len(p["replica_nodes"])),
        replicas=replicas,
        faults=dict(topic_faults(actual, settings)),
        doubts=dict(topic_doubts(actual, replicas)),
    )


def _extent(consumer: KafkaConsumer, topic: InspectedTopic | None) -> tuple[dict[int, int], dict[int, int]]:
    if topic is None:
        return {}, {}
    where = [TopicPartition(topic.name, p) for p in range(topic.partitions) if p not in topic.without_leader]
    earliest = {tp.partition: int(offset) for tp, offset in consumer.beginning_offsets(where).items()}
    return earliest, {tp.partition: int(offset) for tp, offset in consumer.end_offsets(where).items()}


def _newest_ms(
    consumer: KafkaConsumer, topic: str, earliest: Mapping[int, int], end: Mapping[int, int]
) -> dict[int, int]:
    found: dict[int, int] = {}
    for partition in (p for p in end if end[p] > earliest[p]):
        where = TopicPartition(topic, partition)
        consumer.assign([where])
        consumer.seek(where, end[partition] - 1)
        for record in consumer.poll(timeout_ms=_NEWEST_TIMEOUT_MS).get(where, []):
            found[partition] = int(record.timestamp)
    return found
