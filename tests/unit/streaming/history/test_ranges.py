"""Steps through ranges of offsets are small enough and always advance."""

from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.streaming.history.history_writer import step_end

_RANGES = st.dictionaries(
    st.integers(0, 5), st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=5
)


@given(_RANGES, st.integers(1, 50))
def test_steps_cover_every_range_once_and_are_small_enough(ranges: dict[int, tuple[int, int]], limit: int) -> None:
    begin = {p: first for p, (first, _) in ranges.items()}
    end = {p: last for p, (_, last) in ranges.items()}
    seen: list[tuple[int, int]] = []
    at = begin
    while any(at[p] < end[p] for p in at):
        reached = step_end(at, end, limit)
        assert sum(reached[p] - at[p] for p in at) <= max(limit, len(at))
        seen += [(p, offset) for p in at for offset in range(at[p], reached[p])]
        at = reached
    assert sorted(seen) == [(p, offset) for p in sorted(begin) for offset in range(begin[p], end[p])]
