"""What happened lately, out of the tables and out of each commit."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from namesrv_stream.clock import ManualClock
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.events import KvPut
from namesrv_stream.route.model import DataVersion, LeaseKey
from namesrv_stream.server.view.recent_events import WINDOW_MS, RecentEvents, read_events
from namesrv_stream.tables.storage import Folder, tables_of
from tests.support.builders import NAME, RW, S1, Log, a_key, a_registration
from tests.support.history_tables import HistoryOfLogs

KEY = LeaseKey(NAME, a_key())


class _Instant(int):
    """Counts how often one is compared with another."""

    looks = 0

    def __lt__(self, other: int) -> bool:
        _Instant.looks += 1
        return int(self) < other

    def __ge__(self, other: int) -> bool:
        _Instant.looks += 1
        return int(self) >= other


class _Kind(str):
    """Counts how often one is looked at."""

    __slots__ = ()
    __hash__ = str.__hash__
    looks = 0

    def __eq__(self, other: object) -> bool:
        _Kind.looks += 1
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


async def _most_in_a_turn(work: Awaitable[None], counted: type[_Instant] | type[_Kind]) -> int:
    """So often values were looked at in one iteration of the loop."""
    done, most = asyncio.ensure_future(work), 0
    while not done.done():
        counted.looks = 0
        await asyncio.sleep(0)
        most = max(most, counted.looks)
    await done
    return most


async def _commits_while_it_reads(recent_events: RecentEvents, changes: Sequence[RouteChange]) -> asyncio.Future[None]:
    """One commit that comes when the first who asked waits for the thread."""
    asked = asyncio.ensure_future(recent_events.begin({}))
    await asyncio.sleep(0)
    recent_events.committed(changes)
    return asked


def _shown(recent_events: RecentEvents) -> list[tuple[str, str, bool, int]]:
    return [(h.change.kind, h.change.cause, h.change.gone, h.rows) for h in reversed(recent_events.newest_first())]


def _clock(log: Log) -> ManualClock:
    return ManualClock(log.now_ms + 1_000)


async def test_what_is_in_the_tables_is_told_when_somebody_asks(tmp_path: Path) -> None:
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


async def test_rows_beyond_the_view_are_left_for_their_commit(tmp_path: Path) -> None:
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
async def test_a_commit_that_comes_in_parts_is_told_once(tmp_path: Path, parts_while_it_reads: int) -> None:
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
        *(Cause.REGISTERED, Cause.DISCONNECTED, Cause.REGISTERED)
    ]
    assert recent_events.downs(KEY) == 1


async def test_one_that_comes_back_is_not_ended_and_a_new_version_is_no_turn(tmp_path: Path) -> None:
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


async def test_topics_that_come_with_their_broker_are_told_with_it(tmp_path: Path) -> None:
    log, recent_events = Log(), RecentEvents(Folder(tmp_path), ManualClock())
    await recent_events.begin({})
    recent_events.committed(log.register(a_registration(topics={f"T{n}": RW for n in range(50)})))
    shown = [one for one in _shown(recent_events) if one[0] in (ChangeKind.BROKER_LIVE, ChangeKind.QUEUE_DATA)]
    assert shown == [(ChangeKind.BROKER_LIVE, Cause.REGISTERED, False, 1)]
    newer = a_registration(topics={f"T{n}": RW for n in range(53)}, data_version=DataVersion(2, 2_000, 0))
    recent_events.committed(log.register(newer))
    assert _shown(recent_events)[-1] == (ChangeKind.QUEUE_DATA, Cause.REGISTERED, False, 3)


async def test_a_server_whom_nobody_asks_keeps_nothing(tmp_path: Path) -> None:
    log, recent_events = Log(), RecentEvents(Folder(tmp_path), ManualClock())
    recent_events.committed(log.register(a_registration()))
    assert not recent_events.newest_first()


async def test_after_the_tables_were_opened_anew_they_are_read_again(tmp_path: Path) -> None:
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


async def test_ends_older_than_a_day_are_forgotten(tmp_path: Path) -> None:
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


async def test_tables_that_cannot_be_read_are_named_and_tried_again(tmp_path: Path) -> None:
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
async def test_a_row_is_not_compared_with_all_that_was_told_of_late(
    tmp_path: Path, row: Callable[..., RouteChange]
) -> None:
    recent_events, rows = RecentEvents(Folder(tmp_path), ManualClock()), 2_000
    await recent_events.begin({})
    _Instant.looks = 0
    recent_events.committed(row(number, partition=number % 2) for number in range(rows))
    assert _Instant.looks <= 2 * rows
    assert len(recent_events.newest_first()) == rows


async def test_what_every_partition_has_is_told_once_for_each_time_that_it_happens(tmp_path: Path) -> None:
    recent_events = RecentEvents(Folder(tmp_path), ManualClock())
    await recent_events.begin({})
    for at_ms in (10_000, 20_000):
        recent_events.committed(_silent(1, at_ms + 100 * partition, partition) for partition in range(3))
    assert [event.change.at_ms for event in recent_events.newest_first()] == [20_000, 10_000]


async def test_what_one_partition_has_twice_is_told_twice(tmp_path: Path) -> None:
    recent_events = RecentEvents(Folder(tmp_path), ManualClock())
    await recent_events.begin({})
    recent_events.committed([_silent(1, 1_000), _silent(1, 2_000)])
    assert len(recent_events.newest_first()) == 2


def _changes_alive() -> int:
    return sum(isinstance(found, RouteChange) for found in gc.get_objects())


def test_what_is_read_becomes_rows_as_it_is_taken_in(tmp_path: Path) -> None:
    """All at once they would keep the interpreter, on whatever thread."""
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


async def test_what_comes_while_rows_are_taken_in_is_behind_them(tmp_path: Path) -> None:
    recent_events, rows = RecentEvents(Folder(tmp_path), ManualClock()), 10_000
    asked = await _commits_while_it_reads(recent_events, [_gone(number) for number in range(rows + 1)])
    while not asked.done():
        await asyncio.sleep(0)
        recent_events.committed([_gone(rows := rows + 1)])
    await asked
    shown = [event.change.offset for event in recent_events.newest_first()]
    assert shown == list(range(rows, rows - 2_000, -1))


async def test_if_too_much_comes_while_the_tables_are_read_they_are_read_again(tmp_path: Path) -> None:
    recent_events = RecentEvents(Folder(tmp_path), ManualClock())
    await (await _commits_while_it_reads(recent_events, [_gone(1)] * 20_001))
    assert not recent_events.newest_first()
    recent_events.committed([_gone(1)])
    assert not recent_events.newest_first()
    await recent_events.begin({})
    recent_events.committed([_gone(1)])
    assert len(recent_events.newest_first()) == 1


async def test_after_a_read_that_was_given_up_nothing_is_kept_for_it(tmp_path: Path) -> None:
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


async def test_after_a_read_that_failed_as_nobody_foresaw_nothing_is_kept_for_it(tmp_path: Path) -> None:
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


async def test_a_great_number_of_old_ends_is_forgotten_by_turns_of_the_loop(tmp_path: Path) -> None:
    clock, rows = ManualClock(0), 20_000
    recent_events = RecentEvents(Folder(tmp_path), clock)
    await recent_events.begin({})
    recent_events.committed(_gone(number) for number in range(rows))
    clock.advance(WINDOW_MS + 1)
    most = await _most_in_a_turn(recent_events.drop_old(), _Instant)
    assert 0 < most < rows / 2
    assert not recent_events.ended


async def test_an_entry_of_a_new_kv_namespace_is_told_once(tmp_path: Path) -> None:
    log = Log()
    log.say(KvPut(S1, "ns", "key", "value"))
    assert [change.key for change in log.output.changes if change.kind == ChangeKind.KV] == [None, "key"]
    recent_events = RecentEvents(Folder(tmp_path), ManualClock(log.now_ms))
    await recent_events.begin({})
    recent_events.committed(log.output.changes)
    assert [
        (h.change.namespace, h.change.key) for h in recent_events.newest_first() if h.change.kind == ChangeKind.KV
    ] == [("ns", "key")]
