"""Divides the time of the event loop: work that can take long is done in turns, and vital work comes first.

A callback of the event loop must be short, whatever a peer sends. So everything that can take long is ``Work``, which
stops at a given moment and waits again with the rest. Each iteration of the event loop has one turn::

    queue     work                                                      in one turn
    VITAL     requests of brokers, closed connections                   up to 3 ms, at least one piece
    LOGGED    registrations that wait for room in the publish queue     the rest of 3 ms, at least one piece
    OTHERS    all other requests, long answers, periodic checks         the rest of 4 ms, at least one piece
    READERS   connections from which the rest of a large request        8 of them, the latest first; 1 while
              must be read                                              vital work waits

A piece of work takes up to a millisecond. What remains goes to the end of its queue. The latest reader comes first,
because the request that arrives now should be complete before the next one is read: each incomplete one takes memory.

LOGGED and READERS can be held. Work that arrives need not wait for a turn while little was done since the last one
(``has_room``).
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from time import perf_counter_ns
from typing import Final, Protocol

_PIECE_NS: Final = 1_000_000
#: Pieces in one turn, vital ones included, and the maximum number of vital ones if others wait.
_PIECES: Final = 4
_VITAL_PIECES: Final = 3
_READERS_A_TURN: Final = 8


class Queue(IntEnum):
    """The queues of the table above."""

    VITAL = 0
    LOGGED = 1
    OTHERS = 2
    READERS = 3


class Work(Protocol):
    """Work that can be interrupted."""

    def work(self, until_ns: int) -> None:
        """Do at least one step, stop at about ``until_ns`` (``perf_counter_ns``), and wait again if more remains."""


class Turns:
    """The work that waits. Used by one event loop.

    Attributes:
        piece_ns: Duration of a piece of work, nanoseconds.
    """

    def __init__(self, piece_ns: int = _PIECE_NS) -> None:
        self.piece_ns = piece_ns
        self._queues: tuple[deque[Work], ...] = tuple(deque() for _ in Queue)
        self._spent_ns = 0  # since the last turn, outside of turns
        self._is_due = False
        self._held: set[Queue] = set()

    def has_room(self, queue: Queue) -> bool:
        """Return whether work may begin at once. Vital work may take twice the time, so it does not wait for others."""
        if queue in self._held:
            return False
        if queue is Queue.LOGGED:
            return not self._queues[queue]  # only room in the publish queue counts, and those who wait come first
        return self._spent_ns < self.piece_ns * (2 * _PIECES if queue is Queue.VITAL else _PIECES)

    def hold(self, queue: Queue, *, is_held: bool) -> None:
        """Do no work of LOGGED or READERS, because what it adds to is full; or do it again."""
        (self._held.add if is_held else self._held.discard)(queue)
        self._call_if_due()

    def spent(self, ns: int) -> None:
        """Count the duration of work that was done at once."""
        self._spent_ns += ns
        if self._spent_ns >= self.piece_ns * _PIECES:
            self._call_soon()

    def wait(self, work: Work, queue: Queue) -> None:
        """Queue work, which must not be in a queue already."""
        if queue is Queue.READERS:
            self._queues[queue].appendleft(work)
        else:
            self._queues[queue].append(work)
        self._call_if_due()

    def run(self, steps: Iterator[object], queue: Queue, *, is_due: bool = False) -> None:
        """Work through short steps, at once or in turns; if they are due, the first piece is always done at once."""
        work = _Steps(self, steps, queue)
        if not (is_due or self.has_room(queue)):
            self.wait(work, queue)
            return
        began_ns = perf_counter_ns()
        work.work(began_ns + self.piece_ns)
        self.spent(perf_counter_ns() - began_ns)

    def _call_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due, self._spent_ns = False, 0
        vital, logged, others, readers = self._queues
        began_ns = perf_counter_ns()
        try:
            self._work_on(vital, began_ns + self.piece_ns * _VITAL_PIECES)
            if Queue.LOGGED not in self._held:
                self._work_on(logged, began_ns + self.piece_ns * _VITAL_PIECES)
            self._work_on(others, began_ns + self.piece_ns * _PIECES)
            most = 0 if Queue.READERS in self._held else 1 if vital else _READERS_A_TURN
            for _ in range(min(len(readers), most)):
                readers.popleft().work(0)
        finally:  # an unexpected error ends only this turn
            self._call_if_due()

    def _call_if_due(self) -> None:
        if any(waiting and queue not in self._held for queue, waiting in zip(Queue, self._queues, strict=True)):
            self._call_soon()

    def _work_on(self, queue: deque[Work], until_ns: int) -> None:
        now_ns = 0
        while queue and now_ns < until_ns:
            queue.popleft().work(perf_counter_ns() + self.piece_ns)
            now_ns = perf_counter_ns()


class _Steps:
    """Work as an iterator, of which each step is short."""

    def __init__(self, turns: Turns, steps: Iterator[object], queue: Queue) -> None:
        self._turns = turns
        self._steps = steps
        self._queue = queue

    def work(self, until_ns: int) -> None:
        for _ in self._steps:
            if perf_counter_ns() >= until_ns:
                self._turns.wait(self, self._queue)
                return
