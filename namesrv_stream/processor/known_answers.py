"""Whole answers to route queries that were answered before, until their topics' routes change."""

import struct
from collections import defaultdict
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

_OPAQUE: Final = b'"opaque":'
_OPAQUE_BYTES: Final = len(_OPAQUE)
#: Larger numbers do not fit 32 bits: the general path judges them.
_MAX_OPAQUE: Final = b"2147483647"
_ZERO: Final = ord("0")
_LENGTHS: Final = struct.Struct(">II")


class AnswerParts(NamedTuple):
    """An answer without what differs from one request to the other.

    Attributes:
        header_bytes: Of its header, without the opaque's digits.
        head: Of its header, up to the opaque.
        tail: What follows that: the rest of the header, and the body.
    """

    header_bytes: int
    head: bytes
    tail: bytes

    def frame(self, opaque: bytes) -> bytes:
        """The answer to a request of that number, with its length prefix."""
        header_bytes = self.header_bytes + len(opaque)
        body_bytes = len(self.head) + len(self.tail) - self.header_bytes
        return _LENGTHS.pack(4 + header_bytes + body_bytes, header_bytes) + self.head + opaque + self.tail


class KnownAnswers(Protocol):
    """Who keeps them."""

    def find(self, frame: bytes) -> bytes | None:
        """The answer to a request frame (with and without length prefix, respectively)."""

    def know(self, frame: bytes, topic: str, parts: AnswerParts) -> None:
        """What was just answered to a frame; the same is right for those that have another opaque there."""

    def forget(self, topics: Collection[str] | None) -> None:
        """The routes of these topics have changed; None: any may have."""


class AnswersInMemory:
    """Keeps them in a table; what is beyond ``max_bytes`` clears it.

    Attributes:
        known_bytes: Of answers that are kept, and of what they are known by.
    """

    def __init__(self, max_bytes: int = 16 << 20) -> None:
        self.known_bytes = 0
        self._max_bytes = max_bytes
        # The frame without its opaque → bytes of the frame, and the answer's around the opaque.
        self._known: dict[bytes, tuple[int, bytes, bytes]] = {}
        self._known_of: defaultdict[str, list[bytes]] = defaultdict(list)  # topic → such frames

    def find(self, frame: bytes) -> bytes | None:
        """As ``KnownAnswers``."""
        at = frame.find(_OPAQUE) + _OPAQUE_BYTES
        end = frame.find(b",", at)
        known = self._known.get(frame[:at] + frame[end:])
        if known is None:
            return None
        frame_bytes, head, tail = known
        opaque = frame[at:end]
        return head + opaque + tail if len(frame) == frame_bytes and is_canonical(opaque) else None

    def know(self, frame: bytes, topic: str, parts: AnswerParts) -> None:
        """As ``KnownAnswers``."""
        if self.known_bytes > self._max_bytes:
            self.forget(None)
        at = frame.find(_OPAQUE) + _OPAQUE_BYTES
        end = frame.find(b",", at)
        key = frame[:at] + frame[end:]
        lengths = parts.frame(frame[at:end])[: _LENGTHS.size]
        if key in self._known:  # of another length
            self.known_bytes -= _size_of(self._known[key])
        else:
            self._known_of[topic].append(key)
        self._known[key] = answer = (len(frame), lengths + parts.head, parts.tail)
        self.known_bytes += _size_of(answer)

    def forget(self, topics: Collection[str] | None) -> None:
        """As ``KnownAnswers``."""
        if topics is None:
            self._known.clear()
            self._known_of.clear()
            self.known_bytes = 0
            return
        for topic in self._known_of.keys() & topics:
            for key in self._known_of.pop(topic):
                self.known_bytes -= _size_of(self._known.pop(key))


def is_canonical(opaque: bytes) -> bool:
    """Whether the general path would write the number back as it stands."""
    return (
        opaque.isdigit()
        and (opaque[0] != _ZERO or len(opaque) == 1)
        and (len(opaque) < len(_MAX_OPAQUE) or (len(opaque) == len(_MAX_OPAQUE) and opaque <= _MAX_OPAQUE))
    )


def _size_of(answer: tuple[int, bytes, bytes]) -> int:
    frame_bytes, head, tail = answer
    return frame_bytes + len(head) + len(tail)
