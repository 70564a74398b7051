"""Events within the last day, for the console: why brokers came up or went down, and what operators and the guard did.

The first query reads the stored events on a thread and adds them in steps. From then on, every commit is added as it
arrives. A server without such queries loads no events. Rows that only refresh existing data (a broker's new topic
table) are left out. Rows of one record about many topics become one event.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.route.changes import ChangeKind, RouteChange, lease_key
from namesrv_stream.route.liveness_settings import EFFECTIVE
from namesrv_stream.route.model import LeaseKey, LiveKey
from namesrv_stream.server.steps import Steps
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, iter_changes
from namesrv_stream.tables.layout import PARTITIONS_PROPERTY, ROUTE_CHANGES, TOPIC_ID_PROPERTY, removed_app_id
from namesrv_stream.tables.storage import Storage

#: Removed brokers are kept for this time, in log time: as long as the fold keeps their registrations.
WINDOW_MS: Final = 86_400_000
#: Maximum number of events that are kept; the stored ones may have starts and ends of brokers in addition.
_KEPT: Final = 2_000
#: Rows that are converted to objects at a time; this takes well below a millisecond.
_ROWS_AT_ONCE: Final = 64
#: Rows that arrived while the tables were read, and that are added at a time; this takes about a millisecond.
_TAKEN_AT_ONCE: Final = 500
_MOST_ENDED: Final = 20_000
#: If every partition has a row about one event, the rows are at most this far apart.
_SAME_EVENT_MS: Final = 3_000
#: Interval before tables that could not be read are read again.
_AGAIN_MS: Final = 10_000
#: Maximum number of removals that are counted for one broker.
_MOST_DOWNS: Final = 100
#: Maximum number of changes that arrive while the tables are read; above it, the next query reads them again.
_MOST_WAITING: Final = 20_000

KINDS: Final = frozenset({"broker_live", "guard", "queue_data", "setting", "server", "kv"})
#: Kinds of which every partition has a row. All others concern one broker or KV namespace, thus one partition.
_OF_ALL_PARTITIONS: Final = frozenset({"setting", "server"})


class TimelineEvent(NamedTuple):
    """Rows of ``route_changes`` of one kind from one record: ``change`` is the first, ``rows`` their number."""

    change: RouteChange
    rows: int = 1


class StoredEvents(NamedTuple):
    """Events within the last day, from the tables.

    Attributes:
        live: Processes that were live when the day began.
        events: Oldest first; computed on demand, because there can be very many.
        is_cut: Whether older rows were removed. Then it is unknown whether a process without a row was live.
    """

    live: frozenset[LeaseKey]
    events: Iterable[TimelineEvent]
    is_cut: bool


class RecentEvents:
    """Keeps the events of all brokers within the last day (``WINDOW_MS``). Only one event loop may use it."""

    def __init__(self, tables: Storage, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._steps = Steps()
        self._known = _Known(StoredEvents(frozenset(), (), False))
        self._waiting: list[RouteChange] | None = None  # changes that arrive while the tables are read
        self._beginning = asyncio.Lock()
        self._is_begun = False
        self._covered: Mapping[int, int] = {}
        self._read_ms = 0
        self.failure = ""

    def committed(self, changes: Iterable[RouteChange]) -> None:
        """Add rows of a commit that the view has applied; a commit can come in several slices."""
        if self._waiting is not None:
            self._waiting.extend(change for change in changes if change.kind in KINDS)
            if len(self._waiting) > _MOST_WAITING:
                self.reloaded()
        elif self._is_begun:
            self._take_in(self._known, changes, self._covered)

    def reloaded(self) -> None:
        """Discard everything, because the tables were reopened. The next query reads them again."""
        self._is_begun, self._waiting = False, None

    async def begin(self, next_offsets: Mapping[int, int]) -> None:
        """Read the stored events below the offsets that the view covers now, unless they have been read."""
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
                    self.reloaded()  # the changes that arrived meanwhile are lost, so the next query reads again
                raise
            while self._waiting is waiting and len(waiting) > _TAKEN_AT_ONCE:
                async with self._steps.step():
                    self._take_in(known, waiting[:_TAKEN_AT_ONCE], covered)
                    del waiting[:_TAKEN_AT_ONCE]
            if self._waiting is waiting:  # otherwise the tables were reopened meanwhile; the next query reads again
                self._take_in(known, waiting, covered)
                self._known, self._covered, self._waiting, self._is_begun = known, covered, None, True

    async def _read(self, next_offsets: Mapping[int, int]) -> tuple["_Known", Mapping[int, int]]:
        """Return the stored events, and the offsets up to which they were read."""
        since_ms = self._clock.now_ms() - WINDOW_MS
        try:
            stored = await asyncio.to_thread(read_events, self._tables, next_offsets, since_ms)
            self.failure = ""
        except NamesrvStreamError as error:
            stored, self.failure, next_offsets = StoredEvents(frozenset(), (), True), str(error), {}
        known = _Known(stored)
        await self._steps.all(map(known.take_in, stored.events))
        return known, next_offsets

    def _take_in(self, known: "_Known", changes: Iterable[RouteChange], covered: Mapping[int, int]) -> None:
        for change in changes:
            # The tables may already contain a commit that the view has applied only in part.
            if change.kind in KINDS and change.offset >= covered.get(change.partition, 0):
                known.take_in(TimelineEvent(change))

    @property
    def ended(self) -> Mapping[LeaseKey, RouteChange]:
        """Processes that ended within the last day and have not returned → the row that says why; oldest first."""
        return self._known.ended

    def newest_first(self, since_ms: int = 0) -> list[TimelineEvent]:
        """Return the events that are not older than ``since_ms``; at most 2,000 are kept."""
        return [event for event in reversed(self._known.events) if event.change.at_ms >= since_ms]

    def came_ms(self, key: LeaseKey) -> int | None:
        """Return when a process came up within the last day, epoch milliseconds; None if that was earlier."""
        return self._known.came.get(key)

    @property
    def is_read(self) -> bool:
        """Whether the events of the last day are known, because they were read successfully."""
        return self._is_begun and not self.failure

    def downs(self, key: LeaseKey) -> int:
        since_ms = self._clock.now_ms() - WINDOW_MS
        return sum(at_ms >= since_ms for at_ms in self._known.downs.get(key, ()))

    async def drop_old(self) -> None:
        await self._steps.all(self._known.dropped(self._clock.now_ms() - WINDOW_MS))


class _Known:
    """The events since one moment, and when processes came up or ended according to them (epoch milliseconds)."""

    def __init__(self, stored: StoredEvents) -> None:
        """Start with the processes that were live before the stored events; the events themselves are not added."""
        self.ended: dict[LeaseKey, RouteChange] = {}
        self.events: deque[TimelineEvent] = deque(maxlen=_KEPT)
        self.came: dict[LeaseKey, int] = {}
        self.downs: dict[LeaseKey, list[int]] = {}
        self._live = set(stored.live)
        self._is_cut = stored.is_cut
        # Events of which every partition has a row → time and partition of the first such row.
        self._of_all: OrderedDict[tuple[object, ...], tuple[int, int]] = OrderedDict()

    def dropped(self, since_ms: int) -> Iterator[LeaseKey]:
        """Yield the processes that ended before an instant, and forget every one that is yielded."""
        for key, change in list(self.ended.items()):
            if change.at_ms >= since_ms:
                break  # they are nearly in the order in which they ended
            if self.ended.get(key) is change:
                del self.ended[key]
                self.downs.pop(key, None)
                yield key

    def take_in(self, event: TimelineEvent) -> None:
        change = event.change
        if change.kind == ChangeKind.BROKER_LIVE:
            if not self._is_turn(lease_key(change), change):
                return
        elif change.kind == ChangeKind.QUEUE_DATA:
            if self._is_merged(event):
                return
        elif change.kind == ChangeKind.KV and change.key is None:
            return  # the first entry of a namespace is the event
        elif (change.kind == ChangeKind.SETTING and change.namespace != EFFECTIVE) or self._is_of_another(change):
            return
        self.events.append(event)

    def _is_turn(self, key: LeaseKey, change: RouteChange) -> bool:
        """Record a row about a process. Return whether the row says that the process came up or ended."""
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
        """Merge a row about a topic into the previous event if both are from one record. Return whether it did."""
        change = event.change
        last = self.events[-1] if self.events else None
        if last is None or last.change[:2] != change[:2]:
            return False
        before = last.change
        if before.kind == ChangeKind.BROKER_LIVE:
            return True  # topics appear and disappear with their broker
        if before.kind == ChangeKind.QUEUE_DATA and (before.cause, before.gone) == (change.cause, change.gone):
            self.events[-1] = last._replace(rows=last.rows + event.rows)
            return True
        return False

    def _is_of_another(self, change: RouteChange) -> bool:
        """Return whether the row repeats a row that another partition already had about the same event."""
        if change.kind not in _OF_ALL_PARTITIONS:
            return False
        subject = change.kind, change.gone, change.cause, change.server_id, change.namespace, change.key, change.value
        at_ms, partition = self._of_all.get(subject, (0, change.partition))
        if partition != change.partition and at_ms >= change.at_ms - _SAME_EVENT_MS:
            return True
        self._of_all[subject] = change.at_ms, change.partition
        self._of_all.move_to_end(subject)
        if len(self._of_all) > _KEPT:
            self._of_all.popitem(last=False)
        return False


def read_events(tables: Storage, next_offsets: Mapping[int, int], since_ms: int) -> StoredEvents:
    """Return the events in ``route_changes`` since an instant, up to these offsets (exclusive); blocks.

    Raises:
        TableSchemaMismatch: The table is damaged, or has a different schema from what this version expects.
    """
    # Imported by the first query, so that servers without such queries do not load them.
    import pyarrow.compute as pc

    from namesrv_stream.history.database import Database
    from namesrv_stream.tables.delta.stored_table import StoredTable, reading

    with reading(tables / ROUTE_CHANGES):
        table = StoredTable.open(tables, ROUTE_CHANGES, CHANGES_SCHEMA)
        if table is None or not next_offsets:
            return StoredEvents(frozenset(), (), False)
        partition, offset = pc.field("partition"), pc.field("offset")
        below = reduce(or_, ((partition == p) & (offset < end) for p, end in sorted(next_offsets.items())))
        database = Database([table])
        database.register("changes", table.dataset(below))
        live = (
            LeaseKey(row["broker_name"], LiveKey(row["cluster"], row["broker_addr"]))
            for row in database.rows("live_before", since_ms=since_ms)
        )
        rows = database.query("timeline", since_ms=since_ms, kinds=sorted(KINDS), most=_KEPT)
        topic_id = table.properties.get(TOPIC_ID_PROPERTY, "")
        partitions = range(int(table.properties.get(PARTITIONS_PROPERTY, 0)))
        is_cut = any(table.transaction_version(removed_app_id(topic_id, p)) for p in partitions)
        # Events are created on demand, because the caller adds them in steps; a thread would occupy the interpreter.
        batches = rows.to_batches(max_chunksize=_ROWS_AT_ONCE)
        events = (e for b in batches for e in map(TimelineEvent, iter_changes(b), b["rows"].to_pylist()))
        return StoredEvents(frozenset(live), events, is_cut)
