"""What happened lately, for people: who came and went and why, and what operators and the guard did.

Begun by the first who asks: what is in the tables is read then, on a thread, and taken in by steps; from then on each
commit is taken in as it comes. A server that nobody asks does without. Rows that only refresh what was so (a broker's
new topic table) are left out, and rows of one record about many topics are one happening.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.route.changes import ChangeKind, RouteChange, lease_key
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.settings import EFFECTIVE
from namesrv_stream.server.steps import Steps
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES
from namesrv_stream.tables.storage import Storage

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
#: Changes that come while the tables are read; if there are more, the next who asks reads again.
_MOST_WAITING: Final = 100_000

TOLD: Final = frozenset(
    kind.value
    for kind in (
        *(ChangeKind.BROKER_LIVE, ChangeKind.GUARD, ChangeKind.QUEUE_DATA),
        *(ChangeKind.SETTING, ChangeKind.SERVER, ChangeKind.KV),
    )
)
#: Kinds of which every partition has a row; all others are of one broker or KV namespace, and so of one partition.
_OF_ALL_PARTITIONS: Final = frozenset({ChangeKind.SETTING.value, ChangeKind.SERVER.value})


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
        rows: Of the window, in the order of what people see, with how many rows each stands for; made as they are asked
            for, since they may be very many.
        is_cut: Older rows were removed: of a process without one, nobody knows whether it was live.
    """

    live: frozenset[LeaseKey]
    rows: Iterable[Happening]
    is_cut: bool


_NO_PAST: Final = Past(frozenset(), (), False)


class Story:
    """Belongs to one event loop.

    Attributes:
        failure: Why the tables could not be read; "" where they were.

    Args:
        tables: Where the tables are.
        clock: For what is old.
    """

    def __init__(self, tables: Storage, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._steps = Steps()
        self._told = _Told()
        self._waiting: deque[RouteChange] | None = None
        self._beginning = asyncio.Lock()
        self._is_begun = False
        self._covered: Mapping[int, int] = {}
        self._read_ms = 0
        self.failure = ""

    # ---- told ----

    def committed(self, changes: Iterable[RouteChange]) -> None:
        """Rows of a commit that was taken over, perhaps not all."""
        if self._waiting is not None:
            self._waiting.extend(change for change in changes if change.kind in TOLD)
            if len(self._waiting) > _MOST_WAITING:
                self.reloaded()
        elif self._is_begun:
            for change in changes:
                if change.kind in TOLD and _is_beyond(self._covered, change):
                    self._told.take_in(Happening(change))

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
            waiting: deque[RouteChange] = deque()
            self._waiting = waiting
            try:
                told, covered = await self._read(dict(next_offsets), waiting)
            except BaseException:
                if self._waiting is waiting:
                    self.reloaded()  # nothing waits for it any more, and what came meanwhile is lost
                raise
            if self._waiting is waiting:  # else opened anew meanwhile; the next who asks reads again
                self._told, self._waiting, self._is_begun = told, None, True
                self._covered = covered

    async def _read(
        self, next_offsets: Mapping[int, int], waiting: deque[RouteChange]
    ) -> tuple["_Told", Mapping[int, int]]:
        """What the tables told, and what came while they were read, of which nothing is left; how far they told."""
        since_ms = self._clock.now_ms() - WINDOW_MS
        try:
            past = await asyncio.to_thread(_read, self._tables, next_offsets, since_ms)
            self.failure = ""
        except NamesrvStreamError as error:
            past, self.failure, next_offsets = Past(frozenset(), (), True), str(error), {}
        told = _Told(past)
        async for _ in self._steps.lists(map(told.take_in, chain(past.rows, _emptied(waiting, next_offsets)))):
            pass
        for happening in _emptied(waiting, next_offsets):  # came in the turn after the last step
            told.take_in(happening)
        return told, next_offsets

    @property
    def ended(self) -> Mapping[LeaseKey, RouteChange]:
        """Processes that went within the window and have not come back, to the row that says why; the oldest first."""
        return self._told.ended

    def happenings(self, since_ms: int = 0) -> list[Happening]:
        """The newest first, not older than ``since_ms``; at most 2,000 are kept."""
        return [found for found in reversed(self._told.happenings) if found.change.at_ms >= since_ms]

    def came_ms(self, key: LeaseKey) -> int | None:
        """When a process came up, epoch milliseconds; None where that was before the window."""
        return self._told.came.get(key)

    def downs(self, key: LeaseKey) -> int:
        """How often a process went within the window."""
        since_ms = self._clock.now_ms() - WINDOW_MS
        return sum(at_ms >= since_ms for at_ms in self._told.downs.get(key, ()))

    async def drop_old(self) -> None:
        """Forget ends that are older than the window."""
        async for _ in self._steps.lists(self._told.dropped(self._clock.now_ms() - WINDOW_MS)):
            pass


class _Told:
    """What is known, from a moment on.

    Attributes:
        ended: As of ``Story``.
        happenings: The newest last.
        came: Process → when it came up, epoch milliseconds.
        downs: Process → when it went, epoch milliseconds.
    """

    def __init__(self, past: Past = _NO_PAST) -> None:
        """Know nothing but who was live before ``past.rows``, which are not taken in."""
        self.ended: dict[LeaseKey, RouteChange] = {}
        self.happenings: deque[Happening] = deque(maxlen=_KEPT)
        self.came: dict[LeaseKey, int] = {}
        self.downs: dict[LeaseKey, list[int]] = {}
        self._live = set(past.live)
        self._is_cut = past.is_cut
        # What was told of all partitions' kinds → when, and of which partition.
        self._of_all: OrderedDict[tuple[object, ...], tuple[int, int]] = OrderedDict()

    def dropped(self, since_ms: int) -> Iterator[LeaseKey]:
        """Those that ended before an instant, each forgotten as it is asked for."""
        for key, change in list(self.ended.items()):
            if change.at_ms >= since_ms:
                break  # they are in the order in which they ended, nearly
            if self.ended.get(key) is change:
                del self.ended[key]
                self.downs.pop(key, None)
                yield key

    def take_in(self, happening: Happening) -> None:
        """The next that happened."""
        change = happening.change
        if change.kind == ChangeKind.BROKER_LIVE:
            if not self._is_turn(lease_key(change), change):
                return
        elif change.kind == ChangeKind.QUEUE_DATA:
            if self._is_merged(happening):
                return
        elif change.kind == ChangeKind.KV and change.key is None:
            return  # a namespace comes with its first entry
        elif (change.kind == ChangeKind.SETTING and change.namespace != EFFECTIVE) or self._is_of_another(change):
            return
        self.happenings.append(happening)

    def _is_turn(self, key: LeaseKey, change: RouteChange) -> bool:
        """Whether a row about a process is one of its coming or going."""
        if change.gone:
            self._live.discard(key)
            self.came.pop(key, None)
            self.ended.pop(key, None)
            if len(self.ended) >= _MOST_ENDED:
                del self.ended[next(iter(self.ended))]
            self.ended[key] = change
            downs = self.downs.setdefault(key, [])
            downs.append(change.at_ms)
            del downs[:-_MOST_DOWNS]
            return True
        if key in self._live:
            return False
        self._live.add(key)
        is_known = self.ended.pop(key, None) is not None or not self._is_cut
        if is_known:
            self.came[key] = change.at_ms
        return is_known

    def _is_merged(self, happening: Happening) -> bool:
        """Whether a row about a topic is told with the row before it, which the same record made."""
        change = happening.change
        if not self.happenings:
            return False
        last = self.happenings[-1]
        before = last.change
        if before[:2] != change[:2]:
            return False
        if before.kind == ChangeKind.BROKER_LIVE:
            return True  # topics come and go with their broker
        if before.kind == ChangeKind.QUEUE_DATA and (before.cause, before.gone) == (change.cause, change.gone):
            self.happenings[-1] = last._replace(rows=last.rows + happening.rows)
            return True
        return False

    def _is_of_another(self, change: RouteChange) -> bool:
        """Whether the row is one that another partition has told already."""
        if change.kind not in _OF_ALL_PARTITIONS:
            return False
        subject = _subject(change)
        at_ms, partition = self._of_all.get(subject, (0, change.partition))
        if partition != change.partition and at_ms >= change.at_ms - _SAME_EVENT_MS:
            return True
        self._of_all[subject] = change.at_ms, change.partition
        self._of_all.move_to_end(subject)
        if len(self._of_all) > _KEPT:
            self._of_all.popitem(last=False)
        return False


def _subject(change: RouteChange) -> tuple[object, ...]:
    return change.kind, change.gone, change.cause, change.server_id, change.namespace, change.key, change.value


def _emptied(waiting: deque[RouteChange], covered: Mapping[int, int]) -> Iterator[Happening]:
    while waiting:
        change = waiting.popleft()
        if _is_beyond(covered, change):
            yield Happening(change)


def _is_beyond(covered: Mapping[int, int], change: RouteChange) -> bool:
    """Whether the tables had not told it: they may have been read while a commit was half taken in here."""
    return change.offset >= covered.get(change.partition, 0)


def _read(tables: Storage, next_offsets: Mapping[int, int], since_ms: int) -> Past:
    # Imported by the first who asks: a server that nobody asks for the past does without.
    from namesrv_stream.server.stored_story import read_story
    from namesrv_stream.tables.delta.stored_table import reading

    with reading(tables / ROUTE_CHANGES):
        return read_story(tables, next_offsets, since_ms, TOLD)
