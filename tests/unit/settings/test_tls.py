"""TLS settings under RocketMQ's names, under their own names, and in RocketMQ's ``tls.properties``."""

from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import Flag, load_settings, parse_set_flag, rocketmq_config, server_secrets, to_toml

PASSWORD = "Tr0ub4dor"


def conf(tmp_path: Path, text: str, name: str = "namesrv.properties") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def a_tls_file(tmp_path: Path, more: str = "") -> Path:
    """Write a TLS file like the one in RocketMQ's documentation."""
    return conf(
        tmp_path,
        f"""\
tls.test.mode.enable=false
tls.server.need.client.auth=require
tls.server.keyPath=/certs/server.key
tls.server.keyPassword={PASSWORD}
tls.server.certPath=/certs/server.pem
tls.server.trustCertPath=/certs/ca.pem
tls.client.keyPath=/certs/client.key
tls.client.certPath=/certs/client.pem
{more}""",
        "tls.properties",
    )


def test_names_of_java_are_accepted_in_its_configuration_file(tmp_path: Path) -> None:
    path = conf(
        tmp_path,
        f"tls.server.mode=enforcing\ntls.server.certPath=/c.pem\ntls.server.keyPath=/c.key\n"
        f"tls.server.keyPassword={PASSWORD}\ntls.server.need.client.auth=OPTIONAL\ntls.server.trustCertPath=/ca.pem\n",
    )
    tls = load_settings(path, {}).settings.tls
    assert (tls.mode, tls.cert_file, tls.key_file, tls.client_auth, tls.trust_file) == (
        ("enforcing", "/c.pem", "/c.key", "optional", "/ca.pem")
    )
    assert tls.key_password.get_secret_value() == PASSWORD


def test_the_tls_file_overrides_the_configuration_file_and_flags_override_both(tmp_path: Path) -> None:
    tls_file = a_tls_file(tmp_path)
    path = conf(tmp_path, f"tls.config.file={tls_file}\ntls.server.certPath=/other.pem\ntls.server.mode=enforcing\n")
    loaded = load_settings(path, {}, [parse_set_flag("tls.client_auth=none")])
    tls = loaded.settings.tls
    assert (tls.mode, tls.cert_file, tls.client_auth) == ("enforcing", "/certs/server.pem", "none")
    assert loaded.sources["tls.cert_file"] == f"{tls_file} (tls.server.certPath)"
    assert loaded.warnings == ()


def test_part_with_the_effective_settings_has_the_same_values(tmp_path: Path) -> None:
    flags = [parse_set_flag(f"tls.config_file={a_tls_file(tmp_path)}"), parse_set_flag("tls.client_auth=none")]
    settings = load_settings(None, {}, flags).settings
    effective = conf(tmp_path, to_toml(settings), "effective.toml")
    assert PASSWORD not in effective.read_text()
    assert load_settings(effective, server_secrets(settings)).settings == settings


def test_configuration_that_the_name_server_shows_contains_no_tls_settings(tmp_path: Path) -> None:
    settings = load_settings(None, {}, [parse_set_flag(f"tls.config_file={a_tls_file(tmp_path)}")]).settings
    assert not [key for key in rocketmq_config(settings) if "tls" in key]


@pytest.mark.parametrize(
    ("text", "is_tls"),
    [
        ("", False),
        ("tls.server.mode=enforcing\ntls.enable=false", False),
        ("tls.server.mode=enforcing", True),
        ("tls.enable=TRUE", True),
    ],
)
def test_calls_to_brokers_use_tls_as_java_does(tmp_path: Path, text: str, is_tls: bool) -> None:
    more = "tls.server.certPath=/c.pem\ntls.server.keyPath=/c.key\n"
    loaded = load_settings(conf(tmp_path, f"{text}\n{more}"), {})
    assert loaded.settings.tls.is_for_calls is is_tls
    assert loaded.warnings == ()


def test_the_files_for_javas_clients_are_used_for_calls(tmp_path: Path) -> None:
    more = "tls.client.authServer=true\ntls.client.trustCertPath=/certs/ca.pem"
    flags = [parse_set_flag(f"tls.config_file={a_tls_file(tmp_path, more)}")]
    loaded = load_settings(None, {}, flags)
    tls = loaded.settings.tls
    assert (tls.calls_cert_file, tls.calls_key_file) == ("/certs/client.pem", "/certs/client.key")
    assert tls.calls_trust_file == "/certs/ca.pem"
    assert [warning for warning in loaded.warnings if "tls.client." in warning] == []


@pytest.mark.parametrize("more", ["tls.client.authServer=true", "tls.client.keyPassword=" + PASSWORD])
def test_a_check_that_is_not_made_and_an_unused_password_cause_a_warning(tmp_path: Path, more: str) -> None:
    (warning,) = load_settings(conf(tmp_path, more), {}).warnings
    assert more.partition("=")[0] in warning
    assert PASSWORD not in warning


def test_settings_without_effect_give_a_warning(tmp_path: Path) -> None:
    tls_file = a_tls_file(tmp_path, "tls.test.mode.enable=true\ntls.server.authClient=false\ntls.serve.mode=x\n")
    flags = [parse_set_flag(f"tls.config_file={tls_file}"), parse_set_flag("tls.client_auth=none")]
    warnings = load_settings(None, {}, flags).warnings
    assert [warning.split(": ")[1] for warning in sorted(warnings)] == [
        "tls.serve.mode",
        "tls.server.authClient",
        "tls.test.mode.enable",
    ]


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("tls.server.mode=on", "tls.mode", "'disabled', 'permissive' or 'enforcing'"),
        ("tls.server.need.client.auth=yes", "tls.client_auth", "'none', 'optional' or 'require'"),
        ("tls.server.mode=enforcing", "tls.cert_file", "tls.mode=enforcing needs a certificate"),
        ("http.tls=true", "tls.cert_file", "http.tls=true needs a certificate"),
        ("tls.server.certPath=/c.pem", "tls.key_file", "is missing beside tls.cert_file"),
        ("tls.server.keyPath=/c.key", "tls.cert_file", "is missing beside tls.key_file"),
        ("tls.client.certPath=/c.pem", "advanced.tls.calls_key_file", "is missing beside advanced.tls.calls_cert_file"),
        ("tls.enable=perhaps", "advanced.tls.calls", "'auto', 'plain' or 'tls'"),
        ("tls.server.need.client.auth=require", "tls.trust_file", "needs trusted certificates"),
        ("advanced.tls.key_password=a\ntls.key_password_file=/f", "tls.key_password_file", "set only one of them"),
        ("tls.config.file=/absent/tls.properties", "tls.config_file", "/absent/tls.properties: No such file"),
        (
            "advanced.remoting.partial_frames_bytes=1000000",
            "advanced.remoting.partial_frames_bytes",
            "must have room for one frame",
        ),
    ],
)
def test_impossible_setting_names_its_key(tmp_path: Path, text: str, key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_settings(conf(tmp_path, text + "\n"), {})
    assert refusal.value.key == key
    assert reason in refusal.value.reason


def test_other_settings_in_the_tls_file_are_refused(tmp_path: Path) -> None:
    tls_file = a_tls_file(tmp_path, "listenPort=1\n")
    with pytest.raises(ConfigError, match="does not belong"):
        load_settings(None, {}, [parse_set_flag(f"tls.config_file={tls_file}")])


@pytest.mark.parametrize(
    "key",
    [
        "advanced.tls.key_password",
        "admin.accounts.ops",
        "kafka.extra.sasl_plain_password",
        "kafka.extra.ssl_password",
        "streaming.extra.spark.hadoop.fs.s3a.secret.key",
    ],
)
def test_a_secret_on_a_command_line_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="everybody can read a command line") as refusal:
        load_settings(None, {}, [Flag("--set", key, PASSWORD)])
    assert (refusal.value.source, refusal.value.key) == ("flag --set", key)
    assert PASSWORD not in str(refusal.value)


def test_the_password_is_in_no_text_of_the_settings() -> None:
    settings = load_settings(None, {"NAMESRV_STREAM__TLS__KEY_PASSWORD": PASSWORD}).settings
    assert settings.tls.key_password.get_secret_value() == PASSWORD
    texts = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()} {to_toml(settings)}"
    assert PASSWORD not in texts
    assert "# key_password is set, and not shown" in texts


@pytest.mark.parametrize("text", [f"tls = '{PASSWORD}'", f"[tls]\nkey_password = ['{PASSWORD}']"])
def test_a_password_in_the_wrong_shape_is_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_settings(conf(tmp_path, text, "mine.toml"), {})
    assert PASSWORD not in str(refusal.value)


@pytest.mark.parametrize(("mode", "warnings"), [("permissive", 1), ("enforcing", 0)])
def test_certificates_required_of_some_clients_only_give_a_warning(mode: str, warnings: int) -> None:
    flags = {"mode": mode, "client_auth": "require", "trust_file": "/ca", "cert_file": "/c", "key_file": "/k"}
    loaded = load_settings(None, {}, [parse_set_flag(f"tls.{key}={value}") for key, value in flags.items()])
    assert sum(warning.startswith("tls.client_auth: ") for warning in loaded.warnings) == warnings
