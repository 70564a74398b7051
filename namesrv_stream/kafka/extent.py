"""What Kafka says of the events topic: its identity and the offsets it still holds."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.kafka.clients import admin_config, bootstrap_servers, consumer_config
from namesrv_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class TopicExtent:
    """The topic at one moment.

    Attributes:
        topic_id: Kafka's own id, another one when the topic is recreated.
        earliest: partition → first offset it holds.
        end: partition → offset of the next record.
    """

    topic_id: str
    earliest: Mapping[int, int]
    end: Mapping[int, int]


def read_extent(settings: Settings, only: Collection[int] | None = None) -> TopicExtent:
    """Ask Kafka; blocks.

    Args:
        settings: Ours.
        only: Partitions whose offsets are asked for; all where None.

    Raises:
        KafkaUnreachable: No broker answers.
        ConfigError: There is no such topic, or it has other partitions than the configuration says.
    """
    topic = settings.kafka.broker_events_topic
    numbers = range(settings.kafka.partitions)
    partitions = [TopicPartition(topic, p) for p in numbers if only is None or p in only]
    try:
        admin = KafkaAdminClient(**admin_config(settings))
        try:
            described = admin.describe_topics([topic])[0]
        finally:
            admin.close()
        found = len(described["partitions"])
        if not found:
            raise ConfigError("settings", "kafka.broker_events_topic", f"Kafka has no topic {topic}")
        if found != len(numbers):
            raise ConfigError("settings", "kafka.partitions", f"is {len(numbers)}, but topic {topic} has {found}")
        consumer = KafkaConsumer(**consumer_config(settings))
        try:
            earliest = {tp.partition: int(o) for tp, o in consumer.beginning_offsets(partitions).items()}
            end = {tp.partition: int(o) for tp, o in consumer.end_offsets(partitions).items()}
        finally:
            consumer.close()
    except (KafkaError, OSError) as error:
        raise KafkaUnreachable(bootstrap_servers(settings), " ".join(str(error).split())[:200]) from None
    return TopicExtent(str(described["topic_id"]), earliest, end)
