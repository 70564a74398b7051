"""A topic of ours read again: records from an offset on, each partition's in order."""

import time
from collections.abc import Collection, Iterator, Mapping
from types import TracebackType
from typing import Final, Self

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, OffsetOutOfRangeError

from namesrv_stream.errors import KafkaUnreachable, RecordsRemoved
from namesrv_stream.kafka.clients import bootstrap_servers, consumer_config, reason_of
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings

_POLL_MS: Final = 500
_BATCH_RECORDS: Final = 5_000
_SILENT_POLLS: Final = 60  # 30 s without a record that Kafka said it has: it has gone away


class LogReader:
    """A consumer without a group; one thread's.

    Args:
        settings: Ours.
        topic: What is read; the events topic if None.
        timeout_ms: For all that is done, the end of the consumer included; None for as long as it takes.

    Raises:
        KafkaUnreachable: No broker answers.
    """

    def __init__(self, settings: Settings, topic: str | None = None, timeout_ms: int | None = None) -> None:
        self._topic = topic or settings.kafka.broker_events_topic
        self._servers = bootstrap_servers(settings)
        self._until_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        # Records that are removed while we read are an error: else it would go on behind the gap without a word.
        own: dict[str, object] = {"max_poll_records": _BATCH_RECORDS, "auto_offset_reset": "none"}
        if timeout_ms is not None:
            own["bootstrap_timeout_ms"] = timeout_ms
        try:
            self._consumer = KafkaConsumer(**consumer_config(settings) | own)
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close(**self._in_time())

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
        """As ``extents``, of one partition."""
        return self.extents([partition])[partition]

    def extents(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """Partition to the first offset that Kafka holds, and that of the next record; blocks.

        Raises:
            KafkaUnreachable: Kafka went away, or has no such partition.
        """
        where = [TopicPartition(self._topic, partition) for partition in partitions]
        try:
            firsts = self._consumer.beginning_offsets(where, **self._in_time())
            ends = self._consumer.end_offsets(where, **self._in_time())
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None
        return {place.partition: (firsts[place], ends[place]) for place in where}

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
        return self.batches_of({partition: (begin, end)})

    def batches_of(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[list[Record]]:
        """As ``batches`` of several partitions, none of which waits for another; a batch is of one of them.

        Args:
            ranges: Partition to begin and end.

        Raises:
            KafkaUnreachable: Kafka went away.
            RecordsRemoved: Kafka removed records meanwhile.
            TimeoutError: The reader's time is up.
        """
        ends = {TopicPartition(self._topic, partition): end for partition, (_, end) in ranges.items()}
        try:
            self._consumer.assign(list(ends))
            for place in ends:
                self._consumer.seek(place, ranges[place.partition][0])
            silent_polls = 0
            while any(self._position(place) < end for place, end in ends.items()):
                if self._left_ms == 0:
                    raise TimeoutError(f"partitions {sorted(ranges)} are not read to their ends in time")
                fetched = self._consumer.poll(timeout_ms=min(_POLL_MS, self._left_ms or _POLL_MS))
                silent_polls = 0 if fetched else silent_polls + 1
                if silent_polls > _SILENT_POLLS:
                    raise KafkaTimeoutError(f"no record comes of partitions {sorted(ranges)}")
                for place, found in fetched.items():
                    records = [
                        Record(place.partition, r.offset, r.timestamp, r.value or b"")
                        for r in found
                        if r.offset < ends[place]
                    ]
                    if records:
                        yield records
        except OffsetOutOfRangeError as error:
            place = next(iter(error.args[0]))
            raise RecordsRemoved(place.partition, self._position(place), self.extent(place.partition)[0]) from None
        except TimeoutError:  # an OSError, too
            raise
        except (KafkaError, OSError) as error:
            raise self._unreachable(error) from None

    def _position(self, place: TopicPartition) -> int:
        return int(self._consumer.position(place, **self._in_time()) or 0)  # None where its time is up

    @property
    def _left_ms(self) -> int | None:
        return None if self._until_s is None else max(0, round((self._until_s - time.monotonic()) * 1000))

    def _in_time(self) -> dict[str, int]:
        left_ms = self._left_ms
        return {} if left_ms is None else {"timeout_ms": max(1, left_ms)}

    def _unreachable(self, error: Exception) -> KafkaUnreachable:
        return KafkaUnreachable(self._servers, reason_of(error))
