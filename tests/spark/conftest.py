"""One SparkSession for all tests here: it costs some seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.history.session import DELTA, SMALL_RUNS
from namesrv_stream.streaming.session import build_session


@pytest.fixture(scope="session")
def spark(kafka_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As the job starts it, for topics of one or two partitions, with what the history needs besides."""
    streaming = kafka_settings.streaming.model_copy(update={"driver_memory": "512m"})
    kafka = kafka_settings.kafka.model_copy(update={"partitions": 2})
    # In capitals, which Spark's Python workers turn into small letters.
    data = kafka_settings.data.model_copy(update={"dir": tmp_path_factory.mktemp("Spark")})
    session = build_session(
        kafka_settings.model_copy(update={"streaming": streaming, "kafka": kafka, "data": data}), DELTA
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def history_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with what the history process has, and the job has not."""
    before = {name: str(spark.conf.get(name)) for name in SMALL_RUNS}
    for name, value in SMALL_RUNS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
