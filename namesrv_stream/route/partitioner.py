"""Which Kafka partition holds a broker name: murmur2, as Kafka's own default partitioner."""

from functools import lru_cache

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Unsigned 32-bit murmur2 of ``data``. Source: kafka, Utils.murmur2; vectors in schemas/partitioner.json."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65_536)
def partition_of(key: str, partitions: int) -> int:
    """Partition of a broker name (or KV namespace) among ``partitions``."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions
