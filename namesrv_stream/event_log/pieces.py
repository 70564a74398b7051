"""Which store has which records of one partition: arithmetic of half-open ranges of offsets."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple


class Store(StrEnum):
    """Where records are."""

    KAFKA = "kafka"
    ARCHIVE = "archive"


class Span(NamedTuple):
    """Offsets ``begin <= offset < end``."""

    begin: int
    end: int


class Piece(NamedTuple):
    """Records that are read from one store: ``begin <= offset < end``; empty where Kafka holds none."""

    store: Store
    begin: int
    end: int


def joined(archived: Iterable[Span], kafka: Span | None, *, archive_first: bool) -> tuple[Piece, ...]:
    """What each store is read for, ascending: what both have is read from one of them.

    Args:
        archived: What the archive has.
        kafka: What Kafka has, which is where the log ends: what the archive has beyond is of records that Kafka has
            lost, and whose offsets it gives to others. None where Kafka does not answer.
        archive_first: Whether what both have is read from the archive.
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
    """What no store has, from offset 0 to the end of the last piece."""
    ends = [0, *(piece.end for piece in pieces)]
    return [Span(end, piece.begin) for end, piece in zip(ends, pieces, strict=False) if end < piece.begin]


def unbroken_from(pieces: Sequence[Piece], end: int) -> int:
    """The first offset from which all records up to ``end``, excluded, are there; ``end`` where the last is missing."""
    begin = end
    for piece in reversed(pieces):
        if piece.begin <= begin <= piece.end:
            begin = piece.begin
    return begin


def clipped(pieces: Iterable[Piece], begin: int, end: int) -> Iterator[Piece]:
    """What of the pieces is within a range."""
    for piece in pieces:
        low, high = max(piece.begin, begin), min(piece.end, end)
        if low < high:
            yield Piece(piece.store, low, high)


def _without(span: Span, others: Iterable[Span]) -> Iterator[Span]:
    """What none of the others, ascending, covers; an empty span is left whole, for it tells where the log ends."""
    begin = span.begin
    for other in others:
        if other.begin >= span.end or other.end <= begin:
            continue
        if begin < other.begin:
            yield Span(begin, other.begin)
        begin = min(other.end, span.end)
    if begin < span.end or span.begin == span.end:
        yield Span(begin, span.end)
