"""The event log: where Kafka is, how our clients speak to it, its topics, and the embedded node for one machine."""

from namesrv_stream.kafka.clients import (
    ENVELOPE_BYTES,
    admin_config,
    bootstrap_servers,
    consumer_config,
    producer_config,
)
from namesrv_stream.kafka.log_reader import LogReader
from namesrv_stream.kafka.security import spark_options
from namesrv_stream.kafka.topics import ensure_topics

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
