"""Bytes of incomplete frames: their sum is exact, and the oldest are dropped first."""

from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.server.net.connections import PartialFrames


def test_the_oldest_frame_is_dropped_if_the_sum_exceeds_the_limit() -> None:
    held: PartialFrames[str] = PartialFrames(100)
    assert held.hold("a", 40, 1, is_new=True) == []
    assert held.hold("b", 40, 2, is_new=True) == []
    assert held.hold("c", 30, 3, is_new=True) == ["a"]
    assert held.size == 70


def test_a_growing_frame_keeps_its_age_and_a_new_one_starts_again() -> None:
    held: PartialFrames[str] = PartialFrames(100)
    held.hold("a", 10, 1, is_new=True)
    held.hold("b", 10, 2, is_new=True)
    held.hold("a", 20, 3, is_new=False)
    assert list(held.older_than(2)) == ["a"]
    held.hold("a", 5, 4, is_new=True)
    assert list(held.older_than(4)) == ["b"]
    assert held.size == 15


def test_a_frame_larger_than_the_limit_is_dropped_itself() -> None:
    held: PartialFrames[str] = PartialFrames(100)
    assert held.hold("a", 101, 1, is_new=True) == ["a"]
    assert held.size == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.booleans(), st.integers(0, 1))))
def test_the_sum_is_exact_and_within_the_limit(steps: list[tuple[int, int, bool, int]]) -> None:
    held: PartialFrames[int] = PartialFrames(100)
    expected: dict[int, int] = {}
    for now_ms, (holder, size, is_new, is_end) in enumerate(steps):
        if is_end:
            held.forget(holder)
            expected.pop(holder, None)
            continue
        gone = held.hold(holder, size, now_ms, is_new=is_new)
        expected[holder] = size
        for one in gone:
            del expected[one]
        assert held.size == sum(expected.values()) <= 100
        order = list(held.older_than(now_ms + 1))
        assert sorted(order) == sorted(holder for holder, size in expected.items() if size)


def test_only_the_time_in_which_a_connection_was_not_read_is_subtracted_from_its_age() -> None:
    held: PartialFrames[str] = PartialFrames(100)
    held.hold("a", 1, 1_000, is_new=True)
    held.postpone("a", 500)
    held.postpone("nobody", 500)
    assert held.older_than(1_500) == []
    assert held.older_than(1_501) == ["a"]
    held.hold("a", 2, 1_600, is_new=False)
    assert held.older_than(1_501) == ["a"]
