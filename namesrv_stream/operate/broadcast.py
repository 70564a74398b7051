"""Puts one event into every partition of the log, from a command."""

import socket

from kafka import KafkaProducer
from kafka.errors import KafkaError

from namesrv_stream.errors import KafkaUnreachable, NamesrvStreamError, PrerequisiteMissing
from namesrv_stream.kafka import bootstrap_servers, ensure_topics, producer_config
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import Event
from namesrv_stream.settings import Settings


class PartlyLogged(NamesrvStreamError):
    """Some partitions have the event and others do not.

    Attributes:
        offsets: partition → offset, of those that have it.
    """

    def __init__(self, offsets: dict[int, int], partitions: int, reason: str) -> None:
        super().__init__(
            f"Kafka took it in partitions {sorted(offsets)} of {partitions} only ({reason}): repeat the command"
        )
        self.offsets = offsets


def broadcast(settings: Settings, event: Event) -> dict[int, int]:
    """Publish to all partitions and wait until all replicas have it; blocks.

    Returns:
        partition → offset.

    Raises:
        PrerequisiteMissing: The embedded Kafka does not run.
        KafkaUnreachable: No Kafka, or it took the event nowhere.
        ConfigError: The topic is not as it must be.
        PartlyLogged: Only some partitions have it.
    """
    _require_embedded_kafka(settings)
    ensure_topics(settings)
    servers = bootstrap_servers(settings)
    try:
        producer = KafkaProducer(**producer_config(settings))
    except (KafkaError, OSError) as error:
        raise KafkaUnreachable(servers, _one_line(error)) from None
    try:
        return _send(producer, settings, encode_event(event))
    finally:
        producer.close(timeout=1)


def _require_embedded_kafka(settings: Settings) -> None:
    """Notice at once that an embedded Kafka, which is on this machine, does not run.

    Raises:
        PrerequisiteMissing: Nothing listens there; says how to name the installation.
    """
    if not settings.is_kafka_embedded:
        return
    host, port = bootstrap_servers(settings).rsplit(":", 1)
    try:
        socket.create_connection((host.removeprefix("[").removesuffix("]"), int(port)), timeout=1).close()
    except ConnectionRefusedError:
        raise PrerequisiteMissing(
            f"no embedded Kafka listens at {host}:{port}, and none runs on {settings.data.dir}",
            "start it, or name the installation: --data-dir DIR, or --conf FILE with kafka.bootstrap_servers",
        ) from None
    except OSError:
        return  # slow, perhaps: the producer waits longer


def _send(producer: KafkaProducer, settings: Settings, value: bytes) -> dict[int, int]:
    topic, partitions = settings.kafka.broker_events_topic, settings.kafka.partitions
    offsets: dict[int, int] = {}
    failure = ""
    futures = []
    for partition in range(partitions):
        try:
            futures.append((partition, producer.send(topic, value=value, partition=partition)))
        except KafkaError as error:
            failure = _one_line(error)
    for partition, future in futures:
        try:
            offsets[partition] = int(future.get(timeout=settings.kafka.delivery_timeout_ms / 1000).offset)
        except KafkaError as error:
            failure = _one_line(error)
    if not offsets:
        raise KafkaUnreachable(bootstrap_servers(settings), failure)
    if len(offsets) < partitions:
        raise PartlyLogged(offsets, partitions, failure)
    return offsets


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
