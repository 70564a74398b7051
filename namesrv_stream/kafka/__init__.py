"""The event log in Kafka: client configuration, topics, readers, checks of the log, and the embedded node.

It contains no interpretation of events; this is in ``route``. Reading the archived log is in ``tools.replay``. Servers,
the Spark programs and the tools may import it; it imports ``route`` and ``settings``.
"""

from namesrv_stream.kafka.clients import (
    ENVELOPE_BYTES,
    admin_config,
    bootstrap_servers,
    consumer_config,
    producer_config,
    spark_options,
)
from namesrv_stream.kafka.event_topics import ensure_topics
from namesrv_stream.kafka.log_reader import LogReader

__all__ = [
    "ENVELOPE_BYTES",
    "LogReader",
    "admin_config",
    "bootstrap_servers",
    "consumer_config",
    "ensure_topics",
    "producer_config",
    "spark_options",
]
