"""Work that waits is done in turns: vital work first, in short pieces, and without starving the rest."""

import asyncio
from collections.abc import Iterator

import pytest

from namesrv_stream.server.turns import Queue, Turns
from tests.support.server_rig import AT_ONCE_NS, turn


class Noted:
    """Work of some pieces, which notes every piece."""

    def __init__(self, turns: Turns, name: str, pieces: int, done: list[str], queue: Queue) -> None:
        self._turns, self._name, self._left, self._done, self._queue = turns, name, pieces, done, queue

    def work(self, until_ns: int) -> None:
        self._done.append(self._name)
        self._left -= 1
        if self._left:
            self._turns.wait(self, self._queue)


def begin(turns: Turns, done: list[str], queue: Queue, *names: str, pieces: int = 3) -> None:
    for name in names:
        turns.wait(Noted(turns, name, pieces, done, queue), queue)


async def test_vital_work_comes_first_and_others_get_a_piece_in_each_turn() -> None:
    turns, done = Turns(0), list[str]()
    begin(turns, done, Queue.OTHERS, "a", "b")
    begin(turns, done, Queue.VITAL, "v", "w")
    for _ in range(3):
        await turn()
    assert done == ["v", "a", "w", "b", "v", "a"]


async def test_all_work_is_done_within_a_turn_if_it_is_short() -> None:
    turns, done = Turns(AT_ONCE_NS), list[str]()
    begin(turns, done, Queue.OTHERS, "a", "b")
    begin(turns, done, Queue.VITAL, "v", "w")
    await turn()
    assert done == ["v", "w", "v", "w", "v", "w", "a", "b", "a", "b", "a", "b"]


async def test_the_reader_that_was_read_last_is_read_first_and_few_are_read_while_vital_work_waits() -> None:
    turns, done = Turns(0), list[str]()
    begin(turns, done, Queue.READERS, *map(str, range(12)), pieces=1)
    begin(turns, done, Queue.VITAL, "v", "w", pieces=1)
    for _ in range(3):
        await turn()
    assert done == ["v", "11", "w", *map(str, range(10, 2, -1)), "2", "1", "0"]


@pytest.mark.parametrize("queue", [Queue.LOGGED, Queue.READERS])
async def test_work_waits_while_its_queue_is_held_and_the_loop_rests_meanwhile(queue: Queue) -> None:
    turns, done = Turns(AT_ONCE_NS), list[str]()
    turns.hold(queue, is_held=True)
    begin(turns, done, queue, "r", pieces=1)
    for _ in range(3):
        await turn()
    assert (done, turns.has_room(queue)) == ([], False)
    turns.hold(queue, is_held=False)
    await turn()
    assert (done, turns.has_room(queue)) == (["r"], True)


async def test_work_that_waits_for_room_in_the_log_comes_before_later_work_and_before_others() -> None:
    turns, done = Turns(0), list[str]()
    begin(turns, done, Queue.OTHERS, "a", pieces=1)
    begin(turns, done, Queue.LOGGED, "l", "m", pieces=1)
    assert not turns.has_room(Queue.LOGGED)
    begin(turns, done, Queue.VITAL, "v", pieces=1)
    for _ in range(2):
        await turn()
    assert done == ["v", "l", "a", "m"]


async def test_work_begins_at_once_until_the_time_of_an_iteration_is_spent() -> None:
    turns = Turns(1_000)
    assert all(map(turns.has_room, Queue))
    turns.spent(4_000)
    assert [queue for queue in Queue if turns.has_room(queue)] == [Queue.VITAL, Queue.LOGGED]
    turns.spent(4_000)
    assert [queue for queue in Queue if turns.has_room(queue)] == [Queue.LOGGED]
    await turn()
    assert all(map(turns.has_room, Queue))


@pytest.mark.parametrize("piece_ns", [0, AT_ONCE_NS])
async def test_steps_are_done_in_order_at_once_or_in_turns(piece_ns: int) -> None:
    done: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(5):
            done.append(number)
            yield

    Turns(piece_ns).run(steps(), Queue.OTHERS)
    assert done == ([] if piece_ns == 0 else [0, 1, 2, 3, 4])
    for _ in range(6):
        await turn()
    assert done == [0, 1, 2, 3, 4]


async def test_an_error_ends_only_the_work_that_raises_it() -> None:
    turns, done = Turns(0), list[str]()

    class Failing:
        def work(self, until_ns: int) -> None:
            raise RuntimeError("a bug")

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    turns.wait(Failing(), Queue.VITAL)
    begin(turns, done, Queue.VITAL, "v", pieces=1)
    for _ in range(3):
        await turn()
    assert (done, [str(error) for error in errors]) == (["v"], ["a bug"])
