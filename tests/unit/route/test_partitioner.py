import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from namesrv_stream.route.events import murmur2, partition_of


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973_932_308),
        (b"foobar", -790_332_482),
        (b"a-little-bit-long-string", -985_981_536),
        (b"a-little-bit-longer-string", -1_486_304_829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        (b"abc", 479_470_107),
    ],
)
def test_hash_equals_that_in_kafkas_own_tests(data: bytes, signed: int) -> None:
    """Source: kafka, UtilsTest.testMurmur2."""
    assert murmur2(data) == signed & 0xFFFFFFFF


@given(st.binary(max_size=20))
def test_hash_is_that_of_the_client_library(data: bytes) -> None:
    assert murmur2(data) == kafka_murmur2(data) & 0xFFFFFFFF


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.integers(1, 12))
def test_partition_is_that_of_kafkas_default_partitioner(key: str, partitions: int) -> None:
    assert partition_of(key, partitions) == (kafka_murmur2(key.encode()) & 0x7FFFFFFF) % partitions
