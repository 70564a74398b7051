"""Reads a topic from given offsets, and checks whether the events topic still has the log that the tables came from.

A topic that was recreated, or that lost folded records, can later reach the same offsets again. Comparing offsets is
therefore not sufficient. The check compares the topic's id and the last folded record of each partition (ADR 0049).
"""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, OffsetOutOfRangeError

from namesrv_stream.errors import ConfigError
from namesrv_stream.kafka.clients import admin_client, consumer_config, describe_topic, kafka_errors, unreachable
from namesrv_stream.route.fold.folded_log import FoldedLog, Place, fingerprint
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import LogReplaced, LogTruncated, RecordsRemoved

_POLL_MS: Final = 500
_BATCH_RECORDS: Final = 5_000
_SILENT_POLLS: Final = 60  # 30 s without a record although Kafka has more: Kafka is taken as unreachable


class LogReader:
    """A consumer without a group, for one thread.

    Args:
        topic: The topic; None for the events topic.
        timeout_ms: Time limit of connecting, reading and closing, milliseconds; None for no limit.

    Raises:
        KafkaUnreachable: No Kafka broker answers.
    """

    def __init__(self, settings: Settings, topic: str | None = None, timeout_ms: int | None = None) -> None:
        self._topic = topic or settings.kafka.broker_events_topic
        self._settings = settings
        self._until_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        # "none" makes records that are removed during the reading an error. Otherwise the gap would be skipped
        # silently.
        own: dict[str, object] = {"max_poll_records": _BATCH_RECORDS, "auto_offset_reset": "none"}
        if timeout_ms is not None:
            own["bootstrap_timeout_ms"] = timeout_ms
        with kafka_errors(settings):
            self._consumer = KafkaConsumer(**consumer_config(settings) | own)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with kafka_errors(self._settings):
            self._consumer.close(**self._in_time())

    def partitions(self) -> list[int]:
        """Return the partitions of the topic; none if the topic does not exist; blocks.

        Raises:
            KafkaUnreachable: Kafka does not answer.
        """
        with kafka_errors(self._settings):
            return sorted(self._consumer.partitions_for_topic(self._topic) or ())

    def offset_at(self, partition: int, at_ms: int) -> int | None:
        """Return the first offset with a LogAppendTime of at least ``at_ms`` (epoch milliseconds); blocks.

        None if there is no such record.

        Raises:
            KafkaUnreachable: Kafka does not answer.
        """
        where = TopicPartition(self._topic, partition)
        with kafka_errors(self._settings):
            found = self._consumer.offsets_for_times({where: at_ms})[where]
        return None if found is None else int(found.offset)

    def extent(self, partition: int) -> tuple[int, int]:
        """Like ``extents``, for one partition."""
        return self.extents([partition])[partition]

    def extents(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """Return partition → (first available offset, offset of the next record); blocks.

        Raises:
            KafkaUnreachable: Kafka does not answer, or has no such partition.
        """
        where = [TopicPartition(self._topic, partition) for partition in partitions]
        with kafka_errors(self._settings):
            firsts = self._consumer.beginning_offsets(where, **self._in_time())
            ends = self._consumer.end_offsets(where, **self._in_time())
        return {place.partition: (firsts[place], ends[place]) for place in where}

    def batches(self, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
        """Yield records with ``begin <= offset < end``, some thousand at a time; blocks.

        Args:
            begin: At least the first available offset.
            end: At most the offset of the next record.

        Raises:
            KafkaUnreachable: Kafka does not answer.
            RecordsRemoved: Kafka removed records meanwhile.
        """
        return self.batches_of({partition: (begin, end)})

    def batches_of(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[list[Record]]:
        """Like ``batches``, for several partitions in parallel. Each batch belongs to one partition.

        Args:
            ranges: Partition → (begin, end).

        Raises:
            KafkaUnreachable: Kafka does not answer.
            RecordsRemoved: Kafka removed records meanwhile.
            TimeoutError: The reader's time limit is exceeded.
        """
        ends = {TopicPartition(self._topic, partition): end for partition, (_, end) in ranges.items()}
        try:
            self._consumer.assign(list(ends))
            for place in ends:
                self._consumer.seek(place, ranges[place.partition][0])
            silent_polls = 0
            while any(self._position(place) < end for place, end in ends.items()):
                if self._left_ms == 0:
                    raise TimeoutError(f"partitions {sorted(ranges)} could not be read completely in time")
                fetched = self._consumer.poll(timeout_ms=min(_POLL_MS, self._left_ms or _POLL_MS))
                silent_polls = 0 if fetched else silent_polls + 1
                if silent_polls > _SILENT_POLLS:
                    raise KafkaTimeoutError(f"no more records arrive from partitions {sorted(ranges)}")
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
        except TimeoutError:  # which is an OSError as well
            raise
        except (KafkaError, OSError) as error:
            raise unreachable(self._settings, error) from None

    def _position(self, place: TopicPartition) -> int:
        return int(self._consumer.position(place, **self._in_time()) or 0)  # None after the time limit

    @property
    def _left_ms(self) -> int | None:
        return None if self._until_s is None else max(0, round((self._until_s - time.monotonic()) * 1000))

    def _in_time(self) -> dict[str, int]:
        left_ms = self._left_ms
        return {} if left_ms is None else {"timeout_ms": max(1, left_ms)}


@dataclass(frozen=True, slots=True)
class TopicExtent:
    """Identity and available offsets of the events topic.

    Attributes:
        topic_id: Kafka's id of the topic, which changes if the topic is recreated.
        earliest: Partition → first available offset.
        end: Partition → offset of the next record.
    """

    topic_id: str
    earliest: Mapping[int, int]
    end: Mapping[int, int]


def read_extent(settings: Settings, only: Collection[int] | None = None) -> TopicExtent:
    """Read identity and offsets of the events topic from Kafka; blocks.

    Args:
        only: Partitions whose offsets are read; None for all.

    Raises:
        KafkaUnreachable: No Kafka broker answers.
        ConfigError: The topic does not exist, or its number of partitions differs from the configuration.
    """
    partitions = [p for p in range(settings.kafka.partitions) if only is None or p in only]
    with admin_client(settings) as admin:
        _topic_id(admin, settings)  # raises a clear error if the topic is missing
        with LogReader(settings) as reader:
            extents = reader.extents(partitions)
        # Read after the offsets: if the topic was recreated meanwhile, its new id shows that the log is another one.
        topic_id = _topic_id(admin, settings)
    earliest = {partition: first for partition, (first, _) in extents.items()}
    ends = {partition: end for partition, (_, end) in extents.items()}
    return TopicExtent(topic_id, earliest, ends)


def _topic_id(admin: KafkaAdminClient, settings: Settings) -> str:
    """Return the id of the events topic.

    Raises:
        ConfigError: The topic does not exist, or its number of partitions differs from the configuration.
    """
    topic, partitions = settings.kafka.broker_events_topic, settings.kafka.partitions
    described = describe_topic(admin, topic)
    found = len(described["partitions"])
    if not found:
        raise ConfigError("settings", "kafka.broker_events_topic", f"Kafka has no topic {topic}")
    if found != partitions:
        raise ConfigError("settings", "kafka.partitions", f"is {partitions}, but topic {topic} has {found}")
    return str(described["topic_id"])


def check_log(settings: Settings, folded: FoldedLog, only: Collection[int] | None = None) -> TopicExtent:
    """Compare Kafka's log with the tables; blocks.

    Args:
        folded: How far the tables cover the log, and of which topic.
        only: Partitions to compare; None for all.

    Returns:
        Identity and offsets of the events topic.

    Raises:
        LogReplaced: The topic was recreated, or has another record at the offset of the last folded one, or has fewer
            partitions than the tables.
        LogTruncated: The log ends before the last folded record.
        KafkaUnreachable: No Kafka broker answers.
        ConfigError: The topic does not exist, or its number of partitions differs from the configuration.
    """
    extent = read_extent(settings, only)
    if folded.topic_id and folded.topic_id != extent.topic_id:
        topic = settings.kafka.broker_events_topic
        raise LogReplaced(
            f"Kafka's topic {topic} has the id {extent.topic_id}, the tables were made from one with the id"
            f" {folded.topic_id}: the log is another one",
            is_other_topic=True,
        )
    partitions = settings.kafka.partitions
    if max(folded.progress, default=0) >= partitions:
        raise LogReplaced(
            f"the tables were made from {len(folded.progress)} partitions, Kafka's topic has {partitions}"
        )
    progress = {p: place for p, place in sorted(folded.progress.items()) if p in extent.end}
    for partition, place in progress.items():
        if place.next_offset > extent.end[partition]:
            raise LogTruncated(partition, place.next_offset, extent.earliest[partition], extent.end[partition])
    known = {p: place for p, place in progress.items() if place.fingerprint}
    present = {p: place for p, place in known.items() if place.next_offset > extent.earliest[p]}
    if present:
        _check_records(settings, present)
    return extent


def _check_records(settings: Settings, progress: Mapping[int, Place]) -> None:
    with LogReader(settings) as reader:
        for partition, place in sorted(progress.items()):
            offset = place.next_offset - 1
            try:
                found = [record for batch in reader.batches(partition, offset, offset + 1) for record in batch]
            except RecordsRemoved:
                continue  # Kafka's retention has just removed them
            if [fingerprint(record.at_ms, record.value) for record in found] != [place.fingerprint]:
                raise LogReplaced(
                    f"partition {partition}: the record at offset {offset} is not the one that was folded:"
                    " Kafka has lost records since then, and has others in their place"
                )
