"""Changes of settings at run time, and their errors."""

import re
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.route.liveness_settings import FoldSettings, SettingValue
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import Configuration
from namesrv_stream.tools.operate.fold_settings import (
    check_change,
    configured_texts,
    default_texts,
    running_texts,
    setting_key,
)
from namesrv_stream.tools.operate.operator_events import check_operator


def _checked(key: str, text: str, **running: str) -> tuple[str, SettingValue]:
    return check_change(Configuration(), default_texts() | running, key, text)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("liveness.default_timeout_ms", "60000", 60_000),
        ("default_timeout_ms", "60000", 60_000),
        ("liveness.delete_topic_with_broker_registration", "true", True),
        ("registration_retention_ms", "3600000", 3_600_000),
        ("guard_off_clusters", "c1;c2", ("c1", "c2")),
    ],
)
def test_a_value_is_parsed_with_the_type_of_its_setting(key: str, text: str, value: SettingValue) -> None:
    assert _checked(key, text) == (key.rpartition(".")[2], value)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("liveness.default_timeout_ms", "soon", "'soon' is not a duration"),
        ("liveness.default_timeout_ms", "0", "greater than 0"),
        ("liveness.default_timeout_ms", "4000000", "must lie between"),
        ("advanced.liveness.max_gap_ms", "600", "at least two ticks"),
        ("liveness.default_timout_ms", "5", "did you mean liveness.default_timeout_ms?"),
        ("advanced.liveness.tick_interval_ms", "5", "does not change at run time"),
        ("remoting.listen_port", "9876", "does not change at run time"),
        ("remoting.listen_port", "x", "does not change at run time"),
        (
            "advanced.liveness.min_timeout_ms",
            "130000",
            "130000 conflicts with liveness.default_timeout_ms, which must lie",
        ),
        ("nonsense", "1", "there is no such setting; these can change at run time: liveness.default_timeout_ms"),
        ("default_timout", "1", "there is no such setting; did you mean liveness.default_timeout_ms?"),
        ("listen_prot", "1", "there is no such setting; did you mean"),
        ("listen_port", "1", "does not change at run time"),
        ("registration_retention_ms", "x", "'x' is not a duration"),
        ("registration_retention_ms", "0", "is not between"),
    ],
)
def test_the_error_about_an_invalid_value_names_the_setting(key: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        _checked(key, text)
    assert caught.value.key.endswith(key.rpartition(".")[2])


def test_error_in_the_file_names_the_file(tmp_path: Path) -> None:
    conf = tmp_path / "mine.toml"
    conf.write_text("[remoting]\nlisten_port = 'x'\n")
    with pytest.raises(ConfigError, match=re.escape("mine.toml: remoting.listen_port")):
        check_change(Configuration(conf), default_texts(), "liveness.default_timeout_ms", "60000")


def test_value_is_checked_against_the_settings_in_force() -> None:
    with pytest.raises(ConfigError, match="must lie between"):
        _checked("default_timeout_ms", "60000", min_timeout_ms="70000")
    assert _checked("default_timeout_ms", "7200000", max_timeout_ms="7200000")[1] == 7_200_000


def test_setting_in_force_is_the_logged_value_or_the_default() -> None:
    table = RouteTable()
    table.replace_settings(1, {("effective", "default_timeout_ms"): "5000", ("config", "max_gap_ms"): "9"})
    assert running_texts(table, 0) == default_texts()
    assert running_texts(table, 1) == default_texts() | {"default_timeout_ms": "5000"}


def test_every_setting_of_the_fold_has_a_text_and_a_key() -> None:
    assert default_texts().keys() >= configured_texts(Settings()).keys()
    assert setting_key("x") == "liveness.x"
    assert default_texts()["default_timeout_ms"] == str(FoldSettings().default_timeout_ms)


@pytest.mark.parametrize("by", ["", "  ", "config", "x" * 201, "a\nb"])
def test_operator_of_a_change_has_a_name(by: str) -> None:
    with pytest.raises(ConfigError, match="--by"):
        check_operator(by)
    assert check_operator(" ada@host ") == "ada@host"
