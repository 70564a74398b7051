"""The event log as a streaming DataFrame."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from namesrv_stream.kafka import bootstrap_servers, spark_options
from namesrv_stream.settings import Settings


def read_events(spark: SparkSession, settings: Settings, starting_offsets: Mapping[int, int]) -> DataFrame:
    """Every record of the events topic.

    Args:
        spark: The session.
        settings: Of which ``kafka`` and, where its keys begin with ``kafka.``, ``streaming.extra`` matter.
        starting_offsets: First offset of each partition.

    Returns:
        Columns partition (int), offset (bigint), at_ms (bigint, LogAppendTime), value (binary).
    """
    topic = settings.kafka.broker_events_topic
    options = {
        "kafka.bootstrap.servers": bootstrap_servers(settings),
        "assign": json.dumps({topic: sorted(starting_offsets)}),
        "startingOffsets": json.dumps({topic: {str(p): o for p, o in sorted(starting_offsets.items())}}),
        "maxOffsetsPerTrigger": str(settings.streaming.max_offsets_per_trigger),
        # Behind each read the consumer asks for what comes next, and a broker answers a connection's requests in order:
        # the next batch's first would stand behind one that waits for 500 ms or a record. It took 300 ms a batch.
        "kafka.fetch.max.wait.ms": "1",
        "failOnDataLoss": "true",  # a gap must stop the job: the fold cannot know what it missed
    }
    options |= spark_options(settings)
    records = spark.readStream.format("kafka").options(**options).load()
    return records.select("partition", "offset", f.unix_millis("timestamp").alias("at_ms"), "value")
