"""Dear work in turns: one step of it in a turn of the event loop, so that whoever reads waits for one step at most.

Unlike ``steps``, which shares a turn among answers that are made piece by piece, this keeps an order: a work begins
when the one before has ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from namesrv_stream.route.view import RouteView

#: Of the works that wait: the registrations of 280 brokers with 2,000 topics.
_MAX_BYTES: Final = 128 << 20


class _Work(NamedTuple):
    steps: Iterator[None]
    size: int


class Turns:
    """Works, of which the first makes a step in each turn; belongs to one event loop.

    Args:
        max_bytes: From when on ``is_full``.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._works: deque[_Work] = deque()
        self._bytes = 0
        self._held_back: list[Callable[[], None]] = []
        self._is_taken = False  # this turn has had its step

    @property
    def is_full(self) -> bool:
        """Whether who could bring further works is to wait, for which there is ``when_free``."""
        return self._bytes >= self._max_bytes

    def add(self, work: Iterator[None], size: int = 0) -> None:
        """Have a work done, up to its next ``yield`` in each turn; it begins at once if this turn is free.

        Args:
            work: Taken in however full it is: what it holds is there already.
            size: Bytes that it holds until it is done.
        """
        self._works.append(_Work(work, size))
        self._bytes += size
        if not self._is_taken:
            self._turn()

    def when_free(self, callback: Callable[[], None]) -> None:
        """Have somebody called who waits because all ``is_full``; it no longer is then."""
        self._held_back.append(callback)

    def _turn(self) -> None:
        self._is_taken = bool(self._works)
        if not self._is_taken:
            return
        asyncio.get_running_loop().call_soon(self._turn)
        try:
            next(self._works[0].steps)
        except StopIteration:
            self._end()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        """The first work is done."""
        self._bytes -= self._works.popleft().size
        if self._held_back and not self.is_full:
            waiting, self._held_back = self._held_back, []
            for callback in waiting:
                callback()


async def whole(view: RouteView) -> None:
    """Wait until no commit is half taken over; what the caller reads before it waits again is a state that was."""
    while view.is_halfway:  # noqa: ASYNC110 (its next step is one turn away: nothing is worth an event)
        await asyncio.sleep(0)
