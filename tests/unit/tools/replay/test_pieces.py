"""Which store is read for which offsets, and which offsets no store has."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.tools.replay.log_source import Piece, Span, Store, clipped, gaps, joined, unbroken_from

K, A = Store.KAFKA, Store.ARCHIVE


@pytest.mark.parametrize(
    ("archived", "kafka", "kafka_first", "archive_first"),
    [
        ([], (0, 9), [(K, 0, 9)], [(K, 0, 9)]),
        ([(0, 5)], (3, 9), [(A, 0, 3), (K, 3, 9)], [(A, 0, 5), (K, 5, 9)]),
        ([(0, 3)], (3, 9), [(A, 0, 3), (K, 3, 9)], [(A, 0, 3), (K, 3, 9)]),
        ([(0, 2), (4, 6)], (5, 9), [(A, 0, 2), (A, 4, 5), (K, 5, 9)], [(A, 0, 2), (A, 4, 6), (K, 6, 9)]),
        ([(2, 4), (6, 7)], (0, 9), [(K, 0, 9)], [(K, 0, 2), (A, 2, 4), (K, 4, 6), (A, 6, 7), (K, 7, 9)]),
        ([(0, 9)], (9, 9), [(A, 0, 9), (K, 9, 9)], [(A, 0, 9), (K, 9, 9)]),
        ([(0, 12)], (3, 9), [(A, 0, 3), (K, 3, 9)], [(A, 0, 9)]),
        ([], (5, 5), [(K, 5, 5)], [(K, 5, 5)]),
    ],
)
def test_offsets_in_both_stores_are_read_from_the_preferred_one(
    archived: list[tuple[int, int]],
    kafka: tuple[int, int],
    kafka_first: list[tuple[Store, int, int]],
    archive_first: list[tuple[Store, int, int]],
) -> None:
    spans = [Span(*span) for span in archived]
    assert list(joined(spans, Span(*kafka), archive_first=False)) == kafka_first
    assert list(joined(spans, Span(*kafka), archive_first=True)) == archive_first


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=4),
    st.tuples(st.integers(0, 30), st.integers(0, 12)),
    st.booleans(),
)
def test_every_offset_of_either_store_before_the_end_of_the_log_is_in_exactly_one_piece(
    archived: list[tuple[int, int]], kafka: tuple[int, int], archive_first: bool
) -> None:
    spans: list[Span] = []
    for gap, length in archived:
        begin = gap + (spans[-1].end + 1 if spans else 0)
        spans.append(Span(begin, begin + length))
    held = Span(kafka[0], sum(kafka))
    pieces = joined(spans, held, archive_first=archive_first)
    found = [offset for piece in pieces for offset in range(piece.begin, piece.end)]
    expected = {offset for span in (*spans, held) for offset in range(*span) if offset < held.end}
    assert found == sorted(expected)
    assert all(before.end <= after.begin for before, after in pairwise(pieces))
    missing = {offset for gap in gaps(pieces) for offset in range(*gap)}
    assert missing == set(range(held.end)) - expected
    begin = unbroken_from(pieces, held.end)
    assert set(range(begin, held.end)) <= expected
    assert begin - 1 not in expected


def test_without_kafka_only_the_archive_is_read() -> None:
    assert joined([Span(2, 5)], None, archive_first=True) == (Piece(A, 2, 5),)
    assert joined([], None, archive_first=True) == ()


def test_gaps_are_what_lies_before_and_between_the_pieces() -> None:
    pieces = joined([Span(3, 5), Span(7, 8)], Span(10, 12), archive_first=False)
    assert gaps(pieces) == [(0, 3), (5, 7), (8, 10)]
    assert [unbroken_from(pieces, end) for end in (12, 11, 10, 8, 6, 5, 4, 2)] == [10, 10, 10, 7, 6, 3, 3, 2]


def test_range_selects_parts_of_the_pieces() -> None:
    pieces = joined([Span(0, 5)], Span(5, 9), archive_first=False)
    assert list(clipped(pieces, 3, 7)) == [(A, 3, 5), (K, 5, 7)]
    assert list(clipped(pieces, 5, 5)) == []
