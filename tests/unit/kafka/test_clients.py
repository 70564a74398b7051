"""The settings of the Kafka clients are known to kafka-python."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError, KafkaTimeoutError, RequestTimedOutError, SaslAuthenticationFailedError
from kafka.future import Future

from namesrv_stream.errors import ConfigError, KafkaRefusesLogin, KafkaUnreachable
from namesrv_stream.kafka import admin_config, bootstrap_servers, consumer_config, producer_config, spark_options
from namesrv_stream.kafka.clients import unreachable
from namesrv_stream.processes import write_run_file
from namesrv_stream.settings import Settings, load_settings, parse_set_flag, to_toml
from namesrv_stream.settings.layers import Flag

_MIB = 1 << 20


def _settings(*flags: str) -> Settings:
    return load_settings(None, {}, [parse_set_flag(flag) for flag in flags]).settings


def test_every_name_is_one_that_kafka_python_knows() -> None:
    settings = _settings("kafka.extra.security_protocol=PLAINTEXT")
    assert set(admin_config(settings)) <= set(KafkaAdminClient.DEFAULT_CONFIG)
    assert set(producer_config(settings)) <= set(KafkaProducer.DEFAULT_CONFIG)
    assert set(consumer_config(settings)) <= set(KafkaConsumer.DEFAULT_CONFIG)


def test_a_timeout_gets_the_reason_of_the_latest_failed_connection_unless_it_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings, timeout = _settings(), KafkaTimeoutError("Unable to bootstrap from ['a:1']")
    log = logging.getLogger("kafka.net.manager")
    log.warning("Bootstrap connection to %s failed: %s", "a:1", SaslAuthenticationFailedError("wrong password"))
    log.warning("Bootstrap connection to %s failed: %s", "a:1", RequestTimedOutError("Request timed out after 9 ms"))
    log.warning("Bootstrap connection to %s failed: %s", "a:1", KafkaConnectionError("socket disconnected"))
    log.error("Bootstrap failed: %s", timeout)
    assert isinstance(unreachable(settings, timeout), KafkaRefusesLogin)
    assert "wrong password" in str(unreachable(settings, timeout))
    assert type(unreachable(settings, KafkaTimeoutError("Batch expired"))) is KafkaUnreachable
    later_s = time.monotonic() + settings.kafka.connect_timeout_ms / 1000 + 2
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert type(unreachable(settings, timeout)) is KafkaUnreachable


def test_clients_allow_records_as_large_as_the_topic_does() -> None:
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


PASSWORD = 'Tr0ub4dor"\\'


def settings_of(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "mine.toml"
    path.write_text(f"kafka.bootstrap_servers = 'k:9092'\n{text}")
    return load_settings(path, {}).settings


def with_files(tmp_path: Path, more: str = "") -> Settings:
    for name, content in (("ca", "CA"), ("cert", "CERT"), ("key", "KEY"), ("password", PASSWORD + "\n")):
        (tmp_path / name).write_text(content)
    return settings_of(
        tmp_path,
        f"""
[kafka.extra]
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_plain_username = "alice"
sasl_plain_password_file = "{tmp_path}/password"
ssl_cafile = "{tmp_path}/ca"
ssl_certfile = "{tmp_path}/cert"
ssl_keyfile = "{tmp_path}/key"
{more}""",
    )


@pytest.mark.parametrize("config_of", [admin_config, consumer_config, producer_config])
def test_every_client_gets_the_security_options(tmp_path: Path, config_of: object) -> None:
    config = config_of(with_files(tmp_path))  # type: ignore[operator]
    assert config["security_protocol"] == "SASL_SSL"
    assert config["sasl_plain_password"] == PASSWORD
    assert "sasl_plain_password_file" not in config


def test_client_of_spark_gets_the_same_options_with_java_names(tmp_path: Path) -> None:
    assert spark_options(with_files(tmp_path)) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="alice" password="Tr0ub4dor\\"\\\\";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "CA",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "CERT",
        "kafka.ssl.keystore.key": "KEY",
    }


def test_options_for_spark_have_priority(tmp_path: Path) -> None:
    more = 'ssl_check_hostname = false\n[streaming.extra]\n"kafka.security.protocol" = "SSL"\n"spark.x" = "y"\n'
    options = spark_options(with_files(tmp_path, more))
    assert options["kafka.security.protocol"] == "SSL"
    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert "spark.x" not in options


def test_without_security_there_are_no_options(tmp_path: Path) -> None:
    assert spark_options(settings_of(tmp_path, "")) == {}


def test_a_secret_in_a_file_is_in_no_text_of_the_settings(tmp_path: Path) -> None:
    settings = with_files(tmp_path)
    assert "Tr0ub4dor" not in f"{settings!r} {to_toml(settings)}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "[kafka.extra]\nsasl_plain_password_file = '/absent/password'\n")
    with pytest.raises(ConfigError, match=r"/absent/password: kafka\.extra\.sasl_plain_password_file: No such file"):
        producer_config(settings)


class Manager:
    """The parts of connection and metadata manager that the client of kafka-python uses."""

    def __init__(self) -> None:
        self.cluster = self
        self.delay_s = 0.0
        self.updates: list[Future] = []

    def connection_delay(self, _: int) -> float:
        return self.delay_s

    def request_update(self) -> Future:
        self.updates.append(Future())
        return self.updates[-1]


def client_of(manager: Manager) -> Any:
    flags = [Flag("test", "kafka.bootstrap_servers", "127.0.0.1:1")]
    config = producer_config(load_settings(environ={}, flags=flags).settings)
    return config["kafka_client"](net=object(), manager=manager)


@pytest.mark.parametrize(("delay_s", "expected_ms"), [(0, 20), (0.5, 500)])
def test_the_connection_delay_is_in_milliseconds(delay_s: float, expected_ms: float) -> None:
    manager = Manager()
    client = client_of(manager)
    manager.delay_s = delay_s
    assert client.connection_delay(0) == expected_ms


def test_metadata_is_requested_again_after_an_answer_or_a_failure() -> None:
    manager = Manager()
    client = client_of(manager)
    for has_failed in (False, True):
        asked = client.cluster.request_update()
        assert client.cluster.request_update() is asked is manager.updates[-1]
        if has_failed:
            asked.failure(OSError())
        else:
            asked.success(client.cluster)
    client.cluster.request_update()
    assert len(manager.updates) == 3
