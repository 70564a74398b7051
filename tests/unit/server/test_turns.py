"""Dear work takes turns."""

import asyncio
from collections.abc import Iterator

import pytest

from namesrv_stream.server.turns import Turns


def _work(name: str, steps: int, done: list[str]) -> Iterator[None]:
    for step in range(steps):
        if step:
            yield
        done.append(f"{name}{step}")


async def test_the_first_step_is_done_at_once_and_one_in_each_turn() -> None:
    turns, done = Turns(), list[str]()
    turns.add(_work("a", 2, done))
    turns.add(_work("b", 1, done))
    seen = [list(done)]
    for _ in range(3):
        await asyncio.sleep(0)
        seen.append(list(done))
    assert seen == [["a0"], ["a0", "a1"], ["a0", "a1", "b0"], ["a0", "a1", "b0"]]


async def test_a_turn_that_is_over_is_free_again() -> None:
    turns, done = Turns(), list[str]()
    for name in "ab":
        turns.add(_work(name, 1, done))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    turns.add(_work("c", 1, done))
    assert done == ["a0", "b0", "c0"]


async def test_a_work_that_fails_keeps_nobody_from_its_turn() -> None:
    def fail() -> Iterator[None]:
        yield from ()
        raise ValueError("a bug")

    turns, done = Turns(), list[str]()
    with pytest.raises(ValueError, match="a bug"):
        turns.add(fail())
    turns.add(_work("a", 1, done))
    await asyncio.sleep(0)
    assert done == ["a0"]


async def test_who_waits_because_all_is_full_is_called_when_it_no_longer_is() -> None:
    turns, done = Turns(max_bytes=10), list[str]()
    turns.add(_work("a", 2, done), 6)
    assert not turns.is_full
    turns.add(_work("b", 2, done), 6)
    assert turns.is_full
    turns.when_free(lambda: done.append("free"))
    for _ in range(4):
        await asyncio.sleep(0)
    assert (done, turns.is_full) == (["a0", "a1", "free", "b0", "b1"], False)


async def test_a_work_that_fails_is_full_no_longer() -> None:
    turns, done = Turns(max_bytes=10), list[str]()
    turns.add(_work("a", 1, done), 1)

    def fail() -> Iterator[None]:
        yield
        raise ValueError("a bug")

    turns.add(fail(), 10)
    turns.when_free(lambda: done.append("free"))
    caught: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context["exception"]))
    for _ in range(3):
        await asyncio.sleep(0)
    assert (len(caught), done) == (1, ["a0", "free"])
