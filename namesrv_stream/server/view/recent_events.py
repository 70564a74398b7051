"""What happened lately, for people: who came and went and why, and what operators and the guard did.

Begun by the first who asks: what is in the tables is read then, on a thread, and taken in by steps; from then on each
commit is taken in as it comes. A server that nobody asks does without. Rows that only refresh what was so (a broker's
new topic table) are left out, and rows of one record about many topics are one event.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.route.changes import ChangeKind, RouteChange, lease_key
from namesrv_stream.route.liveness_settings import EFFECTIVE
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.server.steps import Steps
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES
from namesrv_stream.tables.storage import Storage

#: So far back ends of brokers are known, log time: as long as the fold keeps a gone broker's registration.
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
_MOST_WAITING: Final = 20_000

KINDS: Final = frozenset(
    kind.value
    for kind in (
        *(ChangeKind.BROKER_LIVE, ChangeKind.GUARD, ChangeKind.QUEUE_DATA),
        *(ChangeKind.SETTING, ChangeKind.SERVER, ChangeKind.KV),
    )
)
#: Kinds of which every partition has a row; all others are of one broker or KV namespace, and so of one partition.
_OF_ALL_PARTITIONS: Final = frozenset({ChangeKind.SETTING.value, ChangeKind.SERVER.value})


class TimelineEvent(NamedTuple):
    """One row of ``route_changes``, for all that one record did of its kind.

    Attributes:
        change: The row, the first of several.
        rows: How many it stands for.
    """

    change: RouteChange
    rows: int = 1


class StoredEvents(NamedTuple):
    """What the tables have.

    Attributes:
        live: Processes whose last row before the window was of life.
        events: Of the window, oldest first; made as they are asked for, since they may be very many.
        is_cut: Older rows were removed: of a process without one, nobody knows whether it was live.
    """

    live: frozenset[LeaseKey]
    events: Iterable[TimelineEvent]
    is_cut: bool


class RecentEvents:
    """Belongs to one event loop.

    Attributes:
        failure: Why the tables could not be read; "" where they were.
    """

    def __init__(self, tables: Storage, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._steps = Steps()
        self._known = _Known(StoredEvents(frozenset(), (), False))
        self._waiting: list[RouteChange] | None = None  # changes that come while the tables are read
        self._beginning = asyncio.Lock()
        self._is_begun = False
        self._covered: Mapping[int, int] = {}
        self._read_ms = 0
        self.failure = ""

    def committed(self, changes: Iterable[RouteChange]) -> None:
        """Rows of a commit that was taken over, perhaps not all."""
        if self._waiting is not None:
            self._waiting.extend(change for change in changes if change.kind in KINDS)
            if len(self._waiting) > _MOST_WAITING:
                self.reloaded()
        elif self._is_begun:
            self._take_in(self._known, changes, self._covered)

    def reloaded(self) -> None:
        """The tables were opened anew: what is known is read once more when somebody asks."""
        self._is_begun, self._waiting = False, None

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
            waiting = self._waiting = []
            try:
                known, covered = await self._read(dict(next_offsets))
            except BaseException:
                if self._waiting is waiting:
                    self.reloaded()  # nothing waits for it any more, and what came meanwhile is lost
                raise
            if self._waiting is waiting:  # else opened anew meanwhile; the next who asks reads again
                self._take_in(known, waiting, covered)
                self._known, self._covered, self._waiting, self._is_begun = known, covered, None, True

    async def _read(self, next_offsets: Mapping[int, int]) -> tuple["_Known", Mapping[int, int]]:
        """What the tables have, and up to which offsets."""
        since_ms = self._clock.now_ms() - WINDOW_MS
        try:
            stored = await asyncio.to_thread(_read, self._tables, next_offsets, since_ms)
            self.failure = ""
        except NamesrvStreamError as error:
            stored, self.failure, next_offsets = StoredEvents(frozenset(), (), True), str(error), {}
        known = _Known(stored)
        await self._steps.all(map(known.take_in, stored.events))
        return known, next_offsets

    def _take_in(self, known: "_Known", changes: Iterable[RouteChange], covered: Mapping[int, int]) -> None:
        for change in changes:
            # The tables may have been read while a commit was half taken in here.
            if change.kind in KINDS and change.offset >= covered.get(change.partition, 0):
                known.take_in(TimelineEvent(change))

    @property
    def ended(self) -> Mapping[LeaseKey, RouteChange]:
        """Processes that ended within the window and have not come back, to the row that says why; the oldest first."""
        return self._known.ended

    def newest_first(self, since_ms: int = 0) -> list[TimelineEvent]:
        """The events that are not older than ``since_ms``; at most 2,000 are kept."""
        return [event for event in reversed(self._known.events) if event.change.at_ms >= since_ms]

    def came_ms(self, key: LeaseKey) -> int | None:
        """When a process came up, epoch milliseconds; None where that was before the window."""
        return self._known.came.get(key)

    def downs(self, key: LeaseKey) -> int:
        """How often a process ended within the window."""
        since_ms = self._clock.now_ms() - WINDOW_MS
        return sum(at_ms >= since_ms for at_ms in self._known.downs.get(key, ()))

    async def drop_old(self) -> None:
        """Forget ends that are older than the window."""
        await self._steps.all(self._known.dropped(self._clock.now_ms() - WINDOW_MS))


class _Known:
    """What is known from a moment on.

    Attributes:
        ended: As of ``RecentEvents``.
        events: The newest last.
        came: Process → when it came up, epoch milliseconds.
        downs: Process → when it ended, epoch milliseconds.
    """

    def __init__(self, stored: StoredEvents) -> None:
        """Know nothing but who was live before ``stored.events``, which are not taken in."""
        self.ended: dict[LeaseKey, RouteChange] = {}
        self.events: deque[TimelineEvent] = deque(maxlen=_KEPT)
        self.came: dict[LeaseKey, int] = {}
        self.downs: dict[LeaseKey, list[int]] = {}
        self._live = set(stored.live)
        self._is_cut = stored.is_cut
        # Events of all partitions' kinds → when, and of which partition.
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

    def take_in(self, event: TimelineEvent) -> None:
        """The next event."""
        change = event.change
        if change.kind == ChangeKind.BROKER_LIVE:
            if not self._is_turn(lease_key(change), change):
                return
        elif change.kind == ChangeKind.QUEUE_DATA:
            if self._is_merged(event):
                return
        elif change.kind == ChangeKind.KV and change.key is None:
            return  # a namespace comes with its first entry
        elif (change.kind == ChangeKind.SETTING and change.namespace != EFFECTIVE) or self._is_of_another(change):
            return
        self.events.append(event)

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

    def _is_merged(self, event: TimelineEvent) -> bool:
        """Whether a row about a topic is part of the event before it, which the same record made."""
        change = event.change
        if not self.events:
            return False
        last = self.events[-1]
        before = last.change
        if before[:2] != change[:2]:
            return False
        if before.kind == ChangeKind.BROKER_LIVE:
            return True  # topics come and go with their broker
        if before.kind == ChangeKind.QUEUE_DATA and (before.cause, before.gone) == (change.cause, change.gone):
            self.events[-1] = last._replace(rows=last.rows + event.rows)
            return True
        return False

    def _is_of_another(self, change: RouteChange) -> bool:
        """Whether another partition has had the same row already."""
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


def _read(tables: Storage, next_offsets: Mapping[int, int], since_ms: int) -> StoredEvents:
    # Imported by the first who asks: a server that nobody asks for the past does without.
    from namesrv_stream.server.view.stored_events import read_events
    from namesrv_stream.tables.delta.stored_table import reading

    with reading(tables / ROUTE_CHANGES):
        return read_events(tables, next_offsets, since_ms, KINDS)
