"""Configuration and errors of Kafka clients, in one place, so that all processes connect in the same way.

``kafka.extra`` contains options of kafka-python. ``spark_options`` translates them to the options of Kafka's Java
client, which Spark uses.

Source: kafka-python 3, KafkaClient's configuration; kafka.apache.org/documentation, SSL and SASL configuration, KIP-651
(certificates as PEM text).
"""

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    AuthorizationError,
    BrokerResponseError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
)
from kafka.net.compat import KafkaNetClient

from namesrv_stream.addresses import join_addr
from namesrv_stream.errors import ConfigError, KafkaRefuses, KafkaRefusesLogin, KafkaUnreachable
from namesrv_stream.ports import reachable_host
from namesrv_stream.processes import read_run_file
from namesrv_stream.settings import Settings, is_secret

#: Space for what Kafka and kafka-python add to a record's value: batch header, record header, key.
ENVELOPE_BYTES: Final = 64 * 1024
_FETCH_WAIT_MS: Final = 100  # interval of the requests of an idle consumer
_MIN_DELAY_MS: Final = 20

# Options that one kind of client accepts and another rejects; `kafka.extra` has options for all of them.
_PRODUCER_ONLY: Final = frozenset({"batch_size", "linger_ms", "max_block_ms", "compression_type", "acks"})
_CONSUMER_ONLY: Final = frozenset({"fetch_max_wait_ms", "fetch_min_bytes", "fetch_max_bytes", "max_poll_records"})


def bootstrap_servers(settings: Settings) -> str:
    """Return Kafka's addresses: those of the configured cluster, or that of the embedded node on this machine.

    Raises:
        ConfigError: The embedded Kafka chooses a free port itself, and has never run with this data directory.
    """
    if settings.kafka.bootstrap_servers:
        return settings.kafka.bootstrap_servers
    embedded = settings.embedded_kafka
    if embedded.listen_port:
        return join_addr(reachable_host(embedded.listen_host), embedded.listen_port)
    found = read_run_file(settings.data.run_dir / "kafka.json")
    if found is None:
        raise ConfigError(
            str(settings.data.run_dir / "kafka.json"),
            "embedded_kafka.listen_port",
            "is 0 and no embedded Kafka has run here: start `namesrv-stream kafka` first, or set a port",
        )
    return str(found["kafka"])


def admin_config(settings: Settings) -> dict[str, Any]:
    """Return the arguments of ``kafka.KafkaAdminClient``, which fails after ``kafka.connect_timeout_ms``."""
    return _shared(settings, without=_PRODUCER_ONLY | _CONSUMER_ONLY)


class _PatientNetClient(KafkaNetClient):  # type: ignore[misc]  # untyped
    """Lets a producer wait for Kafka without CPU load. kafka-python's own client (3.0.12) uses a full core for it."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._request_update = self.cluster.request_update
        self._update: Any = None
        self.cluster.request_update = self._request_one_update

    def connection_delay(self, node_id: Any) -> float:
        """Return the delay in milliseconds, as callers expect, and never 0.

        kafka-python returns seconds, and 0 during a connection attempt.
        """
        return max(float(_MIN_DELAY_MS), float(super().connection_delay(node_id)) * 1000)

    def _request_one_update(self) -> Any:
        """Request an update of the cluster metadata unless one is pending.

        Each request wakes the producer, which immediately requests the next update while a partition has no leader.
        """
        if self._update is None or self._update.is_done:
            self._update = self._request_update()
        return self._update


def producer_config(settings: Settings) -> dict[str, Any]:
    """Return the arguments of ``kafka.KafkaProducer`` for events and dead letters.

    The producer is idempotent, waits for all replicas, keeps the order within a partition, and never creates topics. A
    record may be as large as the topic allows, measured before compression.
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
    """Return the arguments of a ``kafka.KafkaConsumer`` without a group. The caller assigns partitions and seeks."""
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
    """Return the text of an error on one line of at most 200 characters; the name of its class if it has no text."""
    return " ".join(str(error).split())[:200] or type(error).__name__


class _ConnectFailures(logging.Filter):
    """Keeps the error of the latest failed connection, and its time. Timeouts are ignored, because they show no cause.

    kafka-python (3.0.12) only logs that error. A client that cannot connect raises a ``KafkaTimeoutError`` without it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._latest: tuple[float, KafkaError] | None = None
        self._answer: tuple[float, KafkaError] | None = None

    def since(self, monotonic_s: float) -> KafkaError | None:
        """Return the latest error since a time, or None. Kafka's answers take precedence over lost connections."""
        known = (failure for failure in (self._answer, self._latest) if failure is not None)
        return next((error for at_s, error in known if at_s >= monotonic_s), None)

    def filter(self, record: logging.LogRecord) -> bool:
        for each in record.args if isinstance(record.args, tuple) else ():
            if (
                isinstance(each, KafkaError)
                and not isinstance(each, KafkaTimeoutError)
                and "timed out" not in str(each)
            ):
                self._latest = time.monotonic(), each.with_traceback(None)
                if isinstance(each, BrokerResponseError):
                    self._answer = self._latest
        return logging.getLogger("kafka").isEnabledFor(record.levelno)


_failures: Final = _ConnectFailures()
_manager: Final = logging.getLogger("kafka.net.manager")
_manager.setLevel(logging.INFO)
_manager.addFilter(_failures)


def unreachable(settings: Settings, error: BaseException) -> KafkaUnreachable:
    """Return a ``KafkaUnreachable``, or a more specific subclass, for an error of kafka-python."""
    if isinstance(error, KafkaTimeoutError) and "bootstrap" in str(error):
        error = _failures.since(time.monotonic() - settings.kafka.connect_timeout_ms / 1000 - 1) or error
    kind = KafkaUnreachable
    if isinstance(error, AuthorizationError):
        kind = KafkaRefuses
    elif isinstance(error, SaslAuthenticationFailedError):
        kind = KafkaRefusesLogin
    return kind(bootstrap_servers(settings), reason_of(error))


@contextmanager
def kafka_errors(settings: Settings) -> Iterator[None]:
    """Convert errors of kafka-python to errors of this product.

    Raises:
        KafkaUnreachable: Kafka does not answer, refuses the login, or does not permit a request.
        ConfigError: ``kafka.extra`` has an option that the client does not accept.
    """
    try:
        yield
    except KafkaConfigurationError as error:
        raise ConfigError("settings", "kafka.extra", str(error)) from None
    except (KafkaError, OSError) as error:
        raise unreachable(settings, error) from None


@contextmanager
def admin_client(settings: Settings) -> Iterator[KafkaAdminClient]:
    """Connect an admin client, and convert errors until it is closed, as ``kafka_errors`` does."""
    with kafka_errors(settings), closing(KafkaAdminClient(**admin_config(settings))) as admin:
        yield admin


def describe_topic(admin: KafkaAdminClient, topic: str) -> dict[str, Any]:
    """Return Kafka's description of a topic, which has no partitions if the topic does not exist.

    kafka-python also returns no partitions for a topic that the user may not see. Only the error code differs.

    Raises:
        TopicAuthorizationFailedError: The user lacks Describe, and Kafka does not say whether the topic exists.
        KafkaError: Kafka does not answer.
    """
    described: dict[str, Any] = admin.describe_topics([topic])[0]
    if described.get("error_code") == TopicAuthorizationFailedError.errno:
        raise TopicAuthorizationFailedError(f"Describe on topic {topic}")
    return described


def topic_values(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    """Return all settings of an existing topic: Kafka's name → value.

    Raises:
        TopicAuthorizationFailedError: The user lacks DescribeConfigs. kafka-python then returns no settings.
        KafkaError: Kafka does not answer.
    """
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    if not configs:
        raise TopicAuthorizationFailedError(f"DescribeConfigs on topic {topic}")
    return {name: str(config["value"]) for name, config in configs.items()}


_FILE: Final = "_file"
#: Options that have the same values in both clients.
_SAME: Final = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "ssl_password": "ssl.key.password",
}
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_options(settings: Settings) -> dict[str, Any]:
    """Return ``kafka.extra`` for kafka-python.

    A secret ``NAME`` can be given as ``NAME_file``, the path of a file that contains it.

    Raises:
        ConfigError: The file of a secret cannot be read.
    """
    options: dict[str, Any] = {}
    for name, value in settings.kafka.extra.items():
        plain = name.removesuffix(_FILE)
        if plain != name and is_secret(plain, value):
            options[plain] = _read(str(value), name).strip()
        else:
            options[name] = value
    return options


def spark_options(settings: Settings) -> dict[str, str]:
    """Return ``kafka.extra`` for Spark's Kafka source. Options ``kafka.…`` of ``streaming.extra`` override them.

    The result contains secrets. It must not become part of Spark's own configuration, which is visible in the arguments
    of the JVM.

    Raises:
        ConfigError: A file cannot be read.
    """
    options = client_options(settings)
    java = {java_name: str(options[name]) for name, java_name in _SAME.items() if name in options}
    if module := _LOGIN_MODULES.get(str(options.get("sasl_mechanism", ""))):
        user, password = (_quoted(str(options.get(f"sasl_plain_{key}", ""))) for key in ("username", "password"))
        java["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    if "ssl_cafile" in options:
        java |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _read(options["ssl_cafile"], "ssl_cafile"),
        }
    if "ssl_certfile" in options:
        key_file = "ssl_keyfile" if "ssl_keyfile" in options else "ssl_certfile"
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _read(options["ssl_certfile"], "ssl_certfile"),
            "ssl.keystore.key": _read(options[key_file], key_file),
        }
    if options.get("ssl_check_hostname") is False:
        java["ssl.endpoint.identification.algorithm"] = ""
    own = {name: str(value) for name, value in settings.streaming.extra.items() if name.startswith("kafka.")}
    return {f"kafka.{name}": value for name, value in java.items()} | own


def _read(name: object, key: str) -> str:
    try:
        return Path(str(name)).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(str(name), f"kafka.extra.{key}", str(reason)) from None


def _quoted(text: str) -> str:
    """Quote a value for a JAAS configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
