"""The log as a sequence of pieces, each of which is stored by Kafka or by the archive."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from namesrv_stream.route.fold.step import Record


class Store(StrEnum):
    """A store of records."""

    KAFKA = "kafka"
    ARCHIVE = "archive"


class Span(NamedTuple):
    """The offsets ``begin <= offset < end``."""

    begin: int
    end: int


class Piece(NamedTuple):
    """Records to read from one store, ``begin <= offset < end``. Kafka's piece is empty if Kafka has no records."""

    store: Store
    begin: int
    end: int


def joined(archived: Iterable[Span], kafka: Span | None, *, archive_first: bool) -> tuple[Piece, ...]:
    """Return the pieces to read from each store, ascending; what both contain is read from one of them.

    Args:
        archived: The spans in the archive.
        kafka: The span in Kafka, which ends the log: later rows of the archive are of records that Kafka has lost and
            whose offsets it assigns again. None if Kafka does not answer.
        archive_first: Whether to read from the archive what both contain.
    """
    archive = sorted(archived)
    if kafka is None:
        return tuple(Piece(Store.ARCHIVE, *span) for span in archive)
    archive = [Span(s.begin, min(s.end, kafka.end)) for s in archive if s.begin < kafka.end]
    if archive_first:
        taken, rest = archive, list(_without(kafka, archive))
    else:
        taken, rest = [part for span in archive for part in _without(span, [kafka])], [kafka]
    pieces = [*(Piece(Store.ARCHIVE, *span) for span in taken), *(Piece(Store.KAFKA, *span) for span in rest)]
    return tuple(sorted(pieces, key=lambda piece: (piece.begin, piece.end)))


def gaps(pieces: Sequence[Piece]) -> list[Span]:
    """Return the spans that no store contains, from offset 0 to the end of the last piece."""
    ends = [0, *(piece.end for piece in pieces)]
    return [Span(end, piece.begin) for end, piece in zip(ends, pieces, strict=False) if end < piece.begin]


def unbroken_from(pieces: Sequence[Piece], end: int) -> int:
    """Return the first offset from which all records before ``end`` exist; ``end`` if the last one is missing."""
    begin = end
    for piece in reversed(pieces):
        if piece.begin <= begin <= piece.end:
            begin = piece.begin
    return begin


def clipped(pieces: Iterable[Piece], begin: int, end: int) -> Iterator[Piece]:
    """Yield the parts of the pieces within a range."""
    for piece in pieces:
        low, high = max(piece.begin, begin), min(piece.end, end)
        if low < high:
            yield Piece(piece.store, low, high)


def _without(span: Span, others: Iterable[Span]) -> Iterator[Span]:
    """Yield the parts of a span that no other one covers; an empty span stays, since it marks the end of the log."""
    begin = span.begin
    for other in others:
        if other.begin >= span.end or other.end <= begin:
            continue
        if begin < other.begin:
            yield Span(begin, other.begin)
        begin = min(other.end, span.end)
    if begin < span.end or span.begin == span.end:
        yield Span(begin, span.end)


_NAMES: Final = {Store.KAFKA: "Kafka", Store.ARCHIVE: "broker_events"}


class LogStore(Protocol):
    """A reader of a store; both methods block."""

    def batches(self, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
        """Yield the records with ``begin <= offset < end``, some thousand at a time; none may be missing."""

    def offset_at(self, partition: int, at_ms: int) -> int | None:
        """Return the first offset whose LogAppendTime is ``at_ms`` (epoch milliseconds) or later; None without one."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log, open for reading.

    Attributes:
        topic_id: Kafka's id of the topic.
        pieces: Partition → the pieces to read, as of the opening.
        stores: The stores to read from.
        has_kafka: Whether Kafka answers. Otherwise the log ends with the archive.
        is_kafka_preferred: Whether to try a start in Kafka before an earlier one in the archive.
        notes: Remarks for the user, such as why the archive is not used.
        begins: Partition → first offset that was written for the present number of partitions; no fold crosses it. {}
            if the number never changed.
    """

    topic_id: str
    pieces: Mapping[int, tuple[Piece, ...]]
    stores: Mapping[Store, LogStore]
    has_kafka: bool = True
    is_kafka_preferred: bool = True
    notes: tuple[str, ...] = ()
    begins: Mapping[int, int] = field(default_factory=dict)

    def begin(self, partition: int) -> int:
        """Return the first offset of the partition; 0 if the log has none."""
        return self.pieces[partition][0].begin if self.pieces[partition] else 0

    def end(self, partition: int) -> int:
        """Return the offset after the last record of the partition; 0 if the log has none."""
        return self.pieces[partition][-1].end if self.pieces[partition] else 0

    def batches(self, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
        """Yield the records with ``begin <= offset < end``, which has no gap, some thousand at a time; blocks."""
        for piece in self.read_from(partition, begin, end):
            yield from self.stores[piece.store].batches(partition, piece.begin, piece.end)

    def offset_at(self, partition: int, at_ms: int) -> int | None:
        """Return the first offset at or after ``at_ms``, epoch milliseconds of LogAppendTime; None if none; blocks."""
        for piece in self.pieces[partition]:
            found = self.stores[piece.store].offset_at(partition, at_ms)
            if found is not None and found < piece.end:
                return max(found, piece.begin)
        return None

    def starts(self, partition: int, end: int) -> tuple[int, ...]:
        """Return the offsets from which the log can be read to ``end`` without a gap, the preferred one first."""
        unbroken = max(unbroken_from(self.pieces[partition], end), self.begins.get(partition, 0))
        kafka = next((max(p.begin, unbroken) for p in self.pieces[partition] if p.store is Store.KAFKA), end)
        return (kafka, unbroken) if self.is_kafka_preferred and unbroken < kafka <= end else (unbroken,)

    def gap_before(self, partition: int, offset: int) -> str | None:
        """Return which records are missing just before an offset, and why, as text; None if none are."""
        gap = next((gap for gap in gaps(self.pieces[partition]) if gap.end == offset), None)
        return None if gap is None else _gap_text(partition, gap.begin, gap.end)

    def gap_texts(self) -> tuple[str, ...]:
        """Return a sentence for every gap in the log, with its possible reasons."""
        found = ((p, gap) for p in sorted(self.pieces) for gap in gaps(self.pieces[p]))
        return tuple(_gap_text(partition, *gap) for partition, gap in found)

    def read_from(self, partition: int, begin: int, end: int) -> tuple[Piece, ...]:
        """Return the pieces that contain the records with ``begin <= offset < end``."""
        return tuple(clipped(self.pieces[partition], begin, end))


def read_from_text(pieces: tuple[Piece, ...]) -> str:
    """Return the ranges of offsets and the store that each of them is read from, as text."""
    return ", ".join(f"{piece.begin} to {piece.end - 1} from {_NAMES[piece.store]}" for piece in pieces)


def _gap_text(partition: int, begin: int, end: int) -> str:
    missing = f"partition {partition}: the records {begin} to {end - 1} are missing"
    if begin:
        return f"{missing}: Kafka removed them while the history did not run, or broker_events lost the rows"
    return f"{missing}: removed for their age (kafka.retention_ms; in broker_events: history.events_retention_ms)"
