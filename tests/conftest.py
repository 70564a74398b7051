"""Shared by all tests: UTC, Hypothesis profiles, and a real Kafka."""

import functools
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from namesrv_stream.settings import Settings
from tests.support.kafka import KafkaProcess, settings_for
from tests.support.spark_classes import use_spark_classes

os.environ["TZ"] = "UTC"
time.tzset()
use_spark_classes()

gc.disable()  # while tests are collected

# Commands that run in the process of the tests share one parser: building it takes longer than most commands.
typer.main.get_command = functools.cache(typer.main.get_command)

# `make check` tests every property with few examples, `make test` with more, and `make test-extra` with many.
hypothesis_settings.register_profile(
    "default", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.register_profile("quick", parent=hypothesis_settings.get_profile("default"), max_examples=10)
hypothesis_settings.register_profile("long", parent=hypothesis_settings.get_profile("default"), max_examples=5_000)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with the longest timeouts first, so that none of them is the last while the other workers wait."""
    longest: dict[Path, float] = {}
    for item in items:
        timeout = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0), timeout.args[0] if timeout else 0)
    items.sort(key=lambda item: -longest[item.path])


def pytest_collection_finish() -> None:
    """Exclude the thousands of collected tests from garbage collection, and let it run less often than usual."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)
    gc.enable()


@pytest.fixture(scope="session")
def kafka_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a real, empty Kafka shared by the session; use topics of your own (``kafka.broker_events_topic``)."""
    process = KafkaProcess(settings_for(tmp_path_factory.mktemp("kafka")))
    try:
        process.wait_ready()
        yield process.settings
    finally:
        process.stop()
