"""What happened lately, out of the tables and out of each commit."""

from pathlib import Path

from namesrv_stream.clock import ManualClock
from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import DataVersion
from namesrv_stream.server.story import WINDOW_MS, Story
from tests.support.builders import NAME, RW, S1, Log, a_key, a_registration
from tests.support.history_tables import HistoryOfLogs

KEY = LeaseKey(NAME, a_key())


def _told(story: Story) -> list[tuple[str, str, bool, int]]:
    return [(h.change.kind, h.change.cause, h.change.gone, h.rows) for h in reversed(story.happenings())]


def _clock(log: Log) -> ManualClock:
    return ManualClock(log.now_ms + 1_000)


async def test_what_is_in_the_tables_is_told_when_somebody_asks(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    log.disconnect(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    story = Story(tables.settings.data.tables_dir, _clock(log))
    await story.begin(tables.ends())
    live = ChangeKind.BROKER_LIVE
    assert [told for told in _told(story) if told[0] == live] == [
        (live, Cause.REGISTERED, False, 1),
        (live, Cause.DISCONNECTED, True, 1),
    ]
    ended = story.ended[KEY]
    assert ended in log.output.changes
    assert story.downs(KEY) == 1


async def test_rows_beyond_the_view_are_left_for_their_commit(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    gone = log.disconnect(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    story = Story(tables.settings.data.tables_dir, _clock(log))
    await story.begin({0: 1})
    assert not story.ended
    story.committed(gone)
    assert story.ended[KEY].cause == Cause.DISCONNECTED


async def test_one_that_comes_back_is_not_ended_and_a_new_version_is_no_turn(tmp_path: Path) -> None:
    log, story = Log(), Story(tmp_path, ManualClock())
    await story.begin({})
    story.committed(log.register(a_registration()))
    story.committed(log.register(a_registration(topics={"A": RW, "B": RW}, data_version=DataVersion(2, 2_000, 0))))
    assert [told[1] for told in _told(story) if told[0] == ChangeKind.BROKER_LIVE] == [Cause.REGISTERED]
    story.committed(log.disconnect(a_registration()))
    assert KEY in story.ended
    story.committed(log.register(a_registration()))
    assert KEY not in story.ended
    assert story.came_ms(KEY) == log.now_ms


async def test_topics_that_come_with_their_broker_are_told_with_it(tmp_path: Path) -> None:
    log, story = Log(), Story(tmp_path, ManualClock())
    await story.begin({})
    story.committed(log.register(a_registration(topics={f"T{n}": RW for n in range(50)})))
    told = [one for one in _told(story) if one[0] in (ChangeKind.BROKER_LIVE, ChangeKind.QUEUE_DATA)]
    assert told == [(ChangeKind.BROKER_LIVE, Cause.REGISTERED, False, 1)]
    newer = a_registration(topics={f"T{n}": RW for n in range(53)}, data_version=DataVersion(2, 2_000, 0))
    story.committed(log.register(newer))
    assert _told(story)[-1] == (ChangeKind.QUEUE_DATA, Cause.REGISTERED, False, 3)


async def test_a_server_whom_nobody_asks_keeps_nothing(tmp_path: Path) -> None:
    log, story = Log(), Story(tmp_path, ManualClock())
    story.committed(log.register(a_registration()))
    assert not story.happenings()


async def test_after_the_tables_were_opened_anew_they_are_read_again(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    story = Story(tables.settings.data.tables_dir, _clock(log))
    await story.begin(tables.ends())
    assert not story.happenings()
    tables.commit()
    story.reloaded()
    await story.begin(tables.ends())
    assert len(story.happenings()) == 1


async def test_ends_older_than_a_day_are_forgotten(tmp_path: Path) -> None:
    log = Log()
    clock = ManualClock(log.now_ms)
    story = Story(tmp_path, clock)
    await story.begin({})
    story.committed(log.register(a_registration(), S1))
    story.committed(log.disconnect(a_registration()))
    clock.advance(WINDOW_MS + 1)
    story.drop_old()
    assert not story.ended
    assert story.downs(KEY) == 0


async def test_tables_that_cannot_be_read_are_named_and_tried_again(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    [data] = (tables.settings.data.tables_dir / "route_changes").glob("*.parquet")
    whole = data.read_bytes()
    data.write_bytes(b"damaged")
    clock = _clock(log)
    story = Story(tables.settings.data.tables_dir, clock)
    await story.begin(tables.ends())
    assert "route_changes" in story.failure
    data.write_bytes(whole)
    clock.advance(10_000)
    await story.begin(tables.ends())
    assert story.failure == ""
    assert len(story.happenings()) == 1
