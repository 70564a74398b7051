"""What connections hold of frames, preambles and TLS handshakes that are not complete: how much, and for how long."""

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

H = TypeVar("H", bound=Hashable)


class _Held(NamedTuple):
    since_ms: int
    size: int


class PartialFrames(Generic[H]):
    """Bytes held by each holder, in the order in which they began.

    A peer that sends as brokers do is done within milliseconds, so whoever is the oldest when there is too much is the
    one who can best be done without; but those that are spared come last.

    Attributes:
        size: Bytes in all.
    """

    def __init__(self, limit: int, is_spared: Callable[[H], bool] = lambda _: False) -> None:
        self.size = 0
        self._limit = limit
        self._is_spared = is_spared
        self._held: dict[H, _Held] = {}

    def hold(self, holder: H, size: int, now_ms: int, *, is_new: bool) -> list[H]:
        """``holder`` holds ``size`` bytes now; those that have to go for it, which are forgotten.

        Args:
            holder: It may be among those that have to go.
            size: 0 for nothing any more.
            now_ms: Observed time.
            is_new: They are the begin of something; what was held before is complete.
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
        """It holds nothing any more."""
        held = self._held.pop(holder, None)
        if held is not None:
            self.size -= held.size

    def postpone(self, holder: H, by_ms: int) -> None:
        """What it holds counts as begun so much later, if it holds anything: it was not read meanwhile."""
        held = self._held.get(holder)
        if held is not None:
            self._held[holder] = held._replace(since_ms=held.since_ms + by_ms)

    def older_than(self, since_ms: int) -> list[H]:
        """Who has held something since before ``since_ms``."""
        return [holder for holder, held in self._held.items() if held.since_ms < since_ms]
