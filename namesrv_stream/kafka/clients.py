"""Settings of kafka-python clients, in one place, so that every process speaks to Kafka alike."""

from typing import Any, Final

from kafka.net.compat import KafkaNetClient

from namesrv_stream.errors import ConfigError
from namesrv_stream.kafka.security import client_options
from namesrv_stream.ports import reachable_host
from namesrv_stream.run_files import read_run_file
from namesrv_stream.settings import Settings

#: What Kafka and kafka-python count beside a record's value: batch header, record header, key.
ENVELOPE_BYTES: Final = 64 * 1024
_FETCH_WAIT_MS: Final = 100  # an idle consumer asks this often
_LEAST_DELAY_MS: Final = 20

# Keys that one kind of client knows and another refuses; `kafka.extra` holds keys for all of them.
_PRODUCER_ONLY: Final = frozenset({"batch_size", "linger_ms", "max_block_ms", "compression_type", "acks"})
_CONSUMER_ONLY: Final = frozenset({"fetch_max_wait_ms", "fetch_min_bytes", "fetch_max_bytes", "max_poll_records"})


def bootstrap_servers(settings: Settings) -> str:
    """Where Kafka is: the configured cluster, or the embedded one on this machine.

    Raises:
        ConfigError: The embedded Kafka takes any free port and has not been started on this data directory.
    """
    if settings.kafka.bootstrap_servers:
        return settings.kafka.bootstrap_servers
    embedded = settings.embedded_kafka
    if embedded.listen_port:
        return f"{reachable_host(embedded.listen_host)}:{embedded.listen_port}"
    facts = read_run_file(settings.data.run_dir / "kafka.json")
    if facts is None:
        raise ConfigError(
            str(settings.data.run_dir / "kafka.json"),
            "embedded_kafka.listen_port",
            "is 0 and no embedded Kafka has run here: start `namesrv-stream kafka` first, or set a port",
        )
    return str(facts["kafka"])


def admin_config(settings: Settings) -> dict[str, Any]:
    """Arguments of ``kafka.KafkaAdminClient``; they make it give up at start after ``kafka.connect_timeout_ms``."""
    return _shared(settings, without=_PRODUCER_ONLY | _CONSUMER_ONLY)


class _PatientNetClient(KafkaNetClient):  # type: ignore[misc]  # untyped
    """Lets a producer wait for Kafka; kafka-python 3.0.12's own keeps a core busy for as long as that takes."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._request_update = self.cluster.request_update
        self._update: Any = None
        self.cluster.request_update = self._request_one_update

    def connection_delay(self, node_id: Any) -> float:
        """Milliseconds, as its caller takes it; kafka-python tells it seconds, and 0 while a connection is made."""
        return max(float(_LEAST_DELAY_MS), float(super().connection_delay(node_id)) * 1000)

    def _request_one_update(self) -> Any:
        """Each request wakes the producer, which makes the next as long as a partition has no leader."""
        if self._update is None or self._update.is_done:
            self._update = self._request_update()
        return self._update


def producer_config(settings: Settings) -> dict[str, Any]:
    """Arguments of ``kafka.KafkaProducer`` for events and dead letters.

    Idempotent, acknowledged by all replicas, in order within a partition, never creating topics. A record may be as
    large as the topic allows before compression.
    """
    kafka = settings.kafka
    return {
        "acks": "all",
        "enable_idempotence": True,
        "compression_type": "lz4",
        "linger_ms": 0,
        "batch_size": 256 * 1024,
        "max_request_size": kafka.max_message_bytes + ENVELOPE_BYTES,
        "request_timeout_ms": max(1_000, kafka.delivery_timeout_ms // 2),
        "delivery_timeout_ms": kafka.delivery_timeout_ms,
        "max_block_ms": kafka.connect_timeout_ms,
        "allow_auto_create_topics": False,
        "kafka_client": _PatientNetClient,
    } | _shared(settings, without=_CONSUMER_ONLY)


def consumer_config(settings: Settings) -> dict[str, Any]:
    """Arguments of ``kafka.KafkaConsumer`` without a group: assign partitions and seek yourself."""
    kafka = settings.kafka
    return {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": _FETCH_WAIT_MS,
        "max_partition_fetch_bytes": kafka.max_message_bytes + ENVELOPE_BYTES,
        "fetch_max_bytes": max(kafka.max_message_bytes + ENVELOPE_BYTES, 50 << 20),
        "allow_auto_create_topics": False,
    } | _shared(settings, without=_PRODUCER_ONLY)


def _shared(settings: Settings, without: frozenset[str]) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap_servers(settings).split(","),
        "client_id": "namesrv-stream",
        "bootstrap_timeout_ms": settings.kafka.connect_timeout_ms,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 1_000,
    } | {name: value for name, value in client_options(settings).items() if name not in without}


def reason_of(error: BaseException) -> str:
    """What Kafka's client says is wrong, on one line of 200 characters at most; its class where it says nothing."""
    return " ".join(str(error).split())[:200] or type(error).__name__
