"""Computes long answers in short steps, so that brokers and clients on the same event loop need not wait.

A thread would not help: it keeps the interpreter lock for 5 ms at a time, or for the duration of one call into C. A
step takes at most a millisecond, and all long answers together make one step per iteration of the loop.

``Kept`` caches an answer for a short time, so that repeated queries do not compute it again.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from namesrv_stream.clock import Clock

Item = TypeVar("Item")

_STEP_S: Final = 0.001
_SORTED_AT_ONCE: Final = 4_096  # strings: about a millisecond


class Steps:
    """Runs the steps of all long answers in turn. Used by one event loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """Run the body of the ``async with`` as one step; all users together run one step per iteration of the loop."""
        async with self._turn:
            yield
            await asyncio.sleep(0)

    async def lists(self, items: Iterable[Item]) -> AsyncIterator[list[Item]]:
        """Yield the items of a lazy iterable in lists; every list is the result of one step."""
        rest = iter(items)
        while True:
            found: list[Item] = []
            async with self.step():
                until = perf_counter() + _STEP_S
                for item in rest:
                    found.append(item)
                    if perf_counter() >= until:
                        break
            if not found:
                return
            yield found

    async def all(self, items: Iterable[Item]) -> list[Item]:
        """Return all items, computed in steps."""
        return [item async for some in self.lists(items) for item in some]

    async def sorted(self, items: Iterable[Any], key: Callable[[Any], Any] | None = None) -> list[Any]:
        found = await self.all(items)
        blocks = (found[at : at + _SORTED_AT_ONCE] for at in range(0, len(found), _SORTED_AT_ONCE))
        ordered = await self.all(sorted(block, key=key) for block in blocks)
        return await self.all(heapq.merge(*ordered, key=key))

    async def joined(self, pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces of one answer, joined step by step."""
        async for some in self.lists(pieces):
            yield b"".join(some)


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Keeps answers by question for ``fresh_ms``, and computes one answer at a time. Used by one event loop."""

    def __init__(self, fresh_ms: int, clock: Clock) -> None:
        self._fresh_ms = fresh_ms
        self._clock = clock
        self._making = asyncio.Lock()
        self._answers: dict[K, tuple[int, V]] = {}

    async def get(self, question: K, make: Callable[[], Awaitable[V]]) -> V:
        async with self._making:
            since_ms = self._clock.monotonic_ms() - self._fresh_ms
            self._answers = {key: kept for key, kept in self._answers.items() if kept[0] >= since_ms}
            if question not in self._answers:
                self._answers[question] = self._clock.monotonic_ms(), await make()
            return self._answers[question][1]
