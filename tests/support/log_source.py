"""Logs in memory that replace Kafka in a replay."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.tools.replay.log_archive import OpenLog
from namesrv_stream.tools.replay.log_source import LogSource, Piece, Store
from tests.support.builders import Log
from tests.support.tables import TOPIC_ID


class _Records(NamedTuple):
    """The records of each partition from its first to its last offset, in batches."""

    logs: Sequence[Log]
    firsts: Sequence[int]
    ends: Sequence[int]
    batch: int

    def batches(self, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
        assert self.firsts[partition] <= begin
        assert end <= self.ends[partition]
        wanted = self.logs[partition].records[begin:end]
        yield from (wanted[at : at + self.batch] for at in range(0, len(wanted), self.batch))

    def offset_at(self, partition: int, at_ms: int) -> int | None:
        kept = self.logs[partition].records[self.firsts[partition] : self.ends[partition]]
        return next((record.offset for record in kept if record.at_ms >= at_ms), None)


def source_of(*logs: Log, earliest: int | Sequence[int] = 0, end: int | None = None, batch: int = 7) -> LogSource:
    """Return the records of each log from ``earliest`` (one offset, or one per log) to ``end``, in batches."""
    firsts = [earliest] * len(logs) if isinstance(earliest, int) else earliest
    ends = [len(log.records) if end is None else end for log in logs]
    pieces = {p: (Piece(Store.KAFKA, first, ends[p]),) for p, first in enumerate(firsts)}
    return LogSource(TOPIC_ID, pieces, {Store.KAFKA: _Records(logs, firsts, ends, batch)})


def opens(source: LogSource) -> OpenLog:
    """Return a function that opens the source."""

    @contextmanager
    def open_log(settings: Settings) -> Iterator[LogSource]:
        yield source

    return open_log
