"""Settings: layers, errors that name file and key, and the documentation of the defaults."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import Flag, Settings, load_settings, parse_set_flag, to_json, to_toml
from namesrv_stream.settings.names import is_advanced

REPOSITORY = Path(__file__).resolve().parents[2]


def _conf(tmp_path: Path, text: str, name: str = "mine.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def _refused(conf: Path | None = None, environ: dict[str, str] | None = None, flag: str | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as refusal:
        load_settings(conf, environ or {}, [parse_set_flag(flag)] if flag else [])
    return refusal.value


def test_defaults_toml_documents_every_key_with_its_default() -> None:
    documented = tomllib.loads((REPOSITORY / "conf" / "defaults.toml").read_text(encoding="utf-8"))
    expected: dict[str, Any] = {}
    for section, table in Settings().model_dump(mode="json").items():
        for key, value in table.items():
            tables = expected.setdefault("advanced", {}) if is_advanced((section, key)) else expected
            tables.setdefault(section, {})[key] = value
    assert documented == expected


def test_each_layer_wins_over_the_one_before(tmp_path: Path) -> None:
    conf = _conf(tmp_path, "[kafka]\npartitions = 2\n[http]\nlisten_port = 1\n[snapshot]\npoll_interval_ms = 7\n")
    environ = {"NAMESRV_STREAM__KAFKA__PARTITIONS": "3", "NAMESRV_STREAM__HTTP__LISTEN_PORT": "2"}
    settings = load_settings(conf, environ, [Flag("--http-port", "http.listen_port", "3")]).settings
    assert (settings.http.listen_port, settings.kafka.partitions, settings.snapshot.poll_interval_ms) == (3, 3, 7)
    assert settings.remoting.listen_port == 9876


def test_sources_name_the_origin_of_each_value(tmp_path: Path) -> None:
    conf = _conf(tmp_path, "[kafka]\npartitions = 2\n")
    sources = load_settings(
        conf, {"NAMESRV_STREAM__LOGS__LEVEL": "DEBUG"}, [parse_set_flag("http.listen_port=0")]
    ).sources
    assert sources == {
        "kafka.partitions": str(conf),
        "logs.level": "environment variable NAMESRV_STREAM__LOGS__LEVEL",
        "http.listen_port": "flag --set",
    }


def test_unknown_key_in_a_file_names_file_and_key_and_the_likely_one(tmp_path: Path) -> None:
    conf = _conf(tmp_path, "[kafka]\npartition = 2\n")
    error = _refused(conf)
    assert (error.source, error.key, error.exit_code) == (str(conf), "kafka.partition", 2)
    assert "kafka.partitions" in error.reason


def test_unknown_environment_variable_of_the_product_is_refused() -> None:
    error = _refused(environ={"NAMESRV_STREAM__KAFKA__PARTITION": "2"})
    assert (error.source, error.key) == ("environment variable NAMESRV_STREAM__KAFKA__PARTITION", "kafka.partition")


def test_unknown_section_is_refused() -> None:
    assert _refused(flag="kafak.partitions=2").key == "kafak"


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("remoting.listen_port=70000", "remoting.listen_port"),
        ("remoting.listen_port=x", "remoting.listen_port"),
        ("kafka.partitions=0", "kafka.partitions"),
        ("kafka.retention_ms=1000", "kafka.retention_ms"),
        ("advanced.kafka.max_message_bytes=1000", "advanced.kafka.max_message_bytes"),
        ("advanced.embedded_kafka.heap=lots", "advanced.embedded_kafka.heap"),
        ("logs.level=LOUD", "logs.level"),
        ("server.server_id=a b", "server.server_id"),
        ("server.server_id=job", "server.server_id"),
        ("server.server_id=direct", "server.server_id"),
        ("http.nsaddr=10.0.0.1:9876;10.0.0.2", "http.nsaddr"),
        ("http.nsaddr=10.0.0.1:99999", "http.nsaddr"),
        ("http.nsaddr=http://10.0.0.1:9876", "http.nsaddr"),
        ("remoting.advertised_address=10.0.0.1", "remoting.advertised_address"),
        ("remoting.advertised_address=a:1;b:1", "remoting.advertised_address"),
        ("remoting.advertised_address=0.0.0.0:9876", "remoting.advertised_address"),
        ("remoting.advertised_address=[::]:9876", "remoting.advertised_address"),
        ("remoting.advertised_address=:::9876", "remoting.advertised_address"),
        ("remoting.listen_host=", "remoting.listen_host"),
        ("remoting.listen_host=10.0.0.1:9876", "remoting.listen_host"),
        ("http.listen_host=[::1]:9880", "http.listen_host"),
        ("advanced.embedded_kafka.listen_host=[::1", "advanced.embedded_kafka.listen_host"),
        ("http.console_servers=ftp://a:1", "http.console_servers"),
        ("streaming.master=foo", "streaming.master"),
        ("streaming.master=local[0]", "streaming.master"),
        ("streaming.master=local-cluster", "streaming.master"),
        ("history.master=spark:7077", "history.master"),
        ("http.allowed_hosts=ns1.example.com:9880", "http.allowed_hosts"),
        ("http.allowed_hosts=*", "http.allowed_hosts"),
        ("http.allowed_hosts=ns*.example.com", "http.allowed_hosts"),
        ("admin.trusted_networks=10.0.0.0/33", "admin.trusted_networks"),
        ("admin.trusted_networks=10.0.0.1/8", "admin.trusted_networks"),
        ("admin.trusted_networks=everybody", "admin.trusted_networks"),
        ("admin.enable_config_update=perhaps", "admin.enable_config_update"),
        ("advanced.name_server.wait_seconds_for_service=-1", "advanced.name_server.wait_seconds_for_service"),
        ("advanced.name_server.kv_log_interval_ms=0", "advanced.name_server.kv_log_interval_ms"),
    ],
)
def test_bad_value_names_its_key(flag: str, key: str) -> None:
    error = _refused(flag=flag)
    assert (error.source, error.key) == ("flag --set", key)


def test_a_truth_value_is_not_a_number(tmp_path: Path) -> None:
    assert _refused(_conf(tmp_path, "[remoting]\nlisten_port = true\n")).key == "remoting.listen_port"


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("liveness.default_timeout_ms=500", "liveness.default_timeout_ms"),
        ("advanced.liveness.max_gap_ms=900", "advanced.liveness.max_gap_ms"),
        ("advanced.liveness.server_silent_ms=2000", "advanced.liveness.server_silent_ms"),
        ("advanced.server.hang_timeout_ms=2019", "advanced.server.hang_timeout_ms"),
        ("advanced.liveness.server_lost_ms=15000", "advanced.liveness.server_lost_ms"),
        ("advanced.kafka.dead_letter_topic=namesrv.broker-events", "advanced.kafka.dead_letter_topic"),
        ("kafka.replication_factor=3", "kafka.replication_factor"),
        ("http.listen_port=9876", "http.listen_port"),
        ("advanced.remoting.max_frame_bytes=33554432", "advanced.kafka.max_message_bytes"),
    ],
)
def test_values_that_cannot_work_together_are_refused(flag: str, key: str) -> None:
    assert _refused(flag=flag).key == key


@pytest.mark.parametrize("value", [0, 2_020])
def test_the_time_after_which_a_server_hangs_can_be_disabled_or_be_four_ticks(value: int) -> None:
    loaded = load_settings(None, {}, [parse_set_flag(f"advanced.server.hang_timeout_ms={value}")])
    assert loaded.settings.server.hang_timeout_ms == value


def test_dead_letter_topic_has_the_name_of_the_events_topic_unless_it_is_set() -> None:
    topic, dead_letters = (
        parse_set_flag(text) for text in ("kafka.broker_events_topic=x", "advanced.kafka.dead_letter_topic=y")
    )
    loaded = load_settings(None, {}, [topic])
    assert (loaded.settings.kafka.dead_letter_topic, loaded.warnings) == ("x.dead-letters", ())
    assert load_settings(None, {}, [topic, dead_letters]).settings.kafka.dead_letter_topic == "y"
    assert load_settings(None, {}).settings.kafka.dead_letter_topic == "namesrv.broker-events.dead-letters"


def test_invalid_events_topic_is_named_although_another_default_depends_on_it() -> None:
    assert _refused(flag="kafka.broker_events_topic=").key == "kafka.broker_events_topic"


def test_replicas_are_accepted_with_an_external_cluster() -> None:
    flags = [parse_set_flag("kafka.bootstrap_servers=a:1,b:1"), parse_set_flag("kafka.replication_factor=3")]
    assert load_settings(None, {}, flags).settings.is_kafka_embedded is False


@pytest.mark.parametrize(
    "text", ["10.0.0.0/8;fd00::/8", "10.0.0.0/8, fd00::/8", "10.0.0.0/8;;fd00::/8;", '["10.0.0.0/8", "fd00::/8"]']
)
def test_list_is_written_as_in_toml_or_as_separated_text(text: str) -> None:
    environ = {"NAMESRV_STREAM__ADMIN__TRUSTED_NETWORKS": text}
    assert load_settings(None, environ).settings.admin.trusted_networks == ("10.0.0.0/8", "fd00::/8")


def test_a_lone_address_is_a_network_of_one() -> None:
    flags = [parse_set_flag("admin.trusted_networks=10.0.0.5")]
    assert load_settings(None, {}, flags).settings.admin.trusted_networks == ("10.0.0.5/32",)


@pytest.mark.parametrize("text", ["", "[]"])
def test_an_empty_list_of_networks_trusts_no_address(text: str) -> None:
    environ = {"NAMESRV_STREAM__ADMIN__TRUSTED_NETWORKS": text}
    assert load_settings(None, environ).settings.admin.trusted_networks == ()


def test_a_bad_list_in_a_file_names_file_and_key(tmp_path: Path) -> None:
    conf = _conf(tmp_path, '[admin]\ntrusted_networks = ["10.0.0.0/8", "10.0.0.0/33"]\n')
    error = _refused(conf)
    assert (error.source, error.key) == (str(conf), "admin.trusted_networks")
    assert "'10.0.0.0/33' is not a network" in error.reason


def test_broken_toml_names_the_file(tmp_path: Path) -> None:
    conf = _conf(tmp_path, "[kafka\n")
    assert _refused(conf).source == str(conf)


def test_missing_file_is_named(tmp_path: Path) -> None:
    error = _refused(tmp_path / "absent.toml")
    assert (error.source, error.key) == (str(tmp_path / "absent.toml"), "--conf")


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[4, 2]", "local-cluster[2,1,1024]", "spark://a:1,b:1", "yarn", "k8s://a:1"]
)
def test_every_kind_of_spark_master_is_accepted(master: str) -> None:
    assert load_settings(None, {}, [parse_set_flag(f"streaming.master={master}")]).settings.streaming.master == master


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    assert _refused(_conf(tmp_path, "listenPort=9876\n", "mine.yaml")).key == "--conf"


def test_set_flag_needs_section_key_and_value() -> None:
    with pytest.raises(ConfigError):
        parse_set_flag("listen_port=1")


def test_extra_options_for_spark_and_kafka_keep_dots_case_and_type(tmp_path: Path) -> None:
    conf = _conf(tmp_path, '[streaming.extra]\nspark.ui.enabled = true\n"spark.x.maxY" = "5"\n')
    flags = [parse_set_flag("kafka.extra.request_timeout_ms=5000"), parse_set_flag("kafka.extra.client_id=5.x")]
    settings = load_settings(conf, {"NAMESRV_STREAM__STREAMING__EXTRA__spark__someName": "2.5"}, flags).settings
    assert settings.streaming.extra == {"spark.ui.enabled": True, "spark.x.maxY": "5", "spark.someName": 2.5}
    assert settings.kafka.extra == {"request_timeout_ms": 5000, "client_id": "5.x"}


def test_printed_settings_are_read_back_the_same(tmp_path: Path) -> None:
    flags = [
        parse_set_flag('data.dir=/tmp/a "quoted" \\ ünï 😀'),
        parse_set_flag("streaming.extra.spark.ui.enabled=true"),
        parse_set_flag("server.server_id=ns-1"),
        parse_set_flag("http.nsaddr=a:1;[fd00::1]:2"),
        parse_set_flag("admin.trusted_networks="),
    ]
    loaded = load_settings(None, {}, flags)
    for text in (to_toml(loaded.settings), to_toml(loaded.settings, loaded.sources)):
        assert load_settings(_conf(tmp_path, text), {}).settings == loaded.settings


def test_printed_settings_end_each_line_with_its_source() -> None:
    loaded = load_settings(None, {}, [parse_set_flag("kafka.partitions=2")])
    lines = to_toml(loaded.settings, loaded.sources).splitlines()
    assert "partitions = 2  # flag --set" in lines
    assert "listen_port = 9876  # default" in lines


def test_paths_are_absolute_after_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_STREAM_HOME", "/opt/checkout")
    settings = load_settings(None, {}, []).settings
    assert settings.data.tables_dir == tmp_path / "data" / "tables"
    assert settings.jars.spark_dir == Path("/opt/checkout/.jars/spark")


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().kafka.partitions = 2


@pytest.mark.parametrize("timeout_s", [5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300])
def test_ticks_do_not_coincide_with_usual_timeouts(timeout_s: int) -> None:
    # If a tick were a millisecond too early, the broker would expire only at the next tick (ADR 0042).
    liveness = Settings().liveness
    slack_ms = -timeout_s * 1000 % liveness.tick_interval_ms
    assert 20 <= slack_ms <= liveness.tick_interval_ms - 20


def test_a_renamed_key_works_by_its_old_name_in_every_layer_with_a_warning(tmp_path: Path) -> None:
    toml = _conf(tmp_path, "[remoting]\nexpress_lane = 'off'\n")
    properties = _conf(tmp_path, "remoting.express_lane=off\n", "mine.properties")
    environ = {"NAMESRV_STREAM__REMOTING__EXPRESS_LANE": "off"}
    flag = parse_set_flag("remoting.express_lane=off")
    for loaded, source in (
        (load_settings(toml, {}), str(toml)),
        (load_settings(properties, {}), f"{properties} (remoting.express_lane)"),
        (load_settings(None, environ), "environment variable NAMESRV_STREAM__REMOTING__EXPRESS_LANE"),
        (load_settings(None, {}, [flag]), "flag --set"),
    ):
        assert loaded.settings.remoting.native_lane == "off"
        assert loaded.sources == {"advanced.remoting.native_lane": source}
        renamed, advanced = loaded.warnings
        assert renamed.startswith(f"{source}: remoting.express_lane: is now advanced.remoting.native_lane; ")
        assert advanced.endswith(": advanced.remoting.native_lane")


def test_a_later_layer_wins_whether_it_uses_old_or_new_names(tmp_path: Path) -> None:
    old = "[remoting]\nnative_lane = 'on'\nexpress_answers_bytes = 1\n"
    conf = _conf(tmp_path, f"{old}[advanced.remoting]\nnative_lane_answers_bytes = 2\n")
    environ = {"NAMESRV_STREAM__REMOTING__EXPRESS_LANE": "off"}
    remoting = load_settings(conf, environ).settings.remoting
    assert (remoting.native_lane, remoting.native_lane_answers_bytes) == ("off", 2)
    flag = parse_set_flag("advanced.remoting.native_lane=on")
    assert load_settings(conf, environ, [flag]).settings.remoting.native_lane == "on"


def test_an_advanced_key_works_below_advanced_in_every_layer_with_one_warning(tmp_path: Path) -> None:
    key = "advanced.remoting.frame_timeout_ms"
    toml = _conf(tmp_path, "[advanced.remoting]\nframe_timeout_ms = 5\n")
    properties = _conf(tmp_path, f"{key}=5\n", "mine.properties")
    for loaded, source in (
        (load_settings(toml, {}), str(toml)),
        (load_settings(properties, {}), f"{properties} ({key})"),
        (
            load_settings(None, {"NAMESRV_STREAM__ADVANCED__REMOTING__FRAME_TIMEOUT_MS": "5"}),
            "environment variable NAMESRV_STREAM__ADVANCED__REMOTING__FRAME_TIMEOUT_MS",
        ),
        (load_settings(None, {}, [parse_set_flag(f"{key}=5")]), "flag --set"),
    ):
        assert loaded.settings.remoting.frame_timeout_ms == 5
        assert loaded.sources == {key: source}
        assert loaded.warnings == (f"advanced settings are not supported and may change in any release: {key}",)


def test_an_advanced_key_works_at_its_old_place_with_a_warning_that_names_the_new_one() -> None:
    renamed, advanced = load_settings(None, {}, [parse_set_flag("remoting.frame_timeout_ms=5")]).warnings
    assert renamed.startswith("flag --set: remoting.frame_timeout_ms: is now advanced.remoting.frame_timeout_ms; ")
    assert advanced.endswith(": advanced.remoting.frame_timeout_ms")


def test_one_warning_names_all_advanced_keys() -> None:
    flags = [parse_set_flag(f"advanced.{key}") for key in ("snapshot.poll_interval_ms=9", "http.max_requests=9")]
    (warning,) = load_settings(None, {}, flags).warnings
    assert warning.endswith(": advanced.http.max_requests, advanced.snapshot.poll_interval_ms")


def test_rocketmqs_name_of_an_advanced_key_is_supported(tmp_path: Path) -> None:
    loaded = load_settings(_conf(tmp_path, "serverChannelMaxIdleTimeSeconds=60\n", "namesrv.properties"), {})
    assert (loaded.settings.remoting.idle_timeout_ms, loaded.warnings) == (60_000, ())


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("advanced.kafka.partitions=2", "is not an advanced setting: write kafka.partitions"),
        ("advanced.remoting.frame_timeout=5", "unknown key; did you mean advanced.remoting.frame_timeout_ms?"),
        ("advanced.remoting=5", "unknown key"),
    ],
)
def test_only_advanced_keys_are_below_advanced(flag: str, reason: str) -> None:
    error = _refused(flag=flag)
    assert (error.key, error.reason) == (flag.partition("=")[0], reason)


def test_misspelt_advanced_key_is_reported_with_its_current_name() -> None:
    assert _refused(flag="remoting.frame_timeout=5").reason.endswith("did you mean advanced.remoting.frame_timeout_ms?")


def test_advanced_settings_are_printed_only_if_they_are_not_the_defaults() -> None:
    flags = [parse_set_flag("advanced.http.max_requests=9"), parse_set_flag("advanced.http.max_streams=256")]
    loaded = load_settings(None, {}, flags)
    assert to_toml(loaded.settings).endswith("\n[advanced.http]\nmax_requests = 9\n")
    shown = json.loads(to_json(loaded.settings, loaded.sources))
    assert {key: entry for key, entry in shown.items() if key.startswith("advanced.")} == {
        "advanced.http.max_requests": {"value": 9, "source": "flag --set"}
    }


@pytest.mark.parametrize("name", ["x.dead-letters", "namesrv.broker-events.dead-letters"])
def test_dead_letter_topic_is_printed_only_if_it_does_not_follow_the_events_topic(tmp_path: Path, name: str) -> None:
    flags = [parse_set_flag("kafka.broker_events_topic=x"), parse_set_flag(f"advanced.kafka.dead_letter_topic={name}")]
    settings = load_settings(None, {}, flags).settings
    printed = to_toml(settings)
    assert ("dead_letter_topic" in printed) == (name != "x.dead-letters")
    assert load_settings(_conf(tmp_path, printed), {}).settings == settings


def test_parts_do_not_repeat_warnings_of_up(tmp_path: Path) -> None:
    conf = _conf(tmp_path, "[advanced.http]\nmax_requests = 9\n", "effective.toml")
    assert load_settings(conf, {}).warnings == ()


def test_the_old_flag_of_the_remoting_port_works_with_a_warning() -> None:
    loaded = load_settings(None, {}, [Flag("--listen-port", "remoting.listen_port", "5")])
    assert loaded.settings.remoting.listen_port == 5
    assert loaded.warnings == ("flag --listen-port: is now --remoting-port; the next release removes the old name",)
