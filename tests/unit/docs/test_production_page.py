"""The example of docs/production.md: settings that load, and topics, ports and access that agree with the code."""

import re
from pathlib import Path
from typing import Final

import pytest

from namesrv_stream.kafka.event_topics import topic_configs, topic_doubts, topic_faults
from namesrv_stream.settings import Settings, load_settings
from tests.support.kafka import REPOSITORY

_PAGE: Final = (REPOSITORY / "docs/production.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of ns-a: the file, and the environment."""
    (toml,) = _blocks("toml")
    (tmp_path / "namesrv.toml").write_text(toml, encoding="utf-8")
    environ = dict(line.split("=", 1) for line in _blocks("sh")[0].splitlines())
    loaded = load_settings(tmp_path / "namesrv.toml", environ)
    assert not loaded.warnings
    return loaded.settings


def test_example_is_a_server_of_an_installation_on_several_machines(settings: Settings) -> None:
    assert settings.server.server_id == "ns-a"
    assert settings.remoting.advertised_address == "10.20.0.5:9876"
    assert not settings.is_kafka_embedded
    assert settings.data.tables_dir == Path("/mnt/namesrv-tables")
    assert settings.http.console_servers == ("http://10.20.0.6:9880", "http://10.20.0.7:9880")


def test_topics_of_the_commands_are_those_that_the_product_creates(settings: Settings) -> None:
    (command,) = (block for block in _blocks("sh") if "kafka-topics" in block)
    options = dict(re.findall(r"--config (\S+)=(\S+)", command))
    assert options == topic_configs(settings)
    assert topic_faults(options, settings) == topic_doubts(options, settings.kafka.replication_factor) == []
    assert f"--replication-factor {settings.kafka.replication_factor}" in command
    assert f"--partitions {settings.kafka.partitions}" in command
    topics = [settings.kafka.broker_events_topic, settings.kafka.dead_letter_topic]
    assert re.findall(r"for topic in (.*); do", _PAGE) == [" ".join(topics)] * 2


def test_ports_are_the_defaults(settings: Settings) -> None:
    ports = dict(re.findall(r"^\| (\d+) \|.*\| `(\w+\.listen_port)` \|$", _PAGE, re.MULTILINE))
    assert ports == {
        str(section.listen_port): f"{name}.listen_port"
        for name, section in (("remoting", settings.remoting), ("http", settings.http))
    }
    assert (Settings().remoting.listen_port, Settings().http.listen_port) == (
        settings.remoting.listen_port,
        settings.http.listen_port,
    )
