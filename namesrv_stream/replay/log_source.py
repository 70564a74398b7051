"""The log that is folded again: what it holds, and its records."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from namesrv_stream.kafka import LogReader
from namesrv_stream.route.fold import Record
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.topic import TopicExtent, read_extent


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log, open for reading.

    Attributes:
        extent: What it held when it was opened.
        batches: As ``LogReader.batches``.
        offset_at: As ``LogReader.offset_at``.
    """

    extent: TopicExtent
    batches: Callable[[int, int, int], Iterator[list[Record]]]
    offset_at: Callable[[int, int], int | None]


#: Opens the log of these settings.
OpenLog = Callable[[Settings], AbstractContextManager[LogSource]]


@contextmanager
def open_kafka_log(settings: Settings) -> Iterator[LogSource]:
    """The events topic.

    Raises:
        KafkaUnreachable: No broker answers.
    """
    with LogReader(settings) as reader:
        yield LogSource(read_extent(settings), reader.batches, reader.offset_at)
