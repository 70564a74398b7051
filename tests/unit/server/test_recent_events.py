"""Recent events, from the tables and from every commit."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.events import KvPut
from namesrv_stream.route.model import DataVersion, LeaseKey
from namesrv_stream.server.view.recent_events import WINDOW_MS, RecentEvents, read_events
from namesrv_stream.tables.storage import Folder, tables_of
from tests.support.builders import NAME, RW, S1, Log, a_key, a_registration
from tests.support.clocks import ManualClock
from tests.support.history_tables import HistoryOfLogs

KEY = LeaseKey(NAME, a_key())


class _Instant(int):
    """A number that counts comparisons."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        _Instant.comparisons += 1
        return int(self) < other

    def __ge__(self, other: int) -> bool:
        _Instant.comparisons += 1
        return int(self) >= other


class _Kind(str):
    """A text that counts comparisons."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        _Kind.comparisons += 1
        return str.__eq__(self, other)


def _row(number: int, kind: str, gone: bool, cause: Cause, at_ms: int = 0, partition: int = 0) -> RouteChange:
    return RouteChange(partition, number, 0, _Instant(at_ms), _Kind(kind), gone, cause)


def _held(number: int, at_ms: int = 0, partition: int = 0) -> RouteChange:
    row = _row(number, ChangeKind.GUARD, False, Cause.GUARD_HELD, at_ms, partition)
    return row._replace(cluster="c1", broker_name=f"b{number}", broker_addr=f"10.0.0.1:{number}")


def _silent(server: int, at_ms: int = 0, partition: int = 0) -> RouteChange:
    return _row(server, ChangeKind.SERVER, False, Cause.SERVER_SILENT, at_ms, partition)._replace(
        server_id=f"s{server}"
    )


def _gone(number: int) -> RouteChange:
    row = _row(number, ChangeKind.BROKER_LIVE, True, Cause.EXPIRED)
    return row._replace(cluster="c1", broker_name=f"b{number}", broker_addr=f"10.0.0.1:{number}")


async def _most_per_iteration(work: Awaitable[None], counted: type[_Instant] | type[_Kind]) -> int:
    """Return the largest number of comparisons in one iteration of the event loop."""
    done, most = asyncio.ensure_future(work), 0
    while not done.done():
        counted.comparisons = 0
        await asyncio.sleep(0)
        most = max(most, counted.comparisons)
    await done
    return most


async def _commits_while_it_reads(recent_events: RecentEvents, changes: Sequence[RouteChange]) -> asyncio.Future[None]:
    """Commit changes while the first query waits for its thread; return the query."""
    asked = asyncio.ensure_future(recent_events.begin({}))
    await asyncio.sleep(0)
    recent_events.committed(changes)
    return asked


def _shown(recent_events: RecentEvents) -> list[tuple[str, str, bool, int]]:
    return [(h.change.kind, h.change.cause, h.change.gone, h.rows) for h in reversed(recent_events.newest_first())]


def _clock(log: Log) -> ManualClock:
    return ManualClock(log.now_ms + 1_000)


async def test_events_in_the_tables_are_read_for_the_first_query(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    log.disconnect(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    recent_events = RecentEvents(tables_of(tables.settings), _clock(log))
    await recent_events.begin(tables.ends())
    live = ChangeKind.BROKER_LIVE
    assert [shown for shown in _shown(recent_events) if shown[0] == live] == [
        (live, Cause.REGISTERED, False, 1),
        (live, Cause.DISCONNECTED, True, 1),
    ]
    ended = recent_events.ended[KEY]
    assert ended in log.output.changes
    assert recent_events.downs(KEY) == 1


async def test_rows_beyond_the_view_are_shown_when_they_are_committed(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    gone = log.disconnect(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    recent_events = RecentEvents(tables_of(tables.settings), _clock(log))
    await recent_events.begin({0: 1})
    assert not recent_events.ended
    recent_events.committed(gone)
    assert recent_events.ended[KEY].cause == Cause.DISCONNECTED


@pytest.mark.parametrize("parts_while_it_reads", [0, 1])
async def test_a_commit_in_several_parts_is_shown_once(tmp_path: Path, parts_while_it_reads: int) -> None:
    log = Log()
    log.register(a_registration())
    parts = [log.disconnect(a_registration()), log.register(a_registration())]
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    recent_events = RecentEvents(tables_of(tables.settings), _clock(log))
    asked = asyncio.ensure_future(recent_events.begin(tables.ends()))
    await asyncio.sleep(0)
    for part in parts[:parts_while_it_reads]:
        recent_events.committed(part)
    await asked
    shown = _shown(recent_events)
    for part in parts[parts_while_it_reads:]:
        recent_events.committed(part)
    assert _shown(recent_events) == shown
    assert [shown[1] for shown in _shown(recent_events) if shown[0] == ChangeKind.BROKER_LIVE] == [
        *(Cause.REGISTERED, Cause.DISCONNECTED, Cause.RETURNED)
    ]
    assert recent_events.downs(KEY) == 1


async def test_a_returned_broker_is_not_ended_and_a_new_data_version_is_not_shown(tmp_path: Path) -> None:
    log, recent_events = Log(), RecentEvents(Folder(tmp_path), ManualClock())
    await recent_events.begin({})
    recent_events.committed(log.register(a_registration()))
    recent_events.committed(
        log.register(a_registration(topics={"A": RW, "B": RW}, data_version=DataVersion(2, 2_000, 0)))
    )
    assert [shown[1] for shown in _shown(recent_events) if shown[0] == ChangeKind.BROKER_LIVE] == [Cause.REGISTERED]
    recent_events.committed(log.disconnect(a_registration()))
    assert KEY in recent_events.ended
    recent_events.committed(log.register(a_registration()))
    assert KEY not in recent_events.ended
    assert recent_events.came_ms(KEY) == log.now_ms


async def test_topics_of_a_new_broker_are_shown_as_part_of_its_registration(tmp_path: Path) -> None:
    log, recent_events = Log(), RecentEvents(Folder(tmp_path), ManualClock())
    await recent_events.begin({})
    recent_events.committed(log.register(a_registration(topics={f"T{n}": RW for n in range(50)})))
    shown = [one for one in _shown(recent_events) if one[0] in (ChangeKind.BROKER_LIVE, ChangeKind.QUEUE_DATA)]
    assert shown == [(ChangeKind.BROKER_LIVE, Cause.REGISTERED, False, 1)]
    topics = {f"T{n}": RW for n in range(53)}
    newer = a_registration(topics=topics, data_version=DataVersion(2, 2_000, 0), registration_hash="newer")
    recent_events.committed(log.register(newer))
    assert _shown(recent_events)[-1] == (ChangeKind.QUEUE_DATA, Cause.REGISTERED, False, 3)


async def test_a_server_without_queries_keeps_no_events(tmp_path: Path) -> None:
    log, recent_events = Log(), RecentEvents(Folder(tmp_path), ManualClock())
    recent_events.committed(log.register(a_registration()))
    assert not recent_events.newest_first()


async def test_reopened_tables_are_read_again(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    recent_events = RecentEvents(tables_of(tables.settings), _clock(log))
    await recent_events.begin(tables.ends())
    assert not recent_events.newest_first()
    tables.commit()
    recent_events.reloaded()
    await recent_events.begin(tables.ends())
    assert len(recent_events.newest_first()) == 1


async def test_removals_older_than_a_day_are_forgotten(tmp_path: Path) -> None:
    log = Log()
    clock = ManualClock(log.now_ms)
    recent_events = RecentEvents(Folder(tmp_path), clock)
    await recent_events.begin({})
    recent_events.committed(log.register(a_registration(), S1))
    recent_events.committed(log.disconnect(a_registration()))
    clock.advance(WINDOW_MS + 1)
    await recent_events.drop_old()
    assert not recent_events.ended
    assert recent_events.downs(KEY) == 0


async def test_a_table_that_cannot_be_read_is_named_and_read_again_later(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    [data] = (tables.settings.data.tables_dir / "route_changes").glob("*.parquet")
    whole = data.read_bytes()
    data.write_bytes(b"damaged")
    clock = _clock(log)
    recent_events = RecentEvents(tables_of(tables.settings), clock)
    await recent_events.begin(tables.ends())
    assert "route_changes" in recent_events.failure
    data.write_bytes(whole)
    clock.advance(10_000)
    await recent_events.begin(tables.ends())
    assert recent_events.failure == ""
    assert len(recent_events.newest_first()) == 1


@pytest.mark.parametrize("row", [_held, _silent])
async def test_a_row_is_not_compared_with_all_recent_events(tmp_path: Path, row: Callable[..., RouteChange]) -> None:
    recent_events, rows = RecentEvents(Folder(tmp_path), ManualClock()), 2_000
    await recent_events.begin({})
    _Instant.comparisons = 0
    recent_events.committed(row(number, partition=number % 2) for number in range(rows))
    assert _Instant.comparisons <= 2 * rows
    assert len(recent_events.newest_first()) == rows


async def test_an_event_in_every_partition_is_shown_once(tmp_path: Path) -> None:
    recent_events = RecentEvents(Folder(tmp_path), ManualClock())
    await recent_events.begin({})
    for at_ms in (10_000, 20_000):
        recent_events.committed(_silent(1, at_ms + 100 * partition, partition) for partition in range(3))
    assert [event.change.at_ms for event in recent_events.newest_first()] == [20_000, 10_000]


async def test_an_event_that_one_partition_has_twice_is_shown_twice(tmp_path: Path) -> None:
    recent_events = RecentEvents(Folder(tmp_path), ManualClock())
    await recent_events.begin({})
    recent_events.committed([_silent(1, 1_000), _silent(1, 2_000)])
    assert len(recent_events.newest_first()) == 2


def _changes_alive() -> int:
    return sum(isinstance(found, RouteChange) for found in gc.get_objects())


def test_stored_rows_are_decoded_one_after_another(tmp_path: Path) -> None:
    """Decoded at once, they would block the interpreter, even from another thread."""
    log = Log()
    log.output.changes += [
        _gone(n)._replace(kind=ChangeKind.BROKER_LIVE.value, cause=Cause.EXPIRED.value, at_ms=log.now_ms)
        for n in range(3_000)
    ]
    log.state.next_offset = 3_000
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    log.output.changes.clear()
    of_others = _changes_alive()
    stored = read_events(tables_of(tables.settings), tables.ends(), log.now_ms)
    assert next(iter(stored.events)).change.broker_name == "b0"
    assert _changes_alive() - of_others < 500
    assert len(list(stored.events)) == 2_999


async def test_changes_that_are_committed_during_a_read_follow_the_rows_of_the_read(tmp_path: Path) -> None:
    await RecentEvents(Folder(tmp_path), ManualClock()).begin({})  # the first query of a process imports for a second
    recent_events, rows = RecentEvents(Folder(tmp_path), ManualClock()), 10_000
    asked = await _commits_while_it_reads(recent_events, [_gone(number) for number in range(rows + 1)])
    while not asked.done():
        await asyncio.sleep(0)
        recent_events.committed([_gone(rows := rows + 1)])
    await asked
    shown = [event.change.offset for event in recent_events.newest_first()]
    assert shown == list(range(rows, rows - 2_000, -1))


async def test_the_tables_are_read_again_if_too_many_changes_are_committed_during_a_read(tmp_path: Path) -> None:
    recent_events = RecentEvents(Folder(tmp_path), ManualClock())
    await (await _commits_while_it_reads(recent_events, [_gone(1)] * 20_001))
    assert not recent_events.newest_first()
    recent_events.committed([_gone(1)])
    assert not recent_events.newest_first()
    await recent_events.begin({})
    recent_events.committed([_gone(1)])
    assert len(recent_events.newest_first()) == 1


async def test_nothing_is_kept_for_a_cancelled_read(tmp_path: Path) -> None:
    recent_events, change = RecentEvents(Folder(tmp_path), ManualClock()), _gone(1)
    asked = await _commits_while_it_reads(recent_events, [])
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
    before = sys.getrefcount(change)
    recent_events.committed([change])
    assert sys.getrefcount(change) == before
    await recent_events.begin({})
    recent_events.committed([change])
    assert len(recent_events.newest_first()) == 1


async def test_nothing_is_kept_for_a_read_that_failed_unexpectedly(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    recent_events, change = RecentEvents(tables_of(tables.settings), _clock(log)), _gone(1)
    with pytest.raises(TypeError):
        await recent_events.begin({0: 1, "no partition": 1})  # type: ignore[dict-item]
    before = sys.getrefcount(change)
    recent_events.committed([change])
    assert sys.getrefcount(change) == before
    await recent_events.begin(tables.ends())
    assert len(recent_events.newest_first()) == 1


async def test_many_old_removals_are_forgotten_in_several_iterations_of_the_event_loop(tmp_path: Path) -> None:
    clock, rows = ManualClock(0), 20_000
    recent_events = RecentEvents(Folder(tmp_path), clock)
    await recent_events.begin({})
    recent_events.committed(_gone(number) for number in range(rows))
    clock.advance(WINDOW_MS + 1)
    most = await _most_per_iteration(recent_events.drop_old(), _Instant)
    assert 0 < most < rows / 2
    assert not recent_events.ended


async def test_an_entry_of_a_new_kv_namespace_is_shown_once(tmp_path: Path) -> None:
    log = Log()
    log.say(KvPut(S1, "ns", "key", "value"))
    assert [change.key for change in log.output.changes if change.kind == ChangeKind.KV] == [None, "key"]
    recent_events = RecentEvents(Folder(tmp_path), ManualClock(log.now_ms))
    await recent_events.begin({})
    recent_events.committed(log.output.changes)
    assert [
        (h.change.namespace, h.change.key) for h in recent_events.newest_first() if h.change.kind == ChangeKind.KV
    ] == [("ns", "key")]
