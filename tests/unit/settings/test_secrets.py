"""Secrets are passed only to the processes that need them, and never shown."""

import os
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import (
    load_settings,
    parse_set_flag,
    passed_through_secrets,
    read_accounts,
    server_secrets,
    to_toml,
)
from namesrv_stream.settings.secrets import is_secret

_SECRET = "Tr0ub4dor"
_TOML = f"""
[admin.accounts]
RocketMQ_Ops = "{_SECRET}-1"
"with.dot__and" = "{_SECRET}-2"
[kafka.extra]
sasl_plain_username = "alice"
sasl_plain_password = "{_SECRET}-3"
[streaming.extra]
"spark.hadoop.fs.s3a.secret.key" = "{_SECRET}-4"
"spark.ui.enabled" = false
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(_TOML, encoding="utf-8")
    return path


def _accounts_file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "accounts"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_printed_settings_contain_no_secret(conf: Path) -> None:
    loaded = load_settings(conf, {})
    for text in (to_toml(loaded.settings), to_toml(loaded.settings, loaded.sources)):
        assert _SECRET not in text
        assert "# RocketMQ_Ops is set, and not shown" in text
        assert "# sasl_plain_password is set, and not shown" in text
        assert 'sasl_plain_username = "alice"' in text
        assert '"spark.ui.enabled" = false' in text


def test_printed_settings_are_read_back_without_secrets_and_not_with_a_mask(conf: Path, tmp_path: Path) -> None:
    printed = tmp_path / "printed.toml"
    printed.write_text(to_toml(load_settings(conf, {}).settings))
    assert load_settings(printed, {}).settings.admin.accounts == {}


def test_settings_show_no_account_when_printed_by_mistake(conf: Path) -> None:
    settings = load_settings(conf, {}).settings
    assert f"{_SECRET}-1" not in f"{settings!r} {settings} {settings.model_dump_json()}"
    assert _SECRET not in repr(read_accounts(settings.admin))


def test_a_child_reads_all_secrets_from_its_environment(conf: Path, tmp_path: Path) -> None:
    settings = load_settings(conf, {}).settings
    effective = tmp_path / "effective.toml"
    effective.write_text(to_toml(settings))
    environ = passed_through_secrets(settings) | server_secrets(settings)
    assert load_settings(effective, environ).settings == settings


def test_a_password_of_digits_stays_a_text_on_its_way_to_a_child(tmp_path: Path) -> None:
    conf = tmp_path / "mine.toml"
    conf.write_text('[kafka.extra]\nssl_password = "0123"\n')
    settings = load_settings(conf, {}).settings
    assert load_settings(None, passed_through_secrets(settings)).settings.kafka.extra == {"ssl_password": "0123"}


def test_secrets_of_accounts_are_passed_only_to_the_server(conf: Path) -> None:
    settings = load_settings(conf, {}).settings
    assert set(server_secrets(settings).values()) == {f"{_SECRET}-1", f"{_SECRET}-2"}
    assert not set(server_secrets(settings)) & set(passed_through_secrets(settings))


def test_an_account_in_the_environment_keeps_its_case_and_its_digits() -> None:
    settings = load_settings(None, {"NAMESRV_STREAM__ADMIN__ACCOUNTS__RocketMQ__2": "12345678"}).settings
    assert read_accounts(settings.admin).secrets == {"RocketMQ__2": "12345678"}


@pytest.mark.parametrize(
    "text",
    [
        f"[admin]\naccounts = '{_SECRET}'",
        f"admin = '{_SECRET}'",
        f"[admin.accounts]\nops = ['{_SECRET}']",
        f"[admin.accounts]\n'a key' = '{_SECRET}'",
        f"[admin.accounts.ops]\nsecret = ['{_SECRET}']",
        f"[kafka]\nextra = '{_SECRET}'",
        f"kafka = '{_SECRET}'",
        f"[kafka.extra]\nsasl_plain_password = ['{_SECRET}']",
        f"[admin]\naccount = '{_SECRET}'",
    ],
)
def test_an_error_about_a_secret_does_not_show_it(tmp_path: Path, text: str) -> None:
    conf = tmp_path / "mine.toml"
    conf.write_text(text)
    with pytest.raises(ConfigError) as refusal:
        load_settings(conf, {})
    assert _SECRET not in str(refusal.value)
    assert str(conf) in str(refusal.value)


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"admin\.accounts\.ops"):
        load_settings(None, {"NAMESRV_STREAM__ADMIN__ACCOUNTS__ops": ""})


def test_a_file_of_accounts_has_one_account_per_line(tmp_path: Path) -> None:
    path = _accounts_file(tmp_path, f"# operators\n\n ops = {_SECRET}=x \nother={_SECRET}\n")
    environ = {"NAMESRV_STREAM__ADMIN__ACCOUNTS__other": "mine"}
    accounts = read_accounts(
        load_settings(None, environ, [parse_set_flag(f"admin.accounts_file={path}")]).settings.admin
    )
    assert accounts.secrets == {"ops": f"{_SECRET}=x", "other": "mine"}
    assert accounts.warnings == ()


def test_a_file_of_accounts_that_others_can_open_causes_a_warning(tmp_path: Path) -> None:
    path = _accounts_file(tmp_path, f"ops={_SECRET}\n", 0o644)
    admin = load_settings(None, {}, [parse_set_flag(f"admin.accounts_file={path}")]).settings.admin
    assert str(path) in "".join(read_accounts(admin).warnings)


@pytest.mark.parametrize("line", [_SECRET, f"={_SECRET}", f"a b={_SECRET}", f"{_SECRET}="])
def test_invalid_account_line_is_named_by_number_only(tmp_path: Path, line: str) -> None:
    path = _accounts_file(tmp_path, f"# head\n{line}\n")
    admin = load_settings(None, {}, [parse_set_flag(f"admin.accounts_file={path}")]).settings.admin
    with pytest.raises(ConfigError) as refusal:
        read_accounts(admin)
    assert (refusal.value.source, refusal.value.key, refusal.value.exit_code) == (str(path), "admin.accounts_file", 2)
    assert "line 2" in refusal.value.reason
    assert _SECRET not in str(refusal.value)


def test_a_missing_file_of_accounts_is_named(tmp_path: Path) -> None:
    admin = load_settings(None, {}, [parse_set_flag(f"admin.accounts_file={tmp_path / 'absent'}")]).settings.admin
    with pytest.raises(ConfigError, match="absent"):
        read_accounts(admin)


def test_a_relative_path_of_the_accounts_file_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    admin = load_settings(None, {}, [parse_set_flag("admin.accounts_file=accounts")]).settings.admin
    monkeypatch.chdir(os.sep)
    assert admin.accounts_file == str(tmp_path / "accounts")


@pytest.mark.parametrize(
    "option",
    [
        f'sasl_plain_pasword = "{_SECRET}"',
        f'ssl_pwd = "{_SECRET}"',
        f'sasl_jaas_config = "{_SECRET}"',
        f'"spark.hadoop.fs.azure.sas.container" = "{_SECRET}"',
        f'proxy_url = "socks5://alice:{_SECRET}@10.0.0.1:1080"',
    ],
)
def test_a_secret_under_a_less_usual_name_is_not_shown_and_reaches_a_child(tmp_path: Path, option: str) -> None:
    conf = tmp_path / "mine.toml"
    conf.write_text(f"[kafka.extra]\n{option}\n")
    settings = load_settings(conf, {}).settings
    assert _SECRET not in to_toml(settings)
    assert load_settings(None, passed_through_secrets(settings)).settings.kafka.extra == settings.kafka.extra


def test_settings_of_the_product_are_always_passed_on(tmp_path: Path) -> None:
    effective = tmp_path / "effective.toml"
    settings = load_settings(None, {}, [parse_set_flag("data.tables=/mnt/a://b:c@d")]).settings
    effective.write_text(to_toml(settings))
    assert load_settings(effective, {}).settings == settings


def test_an_error_about_a_malformed_flag_contains_only_its_key() -> None:
    with pytest.raises(ConfigError, match=r"--set: admin\.accounts\.ops: expected") as refusal:
        parse_set_flag(f"admin.accounts.ops:{_SECRET}")
    assert _SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.ssl.keystore.key", "x"),
        ("spark.hadoop.fs.s3a.encryption.key", "x"),
        ("AWS_SSE_CUSTOMER_KEY_BASE64", "x"),
        ("ssl_something", "-----BEGIN PRIVATE KEY-----\nMII"),
        ("ssl_something", "-----BEGIN EC PRIVATE KEY-----\nMII"),
    ],
)
def test_a_private_key_is_a_secret(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    "name",
    [
        *("ssl_keyfile", "ssl_certfile", "key.serializer", "max_poll_records"),
        *("sasl_plain_password_file", "AWS_ACCESS_KEY_ID_FILE", "AWS_SECRET_ACCESS_KEY_FILE"),
    ],
)
def test_the_path_of_a_key_is_no_secret(name: str) -> None:
    assert not is_secret(name, "/etc/kafka/client.key")
