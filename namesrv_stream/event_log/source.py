"""The log that is folded again: what is known of it, and its records."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from namesrv_stream.event_log.pieces import Piece, Store, clipped, gaps, unbroken_from
from namesrv_stream.route.fold import Record

#: (partition, first offset, offset after the last) → records, some thousand at a time; no gap may be in between.
Batches = Callable[[int, int, int], Iterator[list[Record]]]
#: (partition, epoch milliseconds) → the first offset of that LogAppendTime or a later one; None where there is none.
OffsetAt = Callable[[int, int], int | None]

_NAMES = {Store.KAFKA: "Kafka", Store.ARCHIVE: "broker_events"}


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log, open for reading.

    Attributes:
        topic_id: Kafka's id of the topic.
        pieces: partition → what is read from which store, as of when it was opened.
        batches: Reads records; blocks.
        offset_at: Finds an instant; blocks.
        has_kafka: Whether Kafka answers. Without it the log ends where the archive does.
        is_kafka_preferred: Whether a beginning that Kafka alone has is to be tried before one further back.
        notes: What whoever reads it should know, a sentence each.
    """

    topic_id: str
    pieces: Mapping[int, tuple[Piece, ...]]
    batches: Batches
    offset_at: OffsetAt
    has_kafka: bool = True
    is_kafka_preferred: bool = True
    notes: tuple[str, ...] = ()

    def begin(self, partition: int) -> int:
        """The first offset of all; 0 where there is none."""
        return self.pieces[partition][0].begin if self.pieces[partition] else 0

    def end(self, partition: int) -> int:
        """The offset after the last record."""
        return self.pieces[partition][-1].end if self.pieces[partition] else 0

    def starts(self, partition: int, end: int) -> tuple[int, ...]:
        """The offsets from which on it can be read to ``end`` without a gap, the preferred one first."""
        unbroken = unbroken_from(self.pieces[partition], end)
        kafka = next((p.begin for p in self.pieces[partition] if p.store is Store.KAFKA), end)
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
