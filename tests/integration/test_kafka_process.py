"""The real embedded Kafka: formatting, use, kill and restart; and topics with wrong settings."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.kafka import admin_config, bootstrap_servers, consumer_config, ensure_topics, producer_config
from namesrv_stream.ports import choose_port
from namesrv_stream.processes import read_run_file
from namesrv_stream.settings import Settings
from tests.support.kafka import REPOSITORY, KafkaProcess, settings_for
from tests.support.processes import wait_until

pytestmark = pytest.mark.kafka

_DEADLINE_S = 60.0
_LOG_APPEND_TIME = 1  # kafka-python's timestamp_type


def _with_topics(settings: Settings, name: str, partitions: int = 1) -> Settings:
    """Return settings of the same Kafka with new topics."""
    kafka = settings.kafka.model_copy(
        update={"broker_events_topic": name, "dead_letter_topic": f"{name}.dead-letters", "partitions": partitions}
    )
    return settings.model_copy(update={"kafka": kafka})


def _publish(settings: Settings, values: list[bytes]) -> None:
    producer = KafkaProducer(**producer_config(settings))
    try:
        sent = [producer.send(settings.kafka.broker_events_topic, value, partition=0) for value in values]
        for future in sent:
            future.get(timeout=_DEADLINE_S)
    finally:
        producer.close(timeout=5)


def _read_all(settings: Settings, count: int) -> list[tuple[bytes, int]]:
    """Return the first ``count`` (value, timestamp type) of partition 0."""
    consumer = KafkaConsumer(**consumer_config(settings))
    try:
        partition = TopicPartition(settings.kafka.broker_events_topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found: list[tuple[bytes, int]] = []
        until = time.monotonic() + _DEADLINE_S
        while len(found) < count and time.monotonic() < until:
            for records in consumer.poll(timeout_ms=500).values():
                found += [(record.value, record.timestamp_type) for record in records]
        return found
    finally:
        consumer.close()


def test_events_are_stamped_by_kafka_and_survive_kill_and_restart(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    kafka = KafkaProcess(settings)
    try:
        kafka.wait_ready()
        large = b"x" * (16 << 20)  # as large as a full registration in the largest frame
        _publish(settings, [b"one", large])
        kafka.kill()
        kafka.restart()
        _publish(settings, [b"three"])
        found = _read_all(settings, 3)
        assert [value for value, _ in found] == [b"one", large, b"three"]
        assert {stamp for _, stamp in found} == {_LOG_APPEND_TIME}
        kafka.stop()
        kafka.restart()
        assert len(_read_all(settings, 3)) == 3
    finally:
        kafka.stop()


def test_started_process_is_kafka_itself_and_logs_that_it_listens(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    kafka = KafkaProcess(settings)
    try:
        kafka.wait_ready()
        wait_until(lambda: "Kafka Server started" in kafka.log_text(), _DEADLINE_S, "Kafka logs that it has started")
        assert f"progress: Kafka is going to listen at {bootstrap_servers(settings)}\n" in kafka.log_text()
        command = Path(f"/proc/{kafka.process.pid}/cmdline").read_bytes().split(b"\0")
        assert command[0].endswith(b"/java")
        assert b"kafka.Kafka" in command
    finally:
        kafka.stop()


def test_free_port_is_in_the_run_file_and_kept_for_the_next_start(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, embedded_kafka__listen_port=0)
    kafka = KafkaProcess(settings)
    run_file = settings.data.run_dir / "kafka.json"
    try:
        first = wait_until(lambda: read_run_file(run_file), _DEADLINE_S, "the run file")
        kafka.wait_ready()
        kafka.kill()
        kafka.restart()
        second = read_run_file(run_file)
        assert first is not None
        assert second is not None
        assert second["kafka"] == first["kafka"]
    finally:
        kafka.stop()


def test_topics_are_created_once_and_accepted_later(kafka_settings: Settings) -> None:
    settings = _with_topics(kafka_settings, "made-once", partitions=3)
    for _ in range(2):
        ensure_topics(settings)
    admin = KafkaAdminClient(**admin_config(settings))
    try:
        described = admin.describe_topics(["made-once", "made-once.dead-letters"])
        assert {topic["name"]: len(topic["partitions"]) for topic in described} == {
            "made-once": 3,
            "made-once.dead-letters": 1,
        }
    finally:
        admin.close()


@pytest.mark.parametrize(
    ("configs", "named"),
    [
        ({}, "message.timestamp.type"),
        ({"message.timestamp.type": "LogAppendTime", "retention.ms": "1000"}, "retention.ms"),
        ({"message.timestamp.type": "LogAppendTime", "max.message.bytes": "1000"}, "max.message.bytes"),
        ({"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}, "cleanup.policy"),
    ],
)
def test_a_topic_with_other_settings_is_refused_by_name(
    kafka_settings: Settings, configs: dict[str, str], named: str
) -> None:
    topic = f"foreign-{named}"
    _create(kafka_settings, topic, 1, configs)
    with pytest.raises(ConfigError) as refusal:
        ensure_topics(_with_topics(kafka_settings, topic))
    assert (refusal.value.exit_code, refusal.value.source, refusal.value.key) == (2, f"Kafka topic {topic}", named)


def test_a_topic_with_another_number_of_partitions_is_refused(kafka_settings: Settings) -> None:
    _create(kafka_settings, "two-partitions", 2, {"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(ConfigError) as refusal:
        ensure_topics(_with_topics(kafka_settings, "two-partitions"))
    assert refusal.value.key == "partitions"
    assert "kafka.partitions" in refusal.value.reason


def _create(settings: Settings, topic: str, partitions: int, configs: dict[str, str]) -> None:
    admin = KafkaAdminClient(**admin_config(settings))
    try:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
        admin.create_topics({topic: wanted}, wait_for_metadata=True)
    finally:
        admin.close()


def test_an_option_that_kafka_python_does_not_know_is_refused(kafka_settings: Settings) -> None:
    kafka = kafka_settings.kafka.model_copy(update={"extra": {"securty_protocol": "SSL"}})
    with pytest.raises(ConfigError) as refusal:
        ensure_topics(kafka_settings.model_copy(update={"kafka": kafka}))
    assert refusal.value.key == "kafka.extra"


def test_error_names_the_address_of_an_unreachable_kafka(tmp_path: Path) -> None:
    port = choose_port("127.0.0.1")
    settings = settings_for(tmp_path, kafka__bootstrap_servers=f"127.0.0.1:{port}", kafka__connect_timeout_ms=500)
    with pytest.raises(KafkaUnreachable) as missing:
        ensure_topics(settings)
    assert missing.value.exit_code == 3
    assert f"127.0.0.1:{port}" in str(missing.value)


def test_start_on_a_taken_port_ends_with_exit_code_2_and_one_line(kafka_settings: Settings, tmp_path: Path) -> None:
    port = kafka_settings.embedded_kafka.listen_port
    command = [sys.executable, "-m", "namesrv_stream", "kafka", "--data-dir", str(tmp_path)]
    command += ["--set", f"embedded_kafka.listen_port={port}"]
    outcome = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert outcome.stderr.splitlines()[-1].startswith("error: settings: embedded_kafka.listen_port:")
    assert str(port) in outcome.stderr
