"""One SparkSession for all tests here: it costs some seconds to start."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.history.session import DELTA, LOG_STORE, SMALL_RUNS, without_checksums
from namesrv_stream.streaming.session import build_session
from tests.support.history_lives import Lives, write_lives


@pytest.fixture(scope="session")
def spark(kafka_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As the job starts it, for topics of one or two partitions, with what the history needs besides."""
    streaming = kafka_settings.streaming.model_copy(update={"driver_memory": "512m"})
    kafka = kafka_settings.kafka.model_copy(update={"partitions": 2})
    # In capitals, which Spark's Python workers turn into small letters.
    data = kafka_settings.data.model_copy(update={"dir": tmp_path_factory.mktemp("Spark")})
    session = build_session(
        kafka_settings.model_copy(update={"streaming": streaming, "kafka": kafka, "data": data}), DELTA | LOG_STORE
    )
    without_checksums(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def history_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with what the history process has, and the job has not."""
    with _small_runs(spark):
        yield spark


@pytest.fixture(scope="session")
def lives(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """The history of three partitions' lives, for tests that only read it."""
    with _small_runs(spark):
        return write_lives(spark, tmp_path_factory.mktemp("lives"))


@contextmanager
def _small_runs(spark: SparkSession) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in SMALL_RUNS}
    for name, value in SMALL_RUNS.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)
