"""The event log in Kafka: client configuration, topics, readers, checks of the log, and the embedded node.

``route`` interprets the events, and ``tools.replay`` reads the archive. Servers, the Spark programs and the tools
may import this package; it imports ``route`` and ``settings``.
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
