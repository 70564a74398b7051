"""Dear work in turns: one step of it in a turn of the event loop, so that whoever reads waits for one step at most.

Unlike ``steps``, which shares a turn among answers that are made piece by piece, this keeps an order: a work begins
when the one before has ended.
"""

import asyncio
from collections import deque
from collections.abc import Iterator

from namesrv_stream.route.view import RouteView


class Turns:
    """Works, of which the first makes a step in each turn; belongs to one event loop."""

    def __init__(self) -> None:
        self._works: deque[Iterator[None]] = deque()
        self._is_taken = False  # this turn has had its step

    def add(self, work: Iterator[None]) -> None:
        """Have a work done, up to its next ``yield`` in each turn; it begins at once if this turn is free."""
        self._works.append(work)
        if not self._is_taken:
            self._turn()

    def _turn(self) -> None:
        self._is_taken = bool(self._works)
        if not self._is_taken:
            return
        asyncio.get_running_loop().call_soon(self._turn)
        try:
            next(self._works[0])
        except StopIteration:
            self._works.popleft()
        except BaseException:
            self._works.popleft()
            raise


async def whole(view: RouteView) -> None:
    """Wait until no commit is half taken over; what the caller reads before it waits again is a state that was."""
    while view.is_halfway:  # noqa: ASYNC110 (its next step is one turn away: nothing is worth an event)
        await asyncio.sleep(0)
