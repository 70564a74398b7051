"""Configuration of the embedded node."""

from pathlib import Path

from namesrv_stream.kafka.embedded_node import node_properties
from namesrv_stream.settings import Settings, load_settings, parse_set_flag


def _properties(settings: Settings, log_dir: Path = Path("/data/kafka/log")) -> dict[str, str]:
    lines = node_properties(settings, log_dir, 9092, 9093).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_clients_and_controller_are_reached_on_the_loopback_interface() -> None:
    properties = _properties(Settings())
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"


def test_a_wildcard_is_listened_on_but_not_advertised() -> None:
    flag = parse_set_flag("advanced.embedded_kafka.listen_host=0.0.0.0")
    properties = _properties(load_settings(None, {}, [flag]).settings)
    assert properties["listeners"].startswith("PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:")
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"


def test_an_ipv6_address_is_in_brackets() -> None:
    flag = parse_set_flag("advanced.embedded_kafka.listen_host=::1")
    properties = _properties(load_settings(None, {}, [flag]).settings)
    assert properties["listeners"].startswith("PLAINTEXT://[::1]:9092,CONTROLLER://127.0.0.1:")
    assert properties["advertised.listeners"] == "PLAINTEXT://[::1]:9092"


def test_every_size_limit_follows_the_largest_message() -> None:
    flag = parse_set_flag(f"advanced.kafka.max_message_bytes={64 << 20}")
    properties = _properties(load_settings(None, {}, [flag]).settings)
    for name in ("message.max.bytes", "replica.fetch.max.bytes", "replica.fetch.response.max.bytes"):
        assert int(properties[name]) == 64 << 20
    assert int(properties["socket.request.max.bytes"]) > 64 << 20


def test_backslashes_survive_the_properties_format() -> None:
    assert _properties(Settings(), Path("/a\\b"))["log.dirs"] == "/a\\\\b"
