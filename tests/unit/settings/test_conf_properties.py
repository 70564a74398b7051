"""A ``.properties`` file with RocketMQ's keys as configuration."""

from pathlib import Path
from typing import NamedTuple

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.processor.configuration import ROCKETMQ_DEFAULTS
from namesrv_stream.settings import LoadedSettings, Settings, load_settings, rocketmq_config
from namesrv_stream.settings.conf_file import COUNTERPARTS, WITHOUT_MEANING

_OPERATORS_FILE = """\
# namesrv.properties
rocketmqHome = /opt/rocketmq
listenPort=19876
bindAddress: 10.1.2.3
serverChannelMaxIdleTimeSeconds = 60
supportActingMaster true
deleteTopicWithBrokerRegistration=TRUE
waitSecondsForService=10
serverWorkerThreads=16
kvConfigPath=/opt/rocketmq/kvConfig.json
"""


class Mistake(NamedTuple):
    """An invalid line, and words that the error must contain."""

    line: str
    words: str


def _file(tmp_path: Path, text: str, name: str = "namesrv.properties") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="latin-1")
    return path


def _load(tmp_path: Path, text: str) -> LoadedSettings:
    return load_settings(_file(tmp_path, text), {})


def test_keys_of_rocketmq_become_settings(tmp_path: Path) -> None:
    settings = _load(tmp_path, _OPERATORS_FILE).settings
    remoting, name_server = settings.remoting, settings.name_server
    assert (remoting.listen_host, remoting.listen_port, remoting.idle_timeout_ms) == ("10.1.2.3", 19876, 60_000)
    assert (name_server.support_acting_master, name_server.wait_seconds_for_service) == (True, 10)
    assert settings.liveness.delete_topic_with_broker_registration is True


def test_everything_else_keeps_its_default(tmp_path: Path) -> None:
    assert _load(tmp_path, "listenPort=9876\n").settings == load_settings(None, {}).settings


def test_a_key_without_meaning_gives_one_warning_with_the_reason(tmp_path: Path) -> None:
    loaded = _load(tmp_path, _OPERATORS_FILE)
    path = tmp_path / "namesrv.properties"
    assert [warning.split(": has no effect here: ")[0] for warning in loaded.warnings] == [
        f"{path}: rocketmqHome",
        f"{path}: serverWorkerThreads",
        f"{path}: kvConfigPath",
    ]
    assert "kv import" in loaded.warnings[2]


def test_an_unknown_key_gives_a_warning_with_a_similar_key(tmp_path: Path) -> None:
    loaded = _load(tmp_path, "listenport=1\nremoting.listen_prot=1\nsomethingElseAltogether=1\n")
    texts = [warning.partition(".properties: ")[2] for warning in loaded.warnings]
    assert texts == [
        "listenport: unknown key, ignored; did you mean listenPort?",
        "remoting.listen_prot: unknown key, ignored; did you mean remoting.listen_port?",
        "somethingElseAltogether: unknown key, ignored",
    ]
    assert loaded.settings.remoting.listen_port == 9876


@pytest.mark.parametrize(
    "mistake",
    [
        Mistake("listenPort=98x76", "listenPort: expected a whole number, not '98x76'"),
        Mistake("listenPort=", "listenPort: expected a whole number, not ''"),
        Mistake("supportActingMaster=yes", "supportActingMaster: expected true or false, not 'yes'"),
        Mistake("listenPort=70000", "(listenPort): remoting.listen_port: must be at most 65535, not 70000"),
        Mistake(
            "serverChannelMaxIdleTimeSeconds=0", "(serverChannelMaxIdleTimeSeconds): advanced.remoting.idle_timeout_ms:"
        ),
        Mistake("http.nsaddr=10.0.0.1", "(http.nsaddr): http.nsaddr: '10.0.0.1' is not host:port"),
        Mistake("listenPort=\\u12", "properties: line 1:"),
    ],
)
def test_an_error_about_an_invalid_value_names_file_and_key(tmp_path: Path, mistake: Mistake) -> None:
    with pytest.raises(ConfigError) as refusal:
        _load(tmp_path, mistake.line)
    assert str(tmp_path / "namesrv.properties") in str(refusal.value)
    assert mistake.words in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_settings_may_stand_next_to_keys_of_rocketmq(tmp_path: Path) -> None:
    text = """
        kafka.bootstrap_servers=k1:9092,k2:9092
        http.nsaddr=10.0.0.1:9876;10.0.0.2:9876
        admin.trusted_networks=10.0.0.0/8
        admin.accounts.ops=0123
        streaming.extra.spark.ui.enabled=true
    """
    settings = _load(tmp_path, text).settings
    assert settings.kafka.bootstrap_servers == "k1:9092,k2:9092"
    assert settings.http.nsaddr == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert settings.admin.trusted_networks == ("10.0.0.0/8",)
    assert settings.admin.accounts["ops"].get_secret_value() == "0123"
    assert settings.streaming.extra == {"spark.ui.enabled": True}


def test_own_name_of_a_setting_has_priority_over_rocketmqs(tmp_path: Path) -> None:
    loaded = _load(tmp_path, "remoting.listen_port=1\nlistenPort=2\n")
    assert loaded.settings.remoting.listen_port == 1
    assert loaded.warnings == (
        f"{tmp_path / 'namesrv.properties'}: listenPort: ignored, since remoting.listen_port is given too",
    )


def test_later_layers_override_the_file(tmp_path: Path) -> None:
    conf = _file(tmp_path, "listenPort=2\n")
    settings = load_settings(conf, {"NAMESRV_STREAM__REMOTING__LISTEN_PORT": "3"}).settings
    assert settings.remoting.listen_port == 3


def test_the_source_of_a_value_is_file_and_key(tmp_path: Path) -> None:
    assert _load(tmp_path, "listenPort=2\n").sources == {
        "remoting.listen_port": f"{tmp_path / 'namesrv.properties'} (listenPort)"
    }


def test_a_conf_file_is_read_as_properties(tmp_path: Path) -> None:
    conf = _file(tmp_path, "listenPort=2\n", "namesrv.conf")
    assert load_settings(conf, {}).settings.remoting.listen_port == 2


def test_every_key_of_rocketmqs_name_server_is_either_mapped_or_explained() -> None:
    assert not COUNTERPARTS.keys() & WITHOUT_MEANING.keys()
    assert COUNTERPARTS.keys() | WITHOUT_MEANING.keys() >= ROCKETMQ_DEFAULTS.keys()
    assert all(WITHOUT_MEANING.values())


def test_effective_settings_are_shown_under_keys_of_rocketmq(tmp_path: Path) -> None:
    config = rocketmq_config(_load(tmp_path, _OPERATORS_FILE).settings)
    assert config.keys() == COUNTERPARTS.keys()
    assert config["listenPort"] == "19876"
    assert config["serverChannelMaxIdleTimeSeconds"] == "60"
    assert config["supportActingMaster"] == "true"


def test_settings_under_keys_of_rocketmq_are_read_back_unchanged(tmp_path: Path) -> None:
    defaults = Settings()
    text = "".join(f"{name}={value}\n" for name, value in rocketmq_config(defaults).items())
    settings = _load(tmp_path, text).settings
    assert settings == load_settings(None, {}).settings


def test_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    path.write_bytes(b"\xef\xbb\xbflistenPort=19876\r\nsupportActingMaster=true\r\n")
    loaded = load_settings(path, {})
    assert (loaded.settings.remoting.listen_port, loaded.warnings) == (19876, ())
    assert loaded.settings.name_server.support_acting_master is True
