"""Long answers in short steps: sorted and distinct items, pieces of limited size, and shared answers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.server import steps
from namesrv_stream.server.steps import Kept, Steps, distinct
from tests.support.clocks import ManualClock
from tests.support.examples import examples

_NUMBERS = st.lists(st.integers(-50, 50), max_size=300)


@given(_NUMBERS, st.booleans())
@settings(max_examples=examples(60))
def test_items_are_sorted_as_by_python(numbers: list[int], has_key: bool) -> None:
    items = [(number % 7, index) for index, number in enumerate(numbers)]
    key: Callable[[tuple[int, int]], int] | None = (lambda item: -item[0]) if has_key else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_AT_ONCE", 32)
        found = asyncio.run(Steps().sorted(iter(items), key))
    assert found == sorted(items, key=key)


def test_ranges_of_sorted_blocks_are_not_much_larger_than_the_blocks() -> None:
    # All blocks are alike, so a sample of the same places in all of them would say little.
    blocks = [sorted(f"{number * 7_919 % 100_003:06d}-{block}" for number in range(4_096)) for block in range(50)]
    ranges = list(steps._ranges(blocks, 4_096))  # noqa: SLF001
    assert [item for some in ranges for item in some] == sorted(item for block in blocks for item in block)
    assert max(map(len, ranges)) < 4 * 4_096


@given(st.lists(_NUMBERS, max_size=8))
@settings(max_examples=examples(60))
def test_each_of_the_different_items_is_yielded_once(many: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_AT_ONCE", 16)
        patch.setattr(steps, "_SET_ITEMS", 20)
        found = list(distinct(many))
    assert sorted(item for some in found for item in some) == sorted({item for some in many for item in some})
    assert all(len(some) <= 16 for some in found)


async def test_a_piece_of_an_answer_has_a_limited_size() -> None:
    pieces = [piece async for piece in Steps().joined([bytes(10_000)] * 100)]
    assert b"".join(pieces) == bytes(1_000_000)
    assert max(map(len, pieces)) < 150_000


async def test_pieces_that_are_empty_are_not_sent() -> None:
    assert [piece async for piece in Steps().joined([b""] * 100_000)] == []


class Answers:
    """Makes answers that are numbers, each when the test says so."""

    def __init__(self) -> None:
        self.made = 0
        self.continues = asyncio.Event()

    async def make(self) -> int:
        await self.continues.wait()
        self.made += 1
        return self.made


async def test_all_who_ask_while_an_answer_is_made_share_it() -> None:
    answers, kept = Answers(), Kept[None, int](0, ManualClock())
    asked = [asyncio.ensure_future(kept.get(None, answers.make)) for _ in range(5)]
    await asyncio.sleep(0)
    answers.continues.set()
    assert await asyncio.gather(*asked) == [1] * 5
    assert await kept.get(None, answers.make) == 2, "it asks afterwards"


async def test_an_answer_is_kept_for_a_time_from_its_completion() -> None:
    answers, clock = Answers(), ManualClock()
    answers.continues.set()
    kept = Kept[str, int](1_000, clock)

    async def ask(question: str, make: Callable[[], Awaitable[int]] = answers.make) -> int:
        return await kept.get(question, make)

    async def make_slowly() -> int:
        clock.advance(5_000)
        return await answers.make()

    assert await ask("a", make_slowly) == 1
    clock.advance(999)
    assert (await ask("a"), await ask("b")) == (1, 2)
    clock.advance(1)
    assert (await ask("a"), await ask("b")) == (3, 2)


async def test_an_answer_that_fails_is_made_again_for_the_next_one() -> None:
    answers, kept = Answers(), Kept[None, int](0, ManualClock())
    answers.continues.set()

    async def fail() -> int:
        raise OSError("no")

    failing, asked = asyncio.ensure_future(kept.get(None, fail)), asyncio.ensure_future(kept.get(None, answers.make))
    with pytest.raises(OSError, match="no"):
        await failing
    assert await asked == 1
