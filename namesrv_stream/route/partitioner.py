"""Assignment of broker names and events to Kafka partitions: murmur2, as in Kafka's default partitioner."""

from functools import lru_cache

from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    KvDeleted,
    KvPut,
    TopicRegistered,
    WritePermChanged,
)

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit murmur2 hash. Source: kafka, Utils.murmur2; vectors in schemas/partitioner.json."""
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
    """Return the partition of a broker name or KV namespace, from 0 to ``partitions`` - 1."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def routing_key(event: Event) -> str | None:
    """Return the broker name or KV namespace that decides an event's partition; None if it goes to every partition."""
    match event:
        case BrokerRegistered():
            return event.registration.broker_name
        case BrokerHeartbeat() | BrokerUnregistered() | BrokerDisconnected() | TopicRegistered() | WritePermChanged():
            return event.broker_name
        case KvPut() | KvDeleted():
            return event.namespace
        case _:
            return None
