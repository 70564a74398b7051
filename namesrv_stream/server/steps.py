"""Long answers in short steps: brokers and clients are served by the same event loop, and must not wait for a list.

A thread would not help: it takes the interpreter for 5 ms at a time, or for as long as one call into C takes. A step
takes a millisecond at most, and of all answers that are being made one makes a step in a turn of the loop.

``Kept`` spares the same answer to several who ask within a while.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from namesrv_stream.clock import Clock

Item = TypeVar("Item")

_STEP_S: Final = 0.001
_SORTED_AT_ONCE: Final = 4_096  # strings: about a millisecond


def _itself(item: Any) -> Any:
    return item


class Steps:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """Do something short as a step of its own: of all that take one, one does in a turn of the loop."""
        async with self._turn:
            yield
            await asyncio.sleep(0)

    async def lists(self, items: Iterable[Item]) -> AsyncIterator[list[Item]]:
        """The items, made as they are asked for, in lists of as many as a step makes."""
        rest = iter(items)
        while True:
            async with self.step():
                found = _some(rest)
            if not found:
                return
            yield found

    async def all(self, items: Iterable[Item]) -> list[Item]:
        """All items, made in steps."""
        return [item async for some in self.lists(items) for item in some]

    async def sorted(self, items: Iterable[Item], key: Callable[[Item], Any] = _itself) -> list[Item]:
        """The items in order."""
        found = await self.all(items)
        blocks = (found[at : at + _SORTED_AT_ONCE] for at in range(0, len(found), _SORTED_AT_ONCE))
        ordered = await self.all(sorted(block, key=key) for block in blocks)
        return await self.all(heapq.merge(*ordered, key=key))

    async def joined(self, pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
        """The pieces of one answer, as many together as a step makes."""
        async for some in self.lists(pieces):
            yield b"".join(some)


def _some(rest: Iterator[Item]) -> list[Item]:
    found: list[Item] = []
    until = perf_counter() + _STEP_S
    for item in rest:
        found.append(item)
        if perf_counter() >= until:
            break
    return found


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
        """The answer, computed again if it is too old."""
        async with self._making:
            since_ms = self._clock.monotonic_ms() - self._fresh_ms
            self._answers = {key: kept for key, kept in self._answers.items() if kept[0] >= since_ms}
            if question not in self._answers:
                self._answers[question] = self._clock.monotonic_ms(), await make()
            return self._answers[question][1]
