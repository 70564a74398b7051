"""How far a log is folded, and how the log is identified.

The tables store the fingerprint of the last folded record of each partition. If Kafka has another record at that
offset, Kafka has lost records or the topic was recreated, even if the log has grown in the meantime (ADR 0049).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple


class Place(NamedTuple):
    """How far one partition of the log is folded.

    Attributes:
        next_offset: The first offset that is not folded.
        fingerprint: Fingerprint of the record before it; 0 if it is not known.
    """

    next_offset: int
    fingerprint: int = 0


#: Partition → how far it is folded.
Progress = Mapping[int, Place]


@dataclass(frozen=True, slots=True)
class FoldedLog:
    """The log as far as the tables cover it.

    Attributes:
        topic_id: Kafka's id of the topic; "" if there are no tables yet.
        progress: How far each partition is folded.
    """

    topic_id: str = ""
    progress: Progress = field(default_factory=dict)


def fingerprint(at_ms: int, value: bytes) -> int:
    """Return a hash that distinguishes records at the same offset: 63 bits, never 0.

    Args:
        at_ms: LogAppendTime, epoch milliseconds.
        value: The record's value.
    """
    digest = blake2b(value, digest_size=8, key=at_ms.to_bytes(8, "big", signed=True)).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1
