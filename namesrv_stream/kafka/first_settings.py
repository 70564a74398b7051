"""Logs the configured settings as the first record of an empty log, so that they apply from the first registration on.

The job logs its settings, too, but it is ready some seconds after the servers. A server that finds a partition empty
logs its own configuration there. The job has the final decision: if its configuration differs from a server's, it logs
its own values at its start (ADR 0047).
"""

import logging

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from namesrv_stream.kafka.clients import consumer_config, producer_config, reason_of
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import DIRECT, Origin, SettingsChanged
from namesrv_stream.settings import Settings
from namesrv_stream.settings.checks import SOURCE, changed_settings

logger = logging.getLogger(__name__)


def log_first_settings(settings: Settings) -> None:
    """Log settings that differ from the defaults, in every partition that never had a record; blocks.

    If Kafka fails, the settings apply from the start of the job on, and a warning is logged.
    """
    changed = changed_settings(settings, {})
    if not changed:
        return
    # The event has no server as its origin, so that it does not advance a server's clock.
    event = encode_event(SettingsChanged(Origin(DIRECT, 0), SOURCE, tuple(sorted(changed.items()))))
    try:
        partitions = _empty_partitions(settings)
        if not partitions:
            return
        _send(settings, event, partitions)
    except (KafkaError, OSError) as error:
        logger.warning("logging the first settings failed, they apply when the job starts reason=%s", reason_of(error))
    else:
        logger.info("first settings logged partitions=%s settings=%s", partitions, changed)


def _empty_partitions(settings: Settings) -> list[int]:
    topic = settings.kafka.broker_events_topic
    consumer = KafkaConsumer(**consumer_config(settings))
    try:
        ends = consumer.end_offsets([TopicPartition(topic, p) for p in range(settings.kafka.partitions)])
        return [tp.partition for tp, end in ends.items() if end == 0]
    finally:
        consumer.close()


def _send(settings: Settings, event: bytes, partitions: list[int]) -> None:
    producer = KafkaProducer(**producer_config(settings))
    try:
        topic = settings.kafka.broker_events_topic
        sent = [producer.send(topic, value=event, partition=partition) for partition in partitions]
        for future in sent:
            future.get(timeout=settings.kafka.delivery_timeout_ms / 1000)
    finally:
        producer.close(timeout=1)
