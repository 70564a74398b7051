"""The two Kafka topics: created if absent, then held against what the fold relies on.

Every process calls :func:`ensure_topics` at its start, so a topic that someone made by hand with other settings is
named before it does harm: without LogAppendTime there is no common clock, without the size a registration is lost.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaConfigurationError, KafkaError, TopicAlreadyExistsError

from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.kafka.clients import admin_config, bootstrap_servers, reason_of
from namesrv_stream.settings import Settings

_LOG = logging.getLogger(__name__)

_CREATE_TIMEOUT_MS: Final = 15_000
_DEAD_LETTER_PARTITIONS: Final = 1
_MIN_INSYNC: Final = "min.insync.replicas"
#: With fewer, a topic that needs two replicas in sync cannot be written to while one Kafka broker is restarted.
_REPLICAS_FOR_TWO_IN_SYNC: Final = 3


def ensure_topics(settings: Settings) -> None:
    """Create the events and dead-letter topics where absent and verify them; blocks, for seconds at worst.

    Raises:
        KafkaUnreachable: No broker answers.
        ConfigError: A topic exists with settings that do not work; names the topic and Kafka's setting.
    """
    servers = bootstrap_servers(settings)
    try:
        admin = KafkaAdminClient(**admin_config(settings))
    except KafkaConfigurationError as error:
        raise ConfigError("settings", "kafka.extra", str(error)) from None
    except (KafkaError, OSError) as error:
        raise KafkaUnreachable(servers, reason_of(error)) from None
    try:
        for topic, partitions in _wanted(settings):
            _create(admin, topic, partitions, settings)
            _verify(admin, topic, partitions, settings)
    except KafkaError as error:
        raise KafkaUnreachable(servers, reason_of(error)) from None
    finally:
        admin.close()


def _wanted(settings: Settings) -> list[tuple[str, int]]:
    kafka = settings.kafka
    return [(kafka.broker_events_topic, kafka.partitions), (kafka.dead_letter_topic, _DEAD_LETTER_PARTITIONS)]


def topic_configs(settings: Settings) -> dict[str, str]:
    """Kafka's settings of both topics, as Kafka names them."""
    kafka = settings.kafka
    durable = {_MIN_INSYNC: "2"} if kafka.replication_factor >= _REPLICAS_FOR_TWO_IN_SYNC else {}
    return durable | {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(kafka.retention_ms),
        "max.message.bytes": str(kafka.max_message_bytes),
    }


def _create(admin: KafkaAdminClient, topic: str, partitions: int, settings: Settings) -> None:
    wanted = {
        "num_partitions": partitions,
        "replication_factor": settings.kafka.replication_factor,
        "configs": topic_configs(settings),
    }
    try:
        admin.create_topics({topic: wanted}, timeout_ms=_CREATE_TIMEOUT_MS, wait_for_metadata=True)
    except TopicAlreadyExistsError:
        return


def _verify(admin: KafkaAdminClient, topic: str, partitions: int, settings: Settings) -> None:
    described = admin.describe_topics([topic])[0]
    found = len(described["partitions"])
    if found != partitions:
        raise ConfigError(f"Kafka topic {topic}", "partitions", f"are {found}, kafka.partitions says {partitions}")
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    actual = {name: str(config["value"]) for name, config in configs.items()}
    for name, reason in topic_faults(actual, settings):
        raise ConfigError(f"Kafka topic {topic}", name, reason)
    replicas = min((len(p["replica_nodes"]) for p in described["partitions"]), default=0)
    for name, reason in topic_doubts(actual, replicas):
        _LOG.warning("topic may lose acknowledged records topic=%s setting=%s: %s", topic, name, reason)


def topic_doubts(actual: Mapping[str, str], replicas: int) -> list[tuple[str, str]]:
    """What works, and may lose records that Kafka has acknowledged.

    Args:
        actual: Kafka's name → value of all settings of the topic.
        replicas: Fewest replicas that a partition has.

    Returns:
        (Kafka's name, what it is and should be).
    """
    if replicas < _REPLICAS_FOR_TWO_IN_SYNC or int(actual.get(_MIN_INSYNC, "1")) >= 2:
        return []
    return [(_MIN_INSYNC, f"is {actual.get(_MIN_INSYNC, '1')}, should be 2 with {replicas} replicas")]


def topic_faults(actual: Mapping[str, str], settings: Settings) -> list[tuple[str, str]]:
    """What is wrong with a topic's settings.

    Args:
        actual: Kafka's name → value, for at least the names in :func:`topic_configs`.
        settings: Ours.

    Returns:
        (Kafka's name, what it is and should be), in a fixed order; empty if all is well.
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
        faults.append(
            (
                "max.message.bytes",
                f"is {actual['max.message.bytes']}, must be at least {settings.kafka.max_message_bytes}",
            )
        )
    return faults
