"""A topic of ours read again: records of one partition from an offset on, in order."""

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, OffsetOutOfRangeError

from namesrv_stream.errors import KafkaUnreachable, RecordsRemoved
from namesrv_stream.kafka.clients import bootstrap_servers, consumer_config, reason_of
from namesrv_stream.route.fold import Record
from namesrv_stream.settings import Settings

_POLL_MS: Final = 500
_BATCH_RECORDS: Final = 5_000
_SILENT_POLLS: Final = 60  # 30 s without a record that Kafka said it has: it has gone away


class LogReader:
    """A consumer without a group; one thread's.

    Args:
        settings: Ours.
        topic: What is read; the events topic if None.

    Raises:
        KafkaUnreachable: No broker answers.
    """

    def __init__(self, settings: Settings, topic: str | None = None) -> None:
        self._topic = topic or settings.kafka.broker_events_topic
        self._servers = bootstrap_servers(settings)
        # Records that are removed while we read are an error: else it would go on behind the gap without a word.
        own = {"max_poll_records": _BATCH_RECORDS, "auto_offset_reset": "none"}
        try:
            self._consumer = KafkaConsumer(**consumer_config(settings) | own)
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def partitions(self) -> list[int]:
        """The partitions of the topic; none where Kafka has no such topic; blocks.

        Raises:
            KafkaUnreachable: Kafka went away.
        """
        try:
            return sorted(self._consumer.partitions_for_topic(self._topic) or ())
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None

    def offset_at(self, partition: int, at_ms: int) -> int | None:
        """The first offset whose LogAppendTime is ``at_ms`` (epoch milliseconds) or later; None where none is; blocks.

        Raises:
            KafkaUnreachable: Kafka went away.
        """
        where = TopicPartition(self._topic, partition)
        try:
            found = self._consumer.offsets_for_times({where: at_ms})[where]
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None
        return None if found is None else int(found.offset)

    def extent(self, partition: int) -> tuple[int, int]:
        """The first offset that Kafka holds, and that of the next record; blocks.

        Raises:
            KafkaUnreachable: Kafka went away, or has no such partition.
        """
        where = TopicPartition(self._topic, partition)
        try:
            return self._consumer.beginning_offsets([where])[where], self._consumer.end_offsets([where])[where]
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None

    def batches(self, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
        """Records with ``begin <= offset < end``, some thousand at a time; blocks.

        Args:
            partition: Kafka partition.
            begin: Not below what Kafka holds.
            end: Not above what Kafka holds.

        Raises:
            KafkaUnreachable: Kafka went away.
            RecordsRemoved: Kafka removed records meanwhile.
        """
        where = TopicPartition(self._topic, partition)
        try:
            self._consumer.assign([where])
            self._consumer.seek(where, begin)
            silent_polls = 0
            while self._consumer.position(where) < end:
                fetched = self._consumer.poll(timeout_ms=_POLL_MS).get(where, [])
                silent_polls = 0 if fetched else silent_polls + 1
                if silent_polls > _SILENT_POLLS:
                    raise KafkaTimeoutError(f"partition {partition} gives no record at {begin}")
                records = [Record(partition, r.offset, r.timestamp, r.value or b"") for r in fetched if r.offset < end]
                if records:
                    yield records
        except OffsetOutOfRangeError:
            raise RecordsRemoved(partition, self._consumer.position(where), self.extent(partition)[0]) from None
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> KafkaUnreachable:
        return KafkaUnreachable(self._servers, reason_of(error))
