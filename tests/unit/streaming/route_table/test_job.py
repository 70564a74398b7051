"""An edited configuration is logged, an unchanged one is not. A batch with too many rows is folded in smaller ones."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings
from namesrv_stream.settings.checks import changed_settings
from namesrv_stream.streaming.route_table import route_job
from namesrv_stream.streaming.route_table.route_job import configured_settings


def _settings(**liveness: int | bool) -> Settings:
    defaults = Settings()
    return defaults.model_copy(update={"liveness": defaults.liveness.model_copy(update=liveness)})


def test_defaults_that_were_never_logged_are_not_a_change() -> None:
    assert changed_settings(Settings(), {}) == {}


def test_first_start_logs_settings_that_are_not_the_default() -> None:
    settings = _settings(default_timeout_ms=5_000, delete_topic_with_broker_registration=True)
    expected = {"default_timeout_ms": 5_000, "delete_topic_with_broker_registration": True}
    assert changed_settings(settings, {}) == expected


def test_logged_settings_are_not_logged_again() -> None:
    logged = {"default_timeout_ms": "5000", "delete_topic_with_broker_registration": "true"}
    settings = _settings(default_timeout_ms=5_000, delete_topic_with_broker_registration=True)
    assert changed_settings(settings, logged) == {}


def test_going_back_to_the_default_is_a_change() -> None:
    assert changed_settings(Settings(), {"default_timeout_ms": "5000"}) == {"default_timeout_ms": 120_000}


def test_the_fold_knows_every_liveness_setting_with_the_same_default() -> None:
    fold = asdict(FoldSettings())
    configured = Settings().liveness.model_dump()
    assert configured.pop("tick_interval_ms")
    assert configured == {name: fold[name] for name in configured}


def test_a_partition_that_an_earlier_start_did_not_reach_has_no_settings_yet() -> None:
    table = RouteTable()
    table.replace_settings(0, {("config", "default_timeout_ms"): "5000", ("effective", "default_timeout_ms"): "5000"})

    assert configured_settings(table, 0) == {"default_timeout_ms": "5000"}
    assert configured_settings(table, 1) == {}


def test_change_at_run_time_is_not_a_change_of_the_configuration() -> None:
    table = RouteTable()
    table.replace_settings(0, {("effective", "delete_topic_with_broker_registration"): "true"})

    assert changed_settings(Settings(), configured_settings(table, 0)) == {}


def test_a_backlog_with_too_many_rows_is_folded_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    job: Any = route_job._Job(Settings())  # noqa: SLF001
    job._spark, started = object(), list[tuple[str, int | None]]()  # noqa: SLF001
    ends = ["BatchTooLarge: only 57 records fit", "BatchTooLarge: only 1 records fit", "", "another error"]

    def start_query(_spark: object, _: Settings, start: Any, _sink: object, records: int | None) -> Any:
        started.append((start, records))

        def end() -> None:
            if text := ends[len(started) - 1]:
                raise RuntimeError(text)

        return SimpleNamespace(awaitTermination=end)

    monkeypatch.setattr(route_job, "start_query", start_query)
    monkeypatch.setattr(job, "_start_point", lambda: "committed")
    monkeypatch.setattr(job, "_failed", lambda: 1)
    assert job._fold("first") == 1  # noqa: SLF001
    assert started == [("first", None), ("committed", 28), ("committed", 1), ("committed", None)]
