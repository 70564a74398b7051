"""The events topic and the dead-letter topic: creation, verification, the first records, and more partitions.

Every process calls :func:`ensure_topics` at its start. So a topic that was created manually with unsuitable settings is
reported before it causes damage: without LogAppendTime there is no common clock, and with a smaller maximum size,
registrations are lost.

The first record of an empty partition contains the configured settings, so that they apply from the first registration
on. The job writes its settings to the topic, too, but it is ready some seconds after the servers. Therefore a server
that finds a partition empty writes its own settings there. The settings of the job prevail: if a server's differ from
them, the job writes its own at its start (ADR 0047).

Partitions are added while the events topic is closed. A topic with a maximum record size of 0 bytes rejects the records
of all producers and can still be read. So the end of the log does not move while the fold's state is divided among the
partitions (ADR 0054).
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Final

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)

from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.kafka.clients import (
    admin_client,
    describe_topic,
    kafka_errors,
    producer_config,
    reason_of,
    topic_values,
)
from namesrv_stream.kafka.log_reader import LogReader
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import DIRECT, Origin, SettingsChanged
from namesrv_stream.settings import Settings
from namesrv_stream.settings.checks import SOURCE, changed_settings
from namesrv_stream.text_table import counted

logger = logging.getLogger(__name__)

_CREATE_TIMEOUT_MS: Final = 15_000
_MIN_INSYNC: Final = "min.insync.replicas"
#: With fewer replicas, a topic with two required in-sync replicas is not writable during the restart of a Kafka broker.
_REPLICAS_FOR_TWO_IN_SYNC: Final = 3
#: Kafka's answers to a request to create a topic with values that this cluster does not accept.
_REJECTIONS: Final = (InvalidConfigurationError, InvalidPartitionsError, InvalidTopicError, PolicyViolationError)


def ensure_topics(settings: Settings) -> None:
    """Create the events and dead-letter topics if they are missing, and verify them; blocks, at most for seconds.

    Raises:
        KafkaUnreachable: No Kafka broker answers.
        ConfigError: A topic has unsuitable settings, or Kafka cannot create it as configured; the text says which.
    """
    with admin_client(settings) as admin:
        for topic, partitions in wanted_topics(settings):
            # The request to create a topic needs permission even if the topic exists.
            if not describe_topic(admin, topic)["partitions"]:
                create_topic(admin, topic, partitions, settings)
            _verify(admin, topic, partitions, settings)


def wanted_topics(settings: Settings) -> list[tuple[str, int]]:
    """Return (name, partitions) of the events topic and of the dead-letter topic."""
    kafka = settings.kafka
    return [(kafka.broker_events_topic, kafka.partitions), (kafka.dead_letter_topic, 1)]


def topic_configs(settings: Settings) -> dict[str, str]:
    """Return the settings with which both topics are created: Kafka's name → value."""
    kafka = settings.kafka
    durable = {_MIN_INSYNC: "2"} if kafka.replication_factor >= _REPLICAS_FOR_TWO_IN_SYNC else {}
    return durable | {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(kafka.retention_ms),
        "max.message.bytes": str(kafka.max_message_bytes),
    }


def create_topic(
    admin: KafkaAdminClient, topic: str, partitions: int, settings: Settings, *, is_trial: bool = False
) -> None:
    """Create a topic, unless it exists already. A trial creates nothing: Kafka only checks the request.

    Raises:
        ConfigError: Kafka rejects the configured values, or has too few brokers for the replicas.
        KafkaError: Kafka does not answer, or does not permit the creation.
    """
    factor = settings.kafka.replication_factor
    wanted = {"num_partitions": partitions, "replication_factor": factor, "configs": topic_configs(settings)}
    mode = {"validate_only": True} if is_trial else {"wait_for_metadata": True}
    try:
        admin.create_topics({topic: wanted}, timeout_ms=_CREATE_TIMEOUT_MS, **mode)
    except TopicAlreadyExistsError:
        return
    except InvalidReplicationFactorError:
        brokers = len(admin.describe_cluster()["brokers"])
        if brokers >= factor:  # some of them are still starting
            raise
        text = f"is {factor}, but Kafka has {counted(brokers, 'broker')}: lower it, or add Kafka brokers"
        raise ConfigError("settings", "kafka.replication_factor", text) from None
    except _REJECTIONS as error:
        raise ConfigError(f"Kafka topic {topic}", "creation", f"Kafka rejects it ({reason_of(error)})") from None


def _verify(admin: KafkaAdminClient, topic: str, partitions: int, settings: Settings) -> None:
    described = describe_topic(admin, topic)
    found = len(described["partitions"])
    if found != partitions:
        raise ConfigError(f"Kafka topic {topic}", "partitions", f"are {found}, kafka.partitions says {partitions}")
    actual = topic_values(admin, topic)
    for name, reason in topic_faults(actual, settings):
        raise ConfigError(f"Kafka topic {topic}", name, reason)
    replicas = min((len(p["replica_nodes"]) for p in described["partitions"]), default=0)
    for name, reason in topic_doubts(actual, replicas):
        logger.warning("topic may lose acknowledged records topic=%s setting=%s reason=%s", topic, name, reason)


def topic_doubts(actual: Mapping[str, str], replicas: int) -> list[tuple[str, str]]:
    """Return those settings of a topic that work, but with which acknowledged records may be lost.

    Args:
        actual: Kafka's name → value of all settings of the topic.
        replicas: The lowest number of replicas of a partition.

    Returns:
        (Kafka's name, actual and recommended value) pairs.
    """
    if replicas < _REPLICAS_FOR_TWO_IN_SYNC or int(actual.get(_MIN_INSYNC, "1")) >= 2:
        return []
    return [(_MIN_INSYNC, f"is {actual.get(_MIN_INSYNC, '1')}, should be 2 with {replicas} replicas")]


def topic_faults(actual: Mapping[str, str], settings: Settings) -> list[tuple[str, str]]:
    """Return those settings of a topic with which this product does not work.

    Args:
        actual: Kafka's name → value, at least for the names in :func:`topic_configs`.

    Returns:
        (Kafka's name, actual and required value) pairs, in a fixed order.
    """
    wanted: dict[str, Any] = topic_configs(settings)
    faults = []
    for name in ("cleanup.policy", "message.timestamp.type"):
        if actual[name] != wanted[name]:
            faults.append((name, f"is {actual[name]}, must be {wanted[name]}"))
    retention_ms = int(actual["retention.ms"])
    if 0 <= retention_ms < settings.kafka.retention_ms:  # -1 keeps everything
        faults.append(("retention.ms", f"is {retention_ms}, must be at least {settings.kafka.retention_ms}"))
    if int(actual["max.message.bytes"]) < settings.kafka.max_message_bytes:
        text = f"is {actual['max.message.bytes']}, must be at least {settings.kafka.max_message_bytes}"
        faults.append(("max.message.bytes", text))
    return faults


_SIZE: Final = "max.message.bytes"
_CLOSED: Final = "0"
_TIMEOUT_MS: Final = 30_000
_PROBE_S: Final = 0.1


class TopicGrowth:
    """Adds partitions to the events topic. All methods block, and raise KafkaUnreachable if Kafka does not answer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = settings.kafka.broker_events_topic

    def partitions(self) -> int:
        """Return the number of partitions; 0 if the topic does not exist."""
        with admin_client(self._settings) as admin:
            return len(describe_topic(admin, self._topic)["partitions"])

    def close(self, probe: bytes) -> None:
        """Make the topic reject all records, and return when every partition has rejected one.

        Args:
            probe: Value of a record that has no effect if a partition still accepts it.

        Raises:
            KafkaUnreachable: Kafka does not answer, or a partition continues to accept records.
        """
        self._alter(_CLOSED)
        # The Kafka brokers apply the change independently of each other.
        config = producer_config(self._settings) | {"enable_idempotence": False, "retries": 0}
        with kafka_errors(self._settings), closing(KafkaProducer(**config)) as producer:
            for partition in range(self.partitions()):
                complaint = f"partition {partition} accepts records with {_SIZE} = {_CLOSED}"
                _wait_until(partial(self._refuses, producer, partition, probe), complaint)

    def open(self) -> None:
        """Make the topic accept records again, up to the configured size."""
        self._alter(topic_configs(self._settings)[_SIZE])

    def check_growth(self, partitions: int) -> None:
        """Ask Kafka whether it would increase the number of partitions to this number; nothing changes.

        Raises:
            KafkaUnreachable: Kafka refuses, or does not answer.
        """
        with admin_client(self._settings) as admin:
            admin.create_partitions({self._topic: partitions}, timeout_ms=_TIMEOUT_MS, validate_only=True)

    def grow(self, partitions: int) -> None:
        """Increase the number of partitions to this number. The new partitions are empty and begin at offset 0.

        Raises:
            KafkaUnreachable: Kafka does not answer, or does not show the new partitions. It may add them later.
        """
        with admin_client(self._settings) as admin:
            admin.create_partitions({self._topic: partitions}, timeout_ms=_TIMEOUT_MS)
            complaint = f"topic {self._topic} does not show {partitions} partitions"
            _wait_until(lambda: self.partitions() == partitions, complaint)

    def _refuses(self, producer: KafkaProducer, partition: int, value: bytes) -> bool:
        try:
            producer.send(self._topic, value=value, partition=partition).get(timeout=_TIMEOUT_MS / 1000)
        except MessageSizeTooLargeError:
            return True
        return False

    def _alter(self, size: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic, configs={_SIZE: (AlterConfigOp.SET, size)})
        with admin_client(self._settings) as admin:
            result = admin.alter_configs([resource])["topic"][self._topic]
            if TopicAuthorizationFailedError.__name__ in result:
                raise TopicAuthorizationFailedError(f"AlterConfigs on topic {self._topic}")
            if result != "OK":
                raise KafkaError(result)


def _wait_until(is_done: Callable[[], bool], complaint: str) -> None:
    """Wait until Kafka has applied a change; blocks.

    Raises:
        KafkaTimeoutError: It has not done so in time; the text is ``complaint``.
    """
    until_s = time.monotonic() + _TIMEOUT_MS / 1000
    while not is_done():
        if time.monotonic() > until_s:
            raise KafkaTimeoutError(complaint)
        time.sleep(_PROBE_S)


def log_first_settings(settings: Settings) -> None:
    """Write settings that differ from the defaults to every partition that never had a record; blocks.

    If Kafka fails, a warning is logged, and the settings apply only from the start of the job on.
    """
    changed = changed_settings(settings, {})
    if not changed:
        return
    # The event has no server as its origin, so that it does not advance a server's clock.
    event = encode_event(SettingsChanged(Origin(DIRECT, 0), SOURCE, tuple(sorted(changed.items()))))
    try:
        with LogReader(settings) as reader:
            extents = reader.extents(range(settings.kafka.partitions))
        partitions = [partition for partition, (_, end) in extents.items() if end == 0]
        if not partitions:
            return
        _send(settings, event, partitions)
    except (KafkaError, OSError, NamesrvStreamError) as error:
        logger.warning("logging the first settings failed, they apply when the job starts reason=%s", reason_of(error))
    else:
        logger.info("first settings logged partitions=%s settings=%s", partitions, changed)


def _send(settings: Settings, event: bytes, partitions: list[int]) -> None:
    producer = KafkaProducer(**producer_config(settings))
    try:
        sent = [producer.send(settings.kafka.broker_events_topic, value=event, partition=p) for p in partitions]
        for future in sent:
            future.get(timeout=settings.kafka.delivery_timeout_ms / 1000)
    finally:
        producer.close(timeout=1)
