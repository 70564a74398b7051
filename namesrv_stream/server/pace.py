"""How fast long frames are read: so much of them in a turn of the event loop.

Where hundreds of brokers register at once, a hundred megabytes are there to be read, and a loop that finds all their
sockets readable would read all of it before it comes to anybody's question. What a peer sends first cannot be held
back, for nobody knows yet that it is long.
"""

import asyncio
from itertools import islice
from typing import Final, Protocol

#: Some milliseconds of copying.
_BYTES_A_TURN: Final = 2 << 20
#: Who are read again in a turn: a transport gives up to 256 kB of each. Twice as many where those before sent little.
_LEAST_RESUMED: Final = 8
_MOST_RESUMED: Final = 1_024


class Paced(Protocol):
    """Who is read."""

    def hold_back(self, *, is_held: bool) -> None:
        """Read no further, or do."""


class ReadingPace:
    """Holds back those who are amid a long frame once a turn has read its share; belongs to one event loop.

    They go on in the order in which they were held back, some in each turn. Who sends slowly keeps nobody waiting:
    the less a turn had to read, the more go on in the next.
    """

    def __init__(self, bytes_a_turn: int = _BYTES_A_TURN, least_resumed: int = _LEAST_RESUMED) -> None:
        self._bytes_a_turn = bytes_a_turn
        self._least_resumed = self._resumed = least_resumed
        self._amid: dict[Paced, None] = {}  # who are read, in the order in which they began
        self._held: dict[Paced, None] = {}
        self._read = 0
        self._has_turn = False

    def read(self, peer: Paced, size: int, *, is_amid: bool) -> None:
        """Bytes of long frames came, and the last of these goes on, or not."""
        self._read += size
        if is_amid:
            self._amid[peer] = None
        else:
            self._amid.pop(peer, None)
        if not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._turn)
        if self._read >= self._bytes_a_turn and self._amid:
            held, self._amid = self._amid, {}
            self._held |= held
            for one in held:
                one.hold_back(is_held=True)

    def forget(self, peer: Paced) -> None:
        """It has gone."""
        self._amid.pop(peer, None)
        self._held.pop(peer, None)

    def _turn(self) -> None:
        is_calm = self._read < self._bytes_a_turn // 2
        self._resumed = min(2 * self._resumed, _MOST_RESUMED) if is_calm else self._least_resumed
        self._read = 0
        self._has_turn = bool(self._held)
        if self._has_turn:  # whatever happens to one of them below
            asyncio.get_running_loop().call_soon(self._turn)
        for one in list(islice(self._held, self._resumed)):
            del self._held[one]
            self._amid[one] = None
            one.hold_back(is_held=False)
