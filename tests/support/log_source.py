"""Logs in memory where a replay expects Kafka's."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from namesrv_stream.event_log.opening import OpenLog
from namesrv_stream.event_log.pieces import Piece, Store
from namesrv_stream.event_log.source import LogSource
from namesrv_stream.route.fold import Record
from namesrv_stream.settings import Settings
from tests.support.builders import Log
from tests.support.tables import TOPIC_ID


def source_of(*logs: Log, earliest: int | Sequence[int] = 0, end: int | None = None, batch: int = 7) -> LogSource:
    """The records of each partition's log from ``earliest`` (of all, or of each) to ``end``, so many at a time."""
    firsts = [earliest] * len(logs) if isinstance(earliest, int) else earliest
    ends = [len(log.records) if end is None else end for log in logs]

    def batches(partition: int, begin: int, until: int) -> Iterator[list[Record]]:
        assert firsts[partition] <= begin
        assert until <= ends[partition]
        wanted = logs[partition].records[begin:until]
        yield from (wanted[at : at + batch] for at in range(0, len(wanted), batch))

    def offset_at(partition: int, at_ms: int) -> int | None:
        kept = logs[partition].records[firsts[partition] : ends[partition]]
        return next((record.offset for record in kept if record.at_ms >= at_ms), None)

    pieces = {p: (Piece(Store.KAFKA, first, ends[p]),) for p, first in enumerate(firsts)}
    return LogSource(TOPIC_ID, pieces, batches, offset_at)


def opens(source: LogSource) -> OpenLog:
    """What opens it."""

    @contextmanager
    def open_log(settings: Settings) -> Iterator[LogSource]:
        yield source

    return open_log
