"""An answer that costs something, kept for a while: those who ask meanwhile get the same one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from namesrv_stream.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Answers by question; one is made at a time. Belongs to one event loop."""

    def __init__(self, fresh_ms: int, clock: Clock) -> None:
        self._fresh_ms = fresh_ms
        self._clock = clock
        self._making = asyncio.Lock()
        self._answers: dict[K, tuple[int, V]] = {}

    async def get(self, question: K, make: Callable[[], Awaitable[V]]) -> V:
        """The answer, made anew where it is older than it may be."""
        async with self._making:
            since_ms = self._clock.monotonic_ms() - self._fresh_ms
            self._answers = {key: kept for key, kept in self._answers.items() if kept[0] >= since_ms}
            if question not in self._answers:
                self._answers[question] = self._clock.monotonic_ms(), await make()
            return self._answers[question][1]
