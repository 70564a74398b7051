"""A log in memory where a replay expects Kafka's."""

from collections.abc import Iterator
from contextlib import contextmanager

from namesrv_stream.replay.log_source import LogSource, OpenLog
from namesrv_stream.route.fold import Record
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.topic import TopicExtent
from tests.support.builders import Log
from tests.support.tables import TOPIC_ID


def source_of(log: Log, *, earliest: int = 0, end: int | None = None, batch: int = 7) -> LogSource:
    """The log's records from ``earliest`` to ``end``, so many at a time."""
    kept = [record for record in log.records if record.offset >= earliest and (end is None or record.offset < end)]
    log_end = len(log.records) if end is None else end

    def batches(partition: int, begin: int, until: int) -> Iterator[list[Record]]:
        assert earliest <= begin
        assert until <= log_end
        wanted = [record for record in kept if begin <= record.offset < until]
        yield from (wanted[at : at + batch] for at in range(0, len(wanted), batch))

    def offset_at(partition: int, at_ms: int) -> int | None:
        return next((record.offset for record in kept if record.at_ms >= at_ms), None)

    return LogSource(TopicExtent(TOPIC_ID, {0: earliest}, {0: log_end}), batches, offset_at)


def opens(source: LogSource) -> OpenLog:
    """What opens it."""

    @contextmanager
    def open_log(settings: Settings) -> Iterator[LogSource]:
        yield source

    return open_log
