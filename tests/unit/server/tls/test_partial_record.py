"""How much is held of a record that is not complete, whatever the stream is cut into."""

from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.server.tls.transport import PartialRecord

_SIZES = st.integers(0, 40) | st.sampled_from([255, 256, 16_384])


def _records(sizes: list[int]) -> list[bytes]:
    return [b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size) for size in sizes]


@given(st.lists(_SIZES, min_size=1, max_size=6), st.lists(st.integers(1, 50) | st.just(20_000), min_size=1))
def test_it_is_what_has_come_since_the_last_record_ended(sizes: list[int], cuts: list[int]) -> None:
    records = _records(sizes)
    stream = b"".join(records)
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(record))
    partial, at = PartialRecord(), 0
    while at < len(stream):
        for cut in cuts:
            partial.feed(stream[at : at + cut])
            at = min(at + cut, len(stream))
            assert partial.size == at - max(end for end in ends if end <= at)
    assert partial.size == 0


def test_nothing_is_held_before_anything_has_come() -> None:
    partial = PartialRecord()
    partial.feed(b"")
    assert partial.size == 0
