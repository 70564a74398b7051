"""The log that is folded again: what is known of it, and its records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from namesrv_stream.event_log.pieces import Piece, Store, clipped, gaps, unbroken_from
from namesrv_stream.route.fold.step import Record

_NAMES: Final = {Store.KAFKA: "Kafka", Store.ARCHIVE: "broker_events"}


class LogStore(Protocol):
    """What holds records; both block."""

    def batches(self, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
        """Records with ``begin <= offset < end``, some thousand at a time; none of them may be missing."""

    def offset_at(self, partition: int, at_ms: int) -> int | None:
        """The first offset whose LogAppendTime is ``at_ms`` (epoch milliseconds) or later; None where none is."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log, open for reading.

    Attributes:
        topic_id: Kafka's id of the topic.
        pieces: partition → what is read from which store, as of when it was opened.
        stores: What it is read from.
        has_kafka: Whether Kafka answers. Without it the log ends where the archive does.
        is_kafka_preferred: Whether a beginning that Kafka alone has is to be tried before one further back.
        notes: What whoever reads it should know, a sentence each.
        begins: partition → first offset written for as many partitions as there are; nothing is folded over it. {}
            where there always were so many.
    """

    topic_id: str
    pieces: Mapping[int, tuple[Piece, ...]]
    stores: Mapping[Store, LogStore]
    has_kafka: bool = True
    is_kafka_preferred: bool = True
    notes: tuple[str, ...] = ()
    begins: Mapping[int, int] = field(default_factory=dict)

    def begin(self, partition: int) -> int:
        """The first offset of all; 0 where there is none."""
        return self.pieces[partition][0].begin if self.pieces[partition] else 0

    def end(self, partition: int) -> int:
        """The offset after the last record."""
        return self.pieces[partition][-1].end if self.pieces[partition] else 0

    def batches(self, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
        """Records with ``begin <= offset < end``, some thousand at a time; no gap may be in between. Blocks."""
        for piece in self.read_from(partition, begin, end):
            yield from self.stores[piece.store].batches(partition, piece.begin, piece.end)

    def offset_at(self, partition: int, at_ms: int) -> int | None:
        """The first offset of LogAppendTime ``at_ms`` (epoch milliseconds) or later; None where none is; blocks."""
        for piece in self.pieces[partition]:
            found = self.stores[piece.store].offset_at(partition, at_ms)
            if found is not None and found < piece.end:
                return max(found, piece.begin)
        return None

    def starts(self, partition: int, end: int) -> tuple[int, ...]:
        """The offsets from which on it can be read to ``end`` without a gap, the preferred one first."""
        unbroken = max(unbroken_from(self.pieces[partition], end), self.begins.get(partition, 0))
        kafka = next((max(p.begin, unbroken) for p in self.pieces[partition] if p.store is Store.KAFKA), end)
        return (kafka, unbroken) if self.is_kafka_preferred and unbroken < kafka <= end else (unbroken,)

    def gap_before(self, partition: int, offset: int) -> str | None:
        """What is missing just before an offset, and why, for people; None where nothing is."""
        gap = next((gap for gap in gaps(self.pieces[partition]) if gap.end == offset), None)
        return None if gap is None else _gap_text(partition, gap.begin, gap.end)

    def gap_texts(self) -> tuple[str, ...]:
        """All that is missing, and why, a sentence each."""
        found = ((p, gap) for p in sorted(self.pieces) for gap in gaps(self.pieces[p]))
        return tuple(_gap_text(partition, *gap) for partition, gap in found)

    def read_from(self, partition: int, begin: int, end: int) -> tuple[Piece, ...]:
        """From which store each part of a range is read."""
        return tuple(clipped(self.pieces[partition], begin, end))


def read_from_text(pieces: tuple[Piece, ...]) -> str:
    """Where records are read from, for people."""
    return ", ".join(f"{piece.begin} to {piece.end - 1} from {_NAMES[piece.store]}" for piece in pieces)


def _gap_text(partition: int, begin: int, end: int) -> str:
    missing = f"partition {partition}: the records {begin} to {end - 1} are missing"
    if begin:
        return f"{missing}: Kafka removed them while the history did not run, or broker_events lost the rows"
    return f"{missing}: removed for their age (kafka.retention_ms; of broker_events history.events_retention_ms)"
