"""The events topic as a stream; the route table and the history read it in one way."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from namesrv_stream.kafka import bootstrap_servers, spark_options
from namesrv_stream.settings import Settings


def read_log(
    spark: SparkSession, settings: Settings, begin: Mapping[int, int], max_records: int, options: Mapping[str, str]
) -> DataFrame:
    """Every record of the events topic from some offsets on; a gap ends the query.

    Args:
        spark: The session.
        settings: Of which ``kafka`` and, where its keys begin with ``kafka.``, ``streaming.extra`` matter.
        begin: First offset of each partition; Kafka holds it.
        max_records: Of a batch, at most.
        options: Further options of Spark's Kafka source; the settings go before them.

    Returns:
        The columns of Spark's Kafka source.
    """
    topic = settings.kafka.broker_events_topic
    usual = {
        "kafka.bootstrap.servers": bootstrap_servers(settings),
        "assign": json.dumps({topic: sorted(begin)}),
        "startingOffsets": json.dumps({topic: {str(p): o for p, o in sorted(begin.items())}}),
        "maxOffsetsPerTrigger": str(max_records),
        "failOnDataLoss": "true",  # the next start says what was lost
    }
    return spark.readStream.format("kafka").options(**usual | dict(options) | spark_options(settings)).load()
