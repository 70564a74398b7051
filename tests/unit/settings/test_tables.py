"""`data.tables`: a folder or a place in an object store."""

from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import Settings, load_settings, parse_set_flag, passed_through_secrets, to_toml
from namesrv_stream.tables.storage import tables_of

_SECRET = "Tr0ub4dor"


def _settings(tmp_path: Path, text: str) -> Settings:
    conf = tmp_path / "mine.toml"
    conf.write_text(f"[data]\ndir = '{tmp_path}'\n{text}")
    return load_settings(conf, {}).settings


def _in_store(tmp_path: Path) -> Settings:
    return _settings(tmp_path, f"tables = 's3://bucket/fleet'\n[data.extra]\naws_secret_access_key = '{_SECRET}'\n")


def test_tables_are_in_a_folder_of_the_data_directory_by_default(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "")
    assert settings.data.tables_dir == settings.data.lock_dir == tmp_path / "tables"
    assert str(tables_of(settings)) == str(settings.data.tables_dir)
    assert settings.has_history
    assert settings.poll_interval_ms == 100


def test_an_object_store_is_polled_at_its_own_interval(tmp_path: Path) -> None:
    settings = _in_store(tmp_path)
    assert str(tables_of(settings)) == "s3://bucket/fleet"
    assert settings.poll_interval_ms == settings.snapshot.object_store_poll_interval_ms
    assert settings.has_history
    assert settings.data.lock_dir == tmp_path


def test_invalid_place_is_refused_with_key_and_layer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        _settings(tmp_path, "tables = 'gs://bucket/fleet'")
    assert (refusal.value.key, refusal.value.source) == ("data.tables", str(tmp_path / "mine.toml"))


def test_secrets_are_passed_to_the_parts_and_never_printed(tmp_path: Path) -> None:
    settings = _in_store(tmp_path)
    assert _SECRET not in to_toml(settings)
    effective = tmp_path / "effective.toml"
    effective.write_text(to_toml(settings))
    assert load_settings(effective, passed_through_secrets(settings)).settings == settings


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "aws_session_token", "AWS_ACCESS_KEY_ID"])
def test_secrets_are_refused_on_a_command_line(name: str) -> None:
    with pytest.raises(ConfigError, match="everybody can read") as refusal:
        load_settings(environ={}, flags=[parse_set_flag(f"data.extra.{name}={_SECRET}")])
    assert _SECRET not in str(refusal.value)


def test_an_error_in_the_options_shows_none_of_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        _settings(tmp_path, f"extra = '{_SECRET}'")
    assert _SECRET not in str(refusal.value)


def test_a_command_that_needs_a_folder_refuses_an_object_store_with_a_remedy(tmp_path: Path) -> None:
    settings = _in_store(tmp_path)
    with pytest.raises(ConfigError, match=r"this needs a folder, not s3://bucket/fleet: copy them to one") as refusal:
        _ = settings.data.tables_dir
    assert refusal.value.key == "data.tables"
