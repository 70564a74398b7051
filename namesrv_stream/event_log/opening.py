"""Opens the log where it is: in Kafka, in the archive, or one behind the other."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

from namesrv_stream.errors import ConfigError, KafkaUnreachable, NotInHistory
from namesrv_stream.event_log.archive import ArchivedEvents
from namesrv_stream.event_log.choice import Source
from namesrv_stream.event_log.pieces import Piece, Span, Store, joined
from namesrv_stream.event_log.source import LogSource
from namesrv_stream.kafka import LogReader
from namesrv_stream.kafka.log_check import read_extent
from namesrv_stream.settings import Settings

#: Opens the log of these settings.
OpenLog = Callable[[Settings], AbstractContextManager[LogSource]]


@contextmanager
def open_kafka_log(settings: Settings) -> Iterator[LogSource]:
    """The events topic alone.

    Raises:
        KafkaUnreachable: No broker answers.
        ConfigError: There is no such topic, or it has other partitions than the configuration says.
    """
    with LogReader(settings) as reader:
        extent = read_extent(settings)
        pieces = {p: (Piece(Store.KAFKA, first, extent.end[p]),) for p, first in extent.earliest.items()}
        yield LogSource(extent.topic_id, pieces, {Store.KAFKA: reader})


def log_opener(
    source: Source = Source.AUTO, *, needs_kafka: bool = False, open_kafka: OpenLog = open_kafka_log
) -> OpenLog:
    """What opens the log.

    Args:
        source: Where to read it from. The archive is continued by Kafka for what it does not have yet.
        needs_kafka: Whether it is no log without its end; else, where Kafka does not answer, it ends with the archive.
        open_kafka: Opens what Kafka has.

    Returns:
        A function whose context raises KafkaUnreachable where Kafka is needed, or there is no archive either;
        NotInHistory where the archive is asked for and there is none; ConfigError where archive and Kafka have
        different topics.
    """

    @contextmanager
    def open_log(settings: Settings) -> Iterator[LogSource]:
        with ExitStack() as stack:
            try:
                kafka = stack.enter_context(open_kafka(settings))
            except KafkaUnreachable as error:
                if needs_kafka or source is Source.KAFKA:
                    raise
                yield _archive_alone(settings, source, error)
            else:
                yield _joined(settings, source, kafka)

    return open_log


def _archive_alone(settings: Settings, source: Source, error: KafkaUnreachable) -> LogSource:
    try:
        archive = ArchivedEvents.open(settings)
    except NotInHistory:
        if source is Source.ARCHIVE:
            raise
        raise error from None
    pieces = {p: joined(archive.spans(p), None, archive_first=True) for p in range(settings.kafka.partitions)}
    note = f"{error.name}: the log is read as far as broker_events has it"
    return LogSource(archive.topic_id, pieces, {Store.ARCHIVE: archive}, has_kafka=False, notes=(note,))


def _joined(settings: Settings, source: Source, kafka: LogSource) -> LogSource:
    """Kafka's log, with what the archive has in front of it or in its place."""
    if source is Source.KAFKA or (source is Source.AUTO and not any(kafka.begin(p) for p in kafka.pieces)):
        return kafka
    try:
        archive = ArchivedEvents.open(settings)
    except NotInHistory as error:
        if source is Source.ARCHIVE:
            raise
        return replace(kafka, notes=(str(error),))
    if archive.topic_id != kafka.topic_id:
        topic = settings.kafka.broker_events_topic
        reason = f"broker_events was made from topic id {archive.topic_id}, Kafka's {topic} has id {kafka.topic_id}"
        if source is Source.ARCHIVE:
            raise ConfigError("settings", "kafka.broker_events_topic", reason)
        return replace(kafka, notes=(f"{reason}: it is left out",))
    is_first = source is Source.ARCHIVE
    pieces = {
        p: joined(archive.spans(p), Span(kafka.begin(p), kafka.end(p)), archive_first=is_first) for p in kafka.pieces
    }
    stores = {**kafka.stores, Store.ARCHIVE: archive}
    return LogSource(kafka.topic_id, pieces, stores, is_kafka_preferred=not is_first)
