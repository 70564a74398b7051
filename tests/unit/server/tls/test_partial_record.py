"""The size of an incomplete record, however the stream is split."""

from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.server.tls.transport import PartialRecord

_SIZES = st.integers(0, 40) | st.sampled_from([255, 256, 16_384])


def _records(sizes: list[int]) -> list[bytes]:
    return [b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size) for size in sizes]


@given(st.lists(_SIZES, min_size=1, max_size=6), st.lists(st.integers(1, 50) | st.just(20_000), min_size=1))
def test_the_size_counts_from_the_end_of_the_last_record(sizes: list[int], cuts: list[int]) -> None:
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


def test_the_size_is_zero_before_the_first_byte() -> None:
    partial = PartialRecord()
    partial.feed(b"")
    assert partial.size == 0
