"""Settings of our Kafka clients, held against what kafka-python itself knows."""

from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from namesrv_stream.errors import ConfigError
from namesrv_stream.kafka import admin_config, bootstrap_servers, consumer_config, producer_config
from namesrv_stream.run_files import write_run_file
from namesrv_stream.settings import Settings, load_settings, parse_set_flag

_MIB = 1 << 20


def _settings(*flags: str) -> Settings:
    return load_settings(None, {}, [parse_set_flag(flag) for flag in flags]).settings


def test_every_name_is_one_that_kafka_python_knows() -> None:
    settings = _settings("kafka.extra.security_protocol=PLAINTEXT")
    assert set(admin_config(settings)) <= set(KafkaAdminClient.DEFAULT_CONFIG)
    assert set(producer_config(settings)) <= set(KafkaProducer.DEFAULT_CONFIG)
    assert set(consumer_config(settings)) <= set(KafkaConsumer.DEFAULT_CONFIG)


def test_a_record_may_be_as_large_as_the_topic_allows() -> None:
    settings = _settings(f"advanced.kafka.max_message_bytes={32 * _MIB}")
    assert producer_config(settings)["max_request_size"] > 32 * _MIB
    assert consumer_config(settings)["max_partition_fetch_bytes"] > 32 * _MIB


def test_events_are_acknowledged_by_all_replicas_once() -> None:
    config = producer_config(_settings())
    assert (config["acks"], config["enable_idempotence"]) == ("all", True)


def test_extra_options_reach_the_clients_that_know_them() -> None:
    settings = _settings("kafka.extra.linger_ms=5", "kafka.extra.fetch_max_wait_ms=7", "kafka.extra.client_id=mine")
    producer, consumer, admin = producer_config(settings), consumer_config(settings), admin_config(settings)
    assert (producer["linger_ms"], consumer["fetch_max_wait_ms"]) == (5, 7)
    assert {config["client_id"] for config in (producer, consumer, admin)} == {"mine"}
    assert "linger_ms" not in consumer
    assert "linger_ms" not in admin
    assert "fetch_max_wait_ms" not in producer


@pytest.mark.parametrize(
    ("flags", "servers"),
    [
        ([], "127.0.0.1:9092"),
        (["embedded_kafka.listen_port=19092"], "127.0.0.1:19092"),
        (["advanced.embedded_kafka.listen_host=0.0.0.0"], "127.0.0.1:9092"),
        (["advanced.embedded_kafka.listen_host=192.0.2.1"], "192.0.2.1:9092"),
        (["kafka.bootstrap_servers=a:1,b:2"], "a:1,b:2"),
    ],
)
def test_bootstrap_servers_are_the_configured_or_the_embedded(flags: list[str], servers: str) -> None:
    assert bootstrap_servers(_settings(*flags)) == servers


def test_an_embedded_kafka_on_any_port_is_found_by_its_run_file(tmp_path: Path) -> None:
    settings = _settings(f"data.dir={tmp_path}", "embedded_kafka.listen_port=0")
    with pytest.raises(ConfigError) as refusal:
        bootstrap_servers(settings)
    assert refusal.value.key == "embedded_kafka.listen_port"
    write_run_file(settings.data.run_dir / "kafka.json", {"kafka": "127.0.0.1:23456"})
    assert bootstrap_servers(settings) == "127.0.0.1:23456"
