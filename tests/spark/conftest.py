"""One SparkSession for all tests here: it costs some seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.spark_session import build_session
from tests.support.history_lives import Lives, write_lives

#: For those who read the tables with Spark's own Delta.
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@pytest.fixture(scope="session")
def spark(kafka_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As the job starts it, for topics of one or two partitions, with what the history needs besides."""
    streaming = kafka_settings.streaming.model_copy(update={"driver_memory": "512m"})
    kafka = kafka_settings.kafka.model_copy(update={"partitions": 2})
    # In capitals, which Spark's Python workers turn into small letters.
    data = kafka_settings.data.model_copy(update={"dir": tmp_path_factory.mktemp("Spark")})
    session = build_session(
        kafka_settings.model_copy(update={"streaming": streaming, "kafka": kafka, "data": data}), _DELTA
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lives(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """The history of three partitions' lives, for tests that only read it."""
    return write_lives(spark, tmp_path_factory.mktemp("lives"))
