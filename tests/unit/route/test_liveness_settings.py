"""Changes of settings, read from rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.route.liveness_settings import (
    FoldSettings,
    SettingChange,
    SettingValue,
    change_detail,
    read_detail,
    setting_changes,
    setting_text,
    setting_value,
    values_before,
)
from tests.support.builders import BEGIN_MS, Log


@given(
    st.text() | st.sampled_from(("ada, was bob", "ada, was 7", ", was ")),
    st.none() | st.sampled_from(("1", "true", "[]", '["c, was 2","c, was "]')),
)
def test_source_and_old_value_are_read_back(source: str, old: str | None) -> None:
    if old is None and read_detail(f"by {source}")[1] is not None:
        return  # such a row is read as one from before old values were stored; no source has such a name
    assert read_detail(change_detail(source, old)) == (source, old)


def test_a_change_has_its_old_value_from_the_fold() -> None:
    log = Log()
    log.change_settings(default_timeout_ms=60_000)
    log.change_settings(after_ms=1_000, source="bob", default_timeout_ms=90_000)
    assert setting_changes(log.output.changes) == [
        SettingChange(BEGIN_MS, "default_timeout_ms", "120000", "60000", "ada", {0: 0}),
        SettingChange(BEGIN_MS + 1_000, "default_timeout_ms", "60000", "90000", "bob", {0: 1}),
    ]


def test_a_change_logged_in_several_partitions_is_reported_once() -> None:
    rows = []
    for partition in (0, 1):
        log = Log(partition=partition, partitions=2, begin_ms=BEGIN_MS + partition)
        log.change_settings(default_timeout_ms=60_000)
        rows += log.output.changes
    (change,) = setting_changes(rows)
    assert (change.at_ms, change.partitions) == (BEGIN_MS, {0: 0, 1: 0})


def test_the_same_change_made_twice_is_reported_twice() -> None:
    log = Log()
    log.change_settings(default_timeout_ms=60_000)
    log.change_settings(default_timeout_ms=120_000)
    log.change_settings(default_timeout_ms=60_000)
    assert [c.new for c in setting_changes(log.output.changes)] == ["60000", "120000", "60000"]


def test_a_changed_value_of_the_configuration_is_reported_once() -> None:
    log = Log()
    log.change_settings(source="config", default_timeout_ms=60_000)
    assert [c.source for c in setting_changes(log.output.changes)] == ["config"]


@pytest.mark.parametrize(("offset", "expected"), [(0, "120000"), (1, "60000"), (2, "90000")])
def test_value_before_a_record_is_found(offset: int, expected: str) -> None:
    log = Log()
    log.change_settings(default_timeout_ms=60_000)
    log.change_settings(default_timeout_ms=90_000)
    assert values_before(log.output.changes, 0, offset) == {"default_timeout_ms": expected}
    assert values_before(log.output.changes, 1, offset) == {}


@pytest.mark.parametrize(
    ("asked_ms", "timeout_ms"), [(None, 50), (1, 10), (9, 10), (10, 10), (11, 11), (100, 100), (101, 100), (2**63, 100)]
)
def test_timeout_is_limited_by_minimum_and_maximum(asked_ms: int | None, timeout_ms: int) -> None:
    settings = FoldSettings(default_timeout_ms=50, min_timeout_ms=10, max_timeout_ms=100)

    assert settings.effective_timeout_ms(asked_ms) == timeout_ms


@pytest.mark.parametrize(("default_ms", "timeout_ms"), [(9, 10), (10, 10), (11, 11), (99, 99), (100, 100), (101, 100)])
def test_minimum_and_maximum_apply_to_the_default_too(default_ms: int, timeout_ms: int) -> None:
    settings = FoldSettings(default_timeout_ms=default_ms, min_timeout_ms=10, max_timeout_ms=100)

    assert settings.effective_timeout_ms(None) == timeout_ms


def test_minimum_above_the_maximum_has_priority() -> None:
    settings = FoldSettings(min_timeout_ms=100, max_timeout_ms=10)

    assert [settings.effective_timeout_ms(asked_ms) for asked_ms in (None, 1, 50, 1_000)] == [100] * 4


def test_defaults_are_those_of_the_design() -> None:
    settings = FoldSettings()

    assert (settings.default_timeout_ms, settings.server_silent_ms, settings.server_lost_ms) == (
        120_000,
        15_000,
        600_000,
    )
    assert settings.registration_retention_ms == 24 * 3_600_000


def test_settings_of_a_newer_version_are_ignored() -> None:
    assert FoldSettings().with_values({"of tomorrow": 1}) == FoldSettings()


@pytest.mark.parametrize(
    "values",
    [
        {"max_gap_ms": 0},
        {"max_gap_ms": -1},
        {"max_gap_ms": True},
        {"delete_topic_with_broker_registration": 1},
        {"guard_share_percent": 101},
        {"guard_hold_timeouts": 1_001},
        {"guard_off_clusters": True},
        {"default_timeout_ms": ("c0",)},
    ],
)
def test_invalid_values_are_named(values: dict[str, SettingValue]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        FoldSettings().with_values(values)


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), (True, "true"), (("A", "b"), '["A","b"]'), ((), "[]"), (2**62, "4611686018427387904")]
)
def test_a_value_is_one_line_of_json_in_rows(value: SettingValue, text: str) -> None:
    assert setting_text(value) == text
    assert setting_value(text) == value


def test_the_guard_is_off_for_the_named_clusters_and_with_a_share_of_100_percent() -> None:
    settings = FoldSettings(guard_off_clusters=("c1",))

    assert [settings.is_guarded(cluster) for cluster in ("c0", "c1")] == [True, False]
    assert not FoldSettings(guard_share_percent=100).is_guarded("c0")
