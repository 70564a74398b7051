"""Who changed which setting when, out of rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.route.setting_history import (
    SettingChange,
    change_detail,
    read_detail,
    setting_changes,
    values_before,
)
from tests.support.builders import BEGIN_MS, Log


@given(st.text(), st.none() | st.sampled_from(("1", "true", "[]")))
def test_who_and_what_it_was_are_read_back(source: str, old: str | None) -> None:
    if old is None and ", was " in source:
        return  # in rows of before old values were kept, and nobody is called so
    assert read_detail(change_detail(source, old)) == (source, old)


def test_a_change_has_its_old_value_from_the_fold() -> None:
    log = Log()
    log.change_settings(default_timeout_ms=60_000)
    log.change_settings(after_ms=1_000, source="bob", default_timeout_ms=90_000)
    assert setting_changes(log.output.changes) == [
        SettingChange(BEGIN_MS, "default_timeout_ms", "120000", "60000", "ada", {0: 0}),
        SettingChange(BEGIN_MS + 1_000, "default_timeout_ms", "60000", "90000", "bob", {0: 1}),
    ]


def test_one_change_in_several_partitions_is_one() -> None:
    rows = []
    for partition in (0, 1):
        log = Log(partition=partition, partitions=2, begin_ms=BEGIN_MS + partition)
        log.change_settings(default_timeout_ms=60_000)
        rows += log.output.changes
    (change,) = setting_changes(rows)
    assert (change.at_ms, change.partitions) == (BEGIN_MS, {0: 0, 1: 0})


def test_the_same_change_made_twice_is_two() -> None:
    log = Log()
    log.change_settings(default_timeout_ms=60_000)
    log.change_settings(default_timeout_ms=120_000)
    log.change_settings(default_timeout_ms=60_000)
    assert [c.new for c in setting_changes(log.output.changes)] == ["60000", "120000", "60000"]


def test_what_only_the_configuration_said_is_no_change_of_its_own() -> None:
    log = Log()
    log.change_settings(source="config", default_timeout_ms=60_000)
    assert [c.source for c in setting_changes(log.output.changes)] == ["config"]


@pytest.mark.parametrize(("offset", "expected"), [(0, "120000"), (1, "60000"), (2, "90000")])
def test_what_held_before_a_record(offset: int, expected: str) -> None:
    log = Log()
    log.change_settings(default_timeout_ms=60_000)
    log.change_settings(default_timeout_ms=90_000)
    assert values_before(log.output.changes, 0, offset) == {"default_timeout_ms": expected}
    assert values_before(log.output.changes, 1, offset) == {}
