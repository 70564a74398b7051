"""Faults of topics that the product has not created itself."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from kafka.errors import InvalidReplicationFactorError, KafkaError, PolicyViolationError, TopicAuthorizationFailedError

from namesrv_stream.errors import ConfigError, KafkaRefuses, KafkaUnreachable
from namesrv_stream.kafka import clients
from namesrv_stream.kafka.event_topics import ensure_topics, topic_configs, topic_doubts, topic_faults
from namesrv_stream.kafka.inspection import inspect_log
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.settings import Settings, load_settings, parse_set_flag

_DAY_MS = 86_400_000


def test_topic_created_by_the_product_has_no_faults() -> None:
    assert topic_faults(topic_configs(Settings()), Settings()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.timestamp.type", "CreateTime"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", str(7 * _DAY_MS - 1)),
        ("max.message.bytes", str((20 << 20) - 1)),
    ],
)
def test_a_fault_names_kafkas_setting_and_both_values(name: str, value: str) -> None:
    wanted = topic_configs(Settings())
    [(fault, reason)] = topic_faults({**wanted, name: value}, Settings())
    assert fault == name
    assert value in reason
    assert wanted[name] in reason


@pytest.mark.parametrize(
    ("name", "value"),
    [("retention.ms", "-1"), ("retention.ms", str(30 * _DAY_MS)), ("max.message.bytes", str(64 << 20))],
)
def test_values_above_the_required_ones_are_no_fault(name: str, value: str) -> None:
    assert topic_faults({**topic_configs(Settings()), name: value}, Settings()) == []


def test_an_option_that_kafka_python_does_not_know_is_named_without_its_value() -> None:
    flags = [parse_set_flag("kafka.extra.sasl_plain_pasword=Tr0ub4dor")]
    with pytest.raises(ConfigError, match="sasl_plain_pasword") as refusal:
        ensure_topics(load_settings(None, {}, flags).settings)
    assert "Tr0ub4dor" not in str(refusal.value)


@pytest.mark.parametrize(("factor", "in_sync"), [(1, None), (2, None), (3, "2"), (5, "2")])
def test_created_topic_with_three_replicas_needs_two_in_sync(factor: int, in_sync: str | None) -> None:
    settings = Settings()
    kafka = settings.kafka.model_copy(update={"replication_factor": factor})
    assert topic_configs(settings.model_copy(update={"kafka": kafka})).get("min.insync.replicas") == in_sync


@pytest.mark.parametrize(("replicas", "in_sync", "doubts"), [(1, "1", 0), (2, "1", 0), (3, "1", 1), (3, "2", 0)])
def test_three_replicas_of_which_one_acknowledges_are_doubtful(replicas: int, in_sync: str, doubts: int) -> None:
    assert len(topic_doubts({"min.insync.replicas": in_sync}, replicas)) == doubts


class _AdminWithoutCreate:
    """Kafka's admin client, for a user that may describe topics and not create them."""

    existing: frozenset[str] = frozenset()

    def __init__(self, **_: object) -> None:
        return

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        return [{"partitions": [{"replica_nodes": [1]}] if topic in self.existing else []} for topic in topics]

    def describe_configs(self, resources: list[Any], **_: object) -> dict[str, Any]:
        values = {name: {"value": value} for name, value in topic_configs(Settings()).items()}
        return {"topic": {resource.name: values for resource in resources}}

    def create_topics(self, topics: Mapping[str, object], **_: object) -> None:
        raise TopicAuthorizationFailedError(f"creation of {list(topics)}")

    def close(self) -> None:
        return


def test_existing_topics_are_used_without_the_right_to_create_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Settings().kafka
    monkeypatch.setattr(clients, "KafkaAdminClient", _AdminWithoutCreate)
    monkeypatch.setattr(_AdminWithoutCreate, "existing", {kafka.broker_events_topic, kafka.dead_letter_topic})
    ensure_topics(Settings())
    monkeypatch.setattr(_AdminWithoutCreate, "existing", {kafka.broker_events_topic})
    with pytest.raises(KafkaRefuses, match=r"does not permit a request .*dead-letters.*docs/production\.md") as refusal:
        ensure_topics(Settings())
    assert "does not answer" not in str(refusal.value)


class _AdminWithoutRights(_AdminWithoutCreate):
    """Kafka's admin client for a user without some rights. It answers as kafka-python does with Kafka 4.3.1."""

    lacks: str = "Describe"

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        if self.lacks == "Describe":
            return [{"error_code": 29, "partitions": [], "topic_id": None, "authorized_operations": None}]
        return [{"error_code": 0, "partitions": [{"replica_nodes": [1]}], "authorized_operations": ["READ", "WRITE"]}]

    def describe_configs(self, resources: list[Any], **_: object) -> dict[str, Any]:
        return {"topic": {resource.name: {} for resource in resources}}


@pytest.mark.parametrize("use", [ensure_topics, read_extent])
def test_topics_that_the_user_may_not_see_are_not_reported_as_missing(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[Settings], object]
) -> None:
    monkeypatch.setattr(clients, "KafkaAdminClient", _AdminWithoutRights)
    with pytest.raises(KafkaRefuses, match=r"does not permit a request .*Describe on topic namesrv\.broker-events\)"):
        use(Settings())


def test_settings_that_the_user_may_not_read_are_a_missing_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "KafkaAdminClient", _AdminWithoutRights)
    monkeypatch.setattr(_AdminWithoutRights, "lacks", "DescribeConfigs")
    with pytest.raises(KafkaRefuses, match=r"DescribeConfigs on topic namesrv\.broker-events\)"):
        ensure_topics(Settings())


class _AdminThatRefuses(_AdminWithoutCreate):
    """Kafka's admin client for a cluster of one broker that creates no topic."""

    refusal: KafkaError = InvalidReplicationFactorError("creation")

    def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [{"broker_id": 1}]}

    def create_topics(self, topics: Mapping[str, object], **_: object) -> None:
        raise self.refusal


def _with_replicas(factor: int) -> Settings:
    flags = [parse_set_flag("kafka.bootstrap_servers=k:9092"), parse_set_flag(f"kafka.replication_factor={factor}")]
    return load_settings(None, {}, flags).settings


@pytest.mark.parametrize(
    ("refusal", "named"),
    [
        (InvalidReplicationFactorError(), "kafka.replication_factor: is 3, but Kafka has 1 broker: lower it"),
        (PolicyViolationError("retention"), r"namesrv\.broker-events: creation: Kafka rejects it .*PolicyViolation.*"),
    ],
)
@pytest.mark.parametrize("use", [ensure_topics, inspect_log])
def test_a_start_and_doctor_name_settings_with_which_kafka_creates_no_topic(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[Settings], object], refusal: KafkaError, named: str
) -> None:
    monkeypatch.setattr(clients, "KafkaAdminClient", _AdminThatRefuses)
    monkeypatch.setattr(_AdminThatRefuses, "refusal", refusal)
    with pytest.raises(ConfigError, match=named):
        use(_with_replicas(3))


def test_enough_brokers_that_are_still_starting_are_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "KafkaAdminClient", _AdminThatRefuses)
    with pytest.raises(KafkaUnreachable):
        ensure_topics(_with_replicas(1))
