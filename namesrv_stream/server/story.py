"""What happened lately, for people: who came and went and why, and what operators and the guard did.

Begun by the first who asks: what is in the tables is read then, on a thread; from then on each commit is taken in as it
comes. A server that nobody asks does without. Rows that only refresh what was so (a broker's new topic table) are left
out, and rows of one record about many topics are one happening.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.settings import EFFECTIVE
from namesrv_stream.server.hearings import lease_key

#: So far back ends of brokers are told, log time: as long as the fold keeps a gone broker's registration.
WINDOW_MS: Final = 86_400_000
_KEPT: Final = 2_000
_MOST_ENDED: Final = 20_000
#: Rows that each partition has of one event come within this.
_SAME_EVENT_MS: Final = 3_000
#: Tables that could not be read are tried again after so long.
_AGAIN_MS: Final = 10_000
#: Of one broker, more ends than these are not counted.
_MOST_DOWNS: Final = 100

TOLD: Final = frozenset(
    kind.value
    for kind in (
        *(ChangeKind.BROKER_LIVE, ChangeKind.GUARD, ChangeKind.QUEUE_DATA),
        *(ChangeKind.SETTING, ChangeKind.SERVER, ChangeKind.KV),
    )
)
_COMING: Final = (Cause.REGISTERED, Cause.RETURNED)


class Happening(NamedTuple):
    """One row of ``route_changes``, for all that one record did of its kind.

    Attributes:
        change: The row, the first of several.
        rows: How many it stands for.
    """

    change: RouteChange
    rows: int = 1


class Past(NamedTuple):
    """What the tables told.

    Attributes:
        live: Processes whose last row before the window was of life.
        rows: Of the window, in the order of what people see, with how many rows each stands for.
        is_cut: Older rows were removed: of a process without one, nobody knows whether it was live.
    """

    live: frozenset[LeaseKey]
    rows: list[Happening]
    is_cut: bool


class Story:
    """Belongs to one event loop.

    Attributes:
        ended: Processes that went within the window and have not come back, to the row that says why.
        failure: Why the tables could not be read; "" where they were.

    Args:
        tables_dir: Folder of the tables.
        clock: For what is old.
    """

    def __init__(self, tables_dir: Path, clock: Clock) -> None:
        self._tables_dir = tables_dir
        self._clock = clock
        self._waiting: list[RouteChange] | None = None
        self._beginning = asyncio.Lock()
        self._is_begun = False
        self._read_ms = 0
        self.failure = ""
        self._forget()

    def _forget(self) -> None:
        self.ended: dict[LeaseKey, RouteChange] = {}
        self._happenings: deque[Happening] = deque(maxlen=_KEPT)
        self._live: set[LeaseKey] = set()
        self._came: dict[LeaseKey, int] = {}
        self._downs: dict[LeaseKey, list[int]] = {}
        self._is_cut = False

    # ---- told ----

    def committed(self, changes: Iterable[RouteChange]) -> None:
        """One commit was taken over."""
        if self._waiting is not None:
            self._waiting += (change for change in changes if change.kind in TOLD)
        elif self._is_begun:
            for change in changes:
                if change.kind in TOLD:
                    self._take_in(Happening(change))

    def reloaded(self) -> None:
        """The tables were opened anew: what is known is read once more when somebody asks."""
        self._is_begun, self._waiting = False, None

    # ---- asked ----

    async def begin(self, next_offsets: Mapping[int, int]) -> None:
        """Read what the tables have, unless that was done.

        Args:
            next_offsets: That the view covers at this moment.
        """
        async with self._beginning:
            now_ms = self._clock.monotonic_ms()
            if self._is_begun and not (self.failure and now_ms - self._read_ms >= _AGAIN_MS):
                return
            self._read_ms = now_ms
            waiting: list[RouteChange] = []
            self._waiting = waiting
            since_ms = self._clock.now_ms() - WINDOW_MS
            try:
                past = await asyncio.to_thread(_read, self._tables_dir, dict(next_offsets), since_ms)
                self.failure = ""
            except NamesrvStreamError as error:
                past, self.failure = Past(frozenset(), [], True), str(error)
            if self._waiting is not waiting:
                return  # opened anew meanwhile; the next who asks reads again
            self._forget()
            self._live, self._is_cut = set(past.live), past.is_cut
            for happening in (*past.rows, *map(Happening, waiting)):
                self._take_in(happening)
            self._waiting, self._is_begun = None, True

    def happenings(self, since_ms: int = 0) -> list[Happening]:
        """The newest first, not older than ``since_ms``; at most 2,000 are kept."""
        return [found for found in reversed(self._happenings) if found.change.at_ms >= since_ms]

    def came_ms(self, key: LeaseKey) -> int | None:
        """When a process came up, epoch milliseconds; None where that was before the window."""
        return self._came.get(key)

    def downs(self, key: LeaseKey) -> int:
        """How often a process went within the window."""
        since_ms = self._clock.now_ms() - WINDOW_MS
        return sum(at_ms >= since_ms for at_ms in self._downs.get(key, ()))

    def drop_old(self) -> None:
        """Forget ends that are older than the window."""
        since_ms = self._clock.now_ms() - WINDOW_MS
        for key, change in list(self.ended.items()):
            if change.at_ms >= since_ms:
                break  # they are in the order in which they ended, nearly
            del self.ended[key]
            self._downs.pop(key, None)

    # ---- taken in ----

    def _take_in(self, happening: Happening) -> None:
        change = happening.change
        if change.kind == ChangeKind.BROKER_LIVE:
            if not self._is_turn(lease_key(change), change):
                return
        elif change.kind == ChangeKind.QUEUE_DATA:
            if self._is_merged(happening):
                return
        elif (change.kind == ChangeKind.SETTING and change.namespace != EFFECTIVE) or self._is_of_another(change):
            return
        self._happenings.append(happening)

    def _is_turn(self, key: LeaseKey, change: RouteChange) -> bool:
        """Whether a row about a process is one of its coming or going."""
        if change.gone:
            self._live.discard(key)
            self._came.pop(key, None)
            self.ended.pop(key, None)
            if len(self.ended) >= _MOST_ENDED:
                del self.ended[next(iter(self.ended))]
            self.ended[key] = change
            downs = self._downs.setdefault(key, [])
            downs.append(change.at_ms)
            del downs[:-_MOST_DOWNS]
            return True
        if key in self._live:
            return False
        self._live.add(key)
        is_known = self.ended.pop(key, None) is not None or not self._is_cut
        if is_known:
            self._came[key] = change.at_ms
        return is_known

    def _is_merged(self, happening: Happening) -> bool:
        """Whether a row about a topic is told with the row before it, which the same record made."""
        change = happening.change
        if not self._happenings:
            return False
        last = self._happenings[-1]
        before = last.change
        if before[:2] != change[:2]:
            return False
        if before.kind == ChangeKind.BROKER_LIVE:
            return True  # topics come and go with their broker
        if before.kind == ChangeKind.QUEUE_DATA and (before.cause, before.gone) == (change.cause, change.gone):
            self._happenings[-1] = last._replace(rows=last.rows + happening.rows)
            return True
        return False

    def _is_of_another(self, change: RouteChange) -> bool:
        """Whether the row is one that another partition has told already."""
        for known, _ in reversed(self._happenings):
            if known.at_ms < change.at_ms - _SAME_EVENT_MS:
                return False
            if known.partition != change.partition and _subject(known) == _subject(change):
                return True
        return False


def _subject(change: RouteChange) -> tuple[object, ...]:
    return (
        *(change.kind, change.gone, change.cause, change.server_id, change.namespace, change.key, change.value),
        *(change.cluster, change.broker_name, change.broker_addr),
    )


def _read(tables_dir: Path, next_offsets: Mapping[int, int], since_ms: int) -> Past:
    # Imported by the first who asks: a server that nobody asks for the past does without.
    from namesrv_stream.server.stored_story import read_story

    return read_story(tables_dir, next_offsets, since_ms, TOLD)
