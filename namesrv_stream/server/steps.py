"""Computes long answers in short steps, so that brokers and clients on the same event loop need not wait.

A thread would not help: it keeps the interpreter lock for 5 ms at a time, or for the duration of one call into C. A
step takes at most a millisecond, and all long answers together make one step per iteration of the loop. Vital answers
have ``Steps`` of their own, so that they do not wait for the others.

``Kept`` caches an answer for a short time, so that repeated queries do not compute it again.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain, islice
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from namesrv_stream.clock import Clock

Item = TypeVar("Item")

_STEP_S: Final = 0.001
#: Strings that are sorted or compared at once: in about a millisecond.
_AT_ONCE: Final = 4_096
#: So many items of each sorted block are in the sample that divides all blocks into ranges.
_SAMPLES: Final = 8
#: A set of so many items grows in a few milliseconds.
_SET_ITEMS: Final = 65_536
#: The most bytes of an answer that one step makes; they are in memory until the reader takes them.
_PIECE_BYTES: Final = 128 << 10


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

    async def lists(
        self, items: Iterable[Item], size_of: Callable[[Item], int] | None = None
    ) -> AsyncIterator[list[Item]]:
        """Yield the items of a lazy iterable in lists; every list is the result of one step.

        ``size_of`` returns the bytes of an item, if the bytes of a list are limited to about ``_PIECE_BYTES``.
        """
        rest = iter(items)
        while True:
            found: list[Item] = []
            size = 0
            async with self.step():
                until = perf_counter() + _STEP_S
                for item in rest:
                    found.append(item)
                    size += size_of(item) if size_of else 0
                    if size >= _PIECE_BYTES or perf_counter() >= until:
                        break
            if not found:
                return
            yield found

    async def all(self, items: Iterable[Item]) -> list[Item]:
        """Return all items, computed in steps."""
        return [item async for some in self.lists(items) for item in some]

    async def sorted(self, items: Iterable[Any], key: Callable[[Any], Any] | None = None) -> list[Any]:
        if key is None:
            return await self._sorted(items, _AT_ONCE)
        # With each item's number, so that items are never compared.
        keyed = ((key(item), number, item) for number, item in enumerate(items))
        return await self.all(item for _, _, item in await self._sorted(keyed, _AT_ONCE // 4))

    async def _sorted(self, items: Iterable[Any], at_once: int) -> list[Any]:
        found = await self.all(items)
        blocks = await self.all(sorted(found[at : at + at_once]) for at in range(0, len(found), at_once))
        merged: list[Any] = []
        async for ranges in self.lists(_ranges(blocks, at_once)):
            for some in ranges:
                merged += some
        return merged

    async def joined(self, pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces of one answer, joined step by step."""
        async for some in self.lists(pieces, len):
            if piece := b"".join(some):
                yield piece


def _ranges(blocks: Sequence[list[Any]], at_once: int) -> Iterator[list[Any]]:
    """Yield the items of sorted lists of ``at_once`` items, sorted, in lists of about as many.

    To merge the lists item by item would take several times as long.
    """
    every = at_once // _SAMPLES
    # Each block is sampled at other places, because the same places of all blocks may have similar items.
    sample = sorted(
        block[at] for number, block in enumerate(blocks) for at in range(number * 193 % every, len(block), every)
    )
    begins = [0] * len(blocks)
    for bound in [*sample[_SAMPLES::_SAMPLES], None]:
        ends = [
            len(block) if bound is None else bisect_left(block, bound, begin)
            for block, begin in zip(blocks, begins, strict=True)
        ]
        slices = (block[begin:end] for block, begin, end in zip(blocks, begins, ends, strict=True))
        yield sorted(chain.from_iterable(slices))
        begins = ends


def distinct(many: Iterable[Iterable[Item]]) -> Iterator[set[Item]]:
    """Yield the different items of all iterables, in sets of up to ``_AT_ONCE`` items."""
    known: list[set[Item]] = [set()]
    for items in many:
        rest = iter(items)
        while some := set(islice(rest, _AT_ONCE)):
            for each in known:
                some = some - each
            known[-1] |= some
            if len(known[-1]) >= _SET_ITEMS:
                known.append(set())
            yield some


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Keeps answers by question for ``fresh_ms``, and makes one answer at a time. Used by one event loop."""

    def __init__(self, fresh_ms: int, clock: Clock) -> None:
        """With ``fresh_ms`` 0, only those share an answer that ask while it is being made."""
        self._fresh_ms = fresh_ms
        self._clock = clock
        self._making = asyncio.Lock()
        self._made = 0
        # Question → when its answer was complete, the number of the answer, and the answer.
        self._answers: dict[K, tuple[int, int, V]] = {}

    async def get(self, question: K, make: Callable[[], Awaitable[V]]) -> V:
        made_before = self._made
        async with self._making:
            since_ms = self._clock.monotonic_ms() - self._fresh_ms
            usable = ((key, kept) for key, kept in self._answers.items() if kept[0] > since_ms or kept[1] > made_before)
            self._answers = dict(usable)
            if question not in self._answers:
                answer = await make()
                self._made += 1
                self._answers[question] = self._clock.monotonic_ms(), self._made, answer
            return self._answers[question][2]
