"""Checks whether Kafka's topic is still the log from which the tables were made.

A topic that was recreated, or that lost folded records, can grow again to any length. Offsets alone are therefore not
sufficient. The check compares the topic's id and the last folded record of each partition (ADR 0049).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from namesrv_stream.errors import ConfigError, KafkaUnreachable, LogReplaced, LogTruncated, RecordsRemoved
from namesrv_stream.kafka.clients import admin_config, bootstrap_servers, consumer_config, reason_of
from namesrv_stream.kafka.log_reader import LogReader
from namesrv_stream.route.fold.folded_log import FoldedLog, Place, fingerprint
from namesrv_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class TopicExtent:
    """Identity and available offsets of the events topic.

    Attributes:
        topic_id: Kafka's id of the topic, which a recreation changes.
        earliest: Partition → first available offset.
        end: Partition → offset of the next record.
    """

    topic_id: str
    earliest: Mapping[int, int]
    end: Mapping[int, int]


def read_extent(settings: Settings, only: Collection[int] | None = None) -> TopicExtent:
    """Read identity and offsets of the events topic from Kafka; blocks.

    Args:
        settings: The settings.
        only: Partitions whose offsets are read; None for all.

    Raises:
        KafkaUnreachable: No Kafka broker answers.
        ConfigError: The topic does not exist, or its number of partitions differs from the configuration.
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
        raise KafkaUnreachable(bootstrap_servers(settings), reason_of(error)) from None
    return TopicExtent(str(described["topic_id"]), earliest, end)


def check_log(settings: Settings, folded: FoldedLog, only: Collection[int] | None = None) -> TopicExtent:
    """Compare Kafka's log with the tables; blocks.

    Args:
        settings: The settings.
        folded: The log as far as the tables cover it.
        only: Partitions to compare; None for all.

    Returns:
        Identity and offsets of the events topic.

    Raises:
        LogReplaced: The log is another one, or a different record is at the offset of the last folded one.
        LogTruncated: The log ends before the last folded record.
        KafkaUnreachable: No Kafka broker answers.
        ConfigError: The topic does not exist, or its number of partitions differs from the configuration.
    """
    extent = read_extent(settings, only)
    if folded.topic_id and folded.topic_id != extent.topic_id:
        topic = settings.kafka.broker_events_topic
        raise LogReplaced(
            f"Kafka's topic {topic} has the id {extent.topic_id}, the tables were made from one with the id"
            f" {folded.topic_id}"
        )
    partitions = settings.kafka.partitions
    if max(folded.progress, default=0) >= partitions:
        raise LogReplaced(
            f"the tables were made from {len(folded.progress)} partitions, Kafka's topic has {partitions}"
        )
    progress = {p: place for p, place in sorted(folded.progress.items()) if p in extent.end}
    for partition, place in progress.items():
        if place.next_offset > extent.end[partition]:
            raise LogTruncated(partition, place.next_offset, extent.earliest[partition], extent.end[partition])
    known = {p: place for p, place in progress.items() if place.fingerprint}
    present = {p: place for p, place in known.items() if place.next_offset > extent.earliest[p]}
    if present:
        _check_records(settings, present)
    return extent


def _check_records(settings: Settings, progress: Mapping[int, Place]) -> None:
    with LogReader(settings) as reader:
        for partition, place in sorted(progress.items()):
            offset = place.next_offset - 1
            try:
                found = [record for batch in reader.batches(partition, offset, offset + 1) for record in batch]
            except RecordsRemoved:
                continue  # Kafka's retention has just removed them
            if [fingerprint(record.at_ms, record.value) for record in found] != [place.fingerprint]:
                raise LogReplaced(
                    f"partition {partition}: the record at offset {offset} is not the one that was folded:"
                    " Kafka has lost records since, and has others in their place"
                )
