"""The doctor with a real Kafka, and with an installation on which nothing runs."""

import json
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from namesrv_stream.kafka import admin_config
from namesrv_stream.settings import Settings
from tests.support.command_line import Finished, run_command
from tests.support.processes import free_port
from tests.support.spark import event_producer, own_settings

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


def _doctor(settings: Settings, *flags: str) -> Finished:
    own = {
        "kafka.bootstrap_servers": settings.kafka.bootstrap_servers,
        "kafka.broker_events_topic": settings.kafka.broker_events_topic,
        "kafka.dead_letter_topic": settings.kafka.dead_letter_topic,
        "remoting.listen_port": "0",
        "http.listen_port": "0",
    }
    sets = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
    return run_command("doctor", "--data-dir", str(settings.data.dir), *sets, *flags)


def _grades(finished: Finished, area: str) -> list[str]:
    return [f["grade"] for f in json.loads(finished.out) if f["area"].startswith(area)]


def test_topics_created_by_the_product_have_no_findings(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = own_settings(kafka_settings, tmp_path)
    with event_producer(settings) as producer:
        producer.send_value(b"{}")
    found = _doctor(settings, "--json")
    assert found.code == 0, found.out
    assert _grades(found, "topic") == ["ok", "ok"]
    assert _grades(found, "Kafka") == ["ok", "note"]  # "note", because no job runs, so little is known about its clock


def test_more_replicas_than_kafka_has_brokers_are_a_fault_before_the_topics_exist(
    kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path)
    kafka = settings.kafka.model_copy(update={"broker_events_topic": "missing", "dead_letter_topic": "missing-too"})
    missing = settings.model_copy(update={"kafka": kafka})
    could_be_created, refused = _doctor(missing), _doctor(missing, "--set", "kafka.replication_factor=3")
    assert "does not exist yet: the first process that starts creates it" in could_be_created.out
    assert refused.code == 1
    assert "kafka.replication_factor: is 3, but Kafka has 1 broker: lower it" in refused.out


def test_manually_created_topic_is_a_fault_with_a_remedy(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = own_settings(kafka_settings, tmp_path)
    topic = f"{settings.kafka.broker_events_topic}-by-hand"
    admin = KafkaAdminClient(**admin_config(settings))
    try:
        admin.create_topics(
            {topic: {"num_partitions": 3, "replication_factor": 1, "configs": {}}}, wait_for_metadata=True
        )
    finally:
        admin.close()
    kafka = settings.kafka.model_copy(update={"broker_events_topic": topic})
    found = _doctor(settings.model_copy(update={"kafka": kafka}))
    assert found.code == 1
    assert "has 3 partitions, the configuration says 1" in found.out
    assert "message.timestamp.type is CreateTime, must be LogAppendTime" in found.out
    assert "kafka-configs --alter" in found.out


def test_unreachable_kafka_is_a_fault_and_the_other_checks_run(tmp_path: Path) -> None:
    found = run_command(
        "doctor", "--json", "--data-dir", str(tmp_path), "--set", f"kafka.bootstrap_servers=127.0.0.1:{free_port()}",
        "--set", "kafka.connect_timeout_ms=500",
    )  # fmt: skip
    assert found.code == 1
    assert _grades(found, "Kafka") == ["fail"]
    assert _grades(found, "tables") == ["note"]


def test_invalid_configuration_is_reported_as_by_other_commands(tmp_path: Path) -> None:
    found = run_command("doctor", "--set", "kafka.bootstrap_server=x")
    assert found.code == 2
    assert "kafka.bootstrap_server" in found.err
