"""One set of options for both of Kafka's clients, with secrets from files."""

from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.kafka import admin_config, consumer_config, producer_config, spark_options
from namesrv_stream.settings import Settings, load_settings, to_toml

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
def test_every_client_of_ours_has_them(tmp_path: Path, config_of: object) -> None:
    config = config_of(with_files(tmp_path))  # type: ignore[operator]
    assert config["security_protocol"] == "SASL_SSL"
    assert config["sasl_plain_password"] == PASSWORD
    assert "sasl_plain_password_file" not in config


def test_sparks_client_has_the_same_in_javas_words(tmp_path: Path) -> None:
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


def test_what_is_said_to_spark_itself_wins(tmp_path: Path) -> None:
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
