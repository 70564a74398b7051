"""Positions of followers, and their tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.server.view.rows import BadToken, Place, Position, generation_of, parse_token, position_at

PLACES = st.builds(Place, st.integers(0, 10**12), st.integers(0, 10**6))
_NO_TOKENS = (
    *("", "1", "1..", "2.abc.1", "1.abc.-", "1.abc.1-", "1.abc.1_", "1.ABC.1", "1.abc.x", "1.abc.1٣", "1.abc.1\n"),
    *("1.abc." + "9" * 19, "1.abc." + "1-" * 40_000 + "1"),
)
POSITIONS = st.builds(Position, st.just("5f0c1b8ae9d24c77"), st.lists(PLACES, max_size=5).map(tuple))


@given(POSITIONS)
def test_a_token_is_read_as_it_was_written(position: Position) -> None:
    assert parse_token(position.token()) == position


@pytest.mark.parametrize("text", _NO_TOKENS)
def test_an_invalid_token_is_refused(text: str) -> None:
    with pytest.raises(BadToken):
        parse_token(text)


def test_tables_that_do_not_exist_have_a_token_too() -> None:
    position = position_at(generation_of(""), {})
    assert parse_token(position.token()) == position


def test_two_tables_have_different_generations() -> None:
    ids = ("0f2d3c1a-0000-4000-8000-000000000001", "0f2d3c1b-0000-4000-8000-000000000001")
    assert len({generation_of(table_id) for table_id in ids}) == 2


@given(POSITIONS, POSITIONS)
def test_a_joined_position_covers_both(one: Position, other: Position) -> None:
    joined = one.joined(other)
    assert joined.covers(one)
    assert joined.covers(other)


def test_a_position_inside_a_record_covers_only_the_rows_before_it() -> None:
    position = position_at("g", {0: 7}).after([(0, 7, 0), (0, 7, 1)])
    assert position.token() == "1.g.7_2"
    assert position.has(0, 7, 1)
    assert not position.has(0, 7, 2)
    assert not position.has(1, 0, 0)
