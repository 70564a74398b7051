"""Counts the bytes of incomplete frames, preambles and TLS handshakes, with their age, and limits their total."""

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

H = TypeVar("H", bound=Hashable)


class _Held(NamedTuple):
    since_ms: int
    size: int


class PartialFrames(Generic[H]):
    """The incomplete bytes of every holder, in the order in which they began.

    Normal peers complete a frame within milliseconds. Above the limit, the oldest holder is therefore removed first;
    holders for which ``is_spared`` is true come last.

    Attributes:
        size: Total number of bytes.
    """

    def __init__(self, limit: int, is_spared: Callable[[H], bool] = lambda _: False) -> None:
        self.size = 0
        self._limit = limit
        self._is_spared = is_spared
        self._held: dict[H, _Held] = {}

    def hold(self, holder: H, size: int, now_ms: int, *, is_new: bool) -> list[H]:
        """Set the bytes of ``holder``; remove and return the holders that exceed the limit.

        Args:
            holder: Holder of the bytes, which may be among those removed.
            size: Number of bytes that it holds now; 0 if there are none.
            now_ms: Observed time.
            is_new: Whether the bytes begin a new frame, because the previous one is complete.
        """
        before = self._held.get(holder)
        if before is not None and (is_new or not size):
            self.forget(holder)
            before = None
        if size:
            self._held[holder] = _Held(before.since_ms if before else now_ms, size)
            self.size += size - (before.size if before else 0)
        gone = []
        while self.size > self._limit:
            one = next((h for h in self._held if not self._is_spared(h)), None) or next(iter(self._held))
            self.forget(one)
            gone.append(one)
        return gone

    def forget(self, holder: H) -> None:
        """Remove a holder."""
        held = self._held.pop(holder, None)
        if held is not None:
            self.size -= held.size

    def postpone(self, holder: H, by_ms: int) -> None:
        """Move the start of a holder's bytes, if any, to a later time: the holder was not read meanwhile."""
        held = self._held.get(holder)
        if held is not None:
            self._held[holder] = held._replace(since_ms=held.since_ms + by_ms)

    def older_than(self, since_ms: int) -> list[H]:
        """Return the holders whose bytes began before ``since_ms``."""
        return [holder for holder, held in self._held.items() if held.since_ms < since_ms]
