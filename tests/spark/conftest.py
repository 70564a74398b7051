"""One SparkSession for all tests in this folder, because it takes some seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.spark_session import build_session
from tests.support.history_rig import WrittenHistory, write_history_in_runs

#: For tests that read tables with Delta for Spark.
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@pytest.fixture(scope="session")
def spark(kafka_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as the job starts it, for topics of one or two partitions, with the configuration of the history."""
    streaming = kafka_settings.streaming.model_copy(update={"driver_memory": "512m"})
    kafka = kafka_settings.kafka.model_copy(update={"partitions": 2})
    # The name has a capital letter, which Spark's Python workers convert to lower case.
    data = kafka_settings.data.model_copy(update={"dir": tmp_path_factory.mktemp("Spark")})
    session = build_session(
        kafka_settings.model_copy(update={"streaming": streaming, "kafka": kafka, "data": data}), _DELTA
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def written_history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> WrittenHistory:
    """The history of three random logs, written in several runs; shared by tests that only read it."""
    return write_history_in_runs(spark, tmp_path_factory.mktemp("history"))
