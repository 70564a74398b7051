"""The events topic closed to all who write to it, and given more partitions.

A topic whose largest record may have no bytes refuses every record of every producer at once, and can still be read.
So the end of the log stands still while its state is carried over.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError

from namesrv_stream.errors import KafkaUnreachable
from namesrv_stream.kafka.clients import admin_config, bootstrap_servers, producer_config, reason_of
from namesrv_stream.kafka.topics import topic_configs
from namesrv_stream.settings import Settings

_SIZE: Final = "max.message.bytes"
_CLOSED: Final = "0"
_TIMEOUT_MS: Final = 30_000
_PROBE_S: Final = 0.1

_T = TypeVar("_T")


class TopicGrowth:
    """The events topic while it is changed; blocks. Every method raises KafkaUnreachable where Kafka does not answer.

    Args:
        settings: Ours.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = settings.kafka.broker_events_topic

    def partitions(self) -> int:
        """How many the topic has; 0 where there is none."""
        return self._asked(lambda admin: len(list(admin.describe_topics([self._topic])[0]["partitions"])))

    def close(self, probe: bytes) -> None:
        """Let the topic take no more records; returns once each partition has refused one.

        Args:
            probe: A record's value that does no harm, should a partition still take it.

        Raises:
            KafkaUnreachable: Kafka does not answer, or a partition goes on to take records.
        """
        self._alter(_CLOSED)
        # Each Kafka broker hears of it by itself.
        config = producer_config(self._settings) | {"enable_idempotence": False, "retries": 0}
        until_s = time.monotonic() + _TIMEOUT_MS / 1000
        try:
            producer = KafkaProducer(**config)
            try:
                for partition in range(self.partitions()):
                    while not self._refuses(producer, partition, probe):
                        if time.monotonic() > until_s:
                            raise KafkaTimeoutError(f"partition {partition} takes records with {_SIZE} = {_CLOSED}")
                        time.sleep(_PROBE_S)
            finally:
                producer.close()
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None

    def open(self) -> None:
        """Let the topic take records again, of the size that the configuration says."""
        self._alter(topic_configs(self._settings)[_SIZE])

    def grow(self, partitions: int) -> None:
        """Give the topic so many partitions; the new ones are empty and begin at offset 0."""
        self._asked(lambda admin: admin.create_partitions({self._topic: partitions}, timeout_ms=_TIMEOUT_MS))
        while self.partitions() != partitions:
            time.sleep(_PROBE_S)

    def _refuses(self, producer: KafkaProducer, partition: int, value: bytes) -> bool:
        try:
            producer.send(self._topic, value=value, partition=partition).get(timeout=_TIMEOUT_MS / 1000)
        except MessageSizeTooLargeError:
            return True
        return False

    def _alter(self, size: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic, configs={_SIZE: (AlterConfigOp.SET, size)})
        result = self._asked(lambda admin: admin.alter_configs([resource]))["topic"][self._topic]
        if result != "OK":
            raise self._unreachable(KafkaError(result))

    def _asked(self, ask: Callable[[KafkaAdminClient], _T]) -> _T:
        try:
            admin = KafkaAdminClient(**admin_config(self._settings))
            try:
                return ask(admin)
            finally:
                admin.close()
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> KafkaUnreachable:
        return KafkaUnreachable(bootstrap_servers(self._settings), reason_of(error))
