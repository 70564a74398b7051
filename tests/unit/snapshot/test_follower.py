"""The follower tells each commit once, in order, and loads again where the log no longer tells."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.events import TopicDeleted
from namesrv_stream.route.table import RouteTable
from namesrv_stream.snapshot import Snapshot, SnapshotFollower, load_snapshot
from namesrv_stream.streaming.compaction import join_small_files
from namesrv_stream.tables import ROUTE_CHANGES, JobFigures, encode_job_figures, table_path
from tests.support.builders import S1, Log, a_registration
from tests.support.tables import TablesOfLog

_DEADLINE_S = 20.0


class Told:
    """What a follower told, applied as a server does."""

    def __init__(self, known: Snapshot | None = None) -> None:
        self.table = known.table if known else RouteTable()
        self.next_offsets: dict[int, int] = dict(known.next_offsets) if known else {}
        self.changes: list[RouteChange] = []
        self.reloads = 0
        self._told = threading.Condition()

    def on_reload(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        with self._told:
            self.table, self.next_offsets = table, dict(next_offsets)
            self.reloads += 1
            self._told.notify_all()

    def on_commit(self, changes: list[RouteChange], next_offsets: Mapping[int, int]) -> None:
        with self._told:
            reducer.apply(self.table, changes)
            self.changes += changes
            self.next_offsets.update(next_offsets)
            self._told.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._told:
            assert self._told.wait_for(condition, _DEADLINE_S)

    def wait_for(self, log: Log) -> None:
        """Until it has told all of a log."""
        self.wait(lambda: self.next_offsets.get(0) == log.state.next_offset)
        assert self.table.groups == log.groups.groups


Follow = Callable[..., tuple[SnapshotFollower, Told]]


@pytest.fixture
def follow() -> Iterator[Follow]:
    started: list[SnapshotFollower] = []

    def start(tables_dir: Path, known: Snapshot | None = None, interval_ms: int = 3) -> tuple[SnapshotFollower, Told]:
        told = Told(known)
        follower = SnapshotFollower(tables_dir, interval_ms, told.on_reload, told.on_commit, known=known)
        started.append(follower)
        follower.start()
        return follower, told

    yield start
    for follower in started:
        follower.stop()


def test_each_commit_is_told_with_its_progress(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    _, told = follow(tables.dir)
    told.wait(lambda: told.reloads == 1)
    first = tables.log.register(a_registration())
    tables.commit()
    second = tables.log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    told.wait_for(tables.log)
    assert told.changes == first + second
    assert told.reloads == 1


def test_a_commit_of_this_machine_is_told_at_once_whatever_the_interval(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    interval_s = 60
    _, told = follow(tables.dir, load_snapshot(tables.dir), interval_s * 1000)
    began_s = time.monotonic()
    for number in range(10):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
        told.wait_for(tables.log)
    assert time.monotonic() - began_s < interval_s, "else each would have taken an interval"


def test_progress_without_rows_is_told(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    _, told = follow(tables.dir)
    tables.log.tick()
    tables.commit()
    told.wait_for(tables.log)
    assert told.changes == []


def test_tables_made_after_the_start_are_found(tmp_path: Path, follow: Follow) -> None:
    follower, told = follow(tmp_path / "tables")
    told.wait(lambda: told.reloads == 1)
    assert follower.version == -1
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    told.wait_for(tables.log)


def test_what_the_caller_knows_is_not_told_again(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    _, told = follow(tables.dir, load_snapshot(tables.dir))
    new = tables.log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    told.wait_for(tables.log)
    assert (told.changes, told.reloads) == (new, 0)


def test_joining_files_is_no_change(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    tables.log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    follower, told = follow(tables.dir)
    told.wait_for(tables.log)
    join_small_files(tables.settings, 1, 1 << 20)
    new = tables.log.register(a_registration("10.0.0.2:1", broker_name="b2"))
    tables.commit()
    told.wait_for(tables.log)
    assert (told.changes, told.reloads) == (new, 1)
    assert follower.version == 4


def test_a_version_that_was_cleaned_up_makes_it_load_again(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    known = load_snapshot(tables.dir)
    for number in range(3):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
    folder = table_path(tables.dir, ROUTE_CHANGES)
    DeltaTable(folder).create_checkpoint()
    (folder / "_delta_log" / f"{1:020d}.json").unlink()
    _, told = follow(tables.dir, known)
    told.wait_for(tables.log)
    assert told.reloads == 1


def test_a_data_file_that_is_gone_makes_it_load_again(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    known = load_snapshot(tables.dir)
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    for path in table_path(tables.dir, ROUTE_CHANGES).glob("*.parquet"):
        path.unlink()
    _, told = follow(tables.dir, known)
    told.wait_for(tables.log)
    assert told.reloads == 1


def test_rows_removed_by_retention_make_it_load_again(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    _, told = follow(tables.dir)
    told.wait_for(tables.log)
    DeltaTable(table_path(tables.dir, ROUTE_CHANGES)).delete("at_ms > 0")
    told.wait(lambda: told.reloads == 2)
    assert told.table.groups == tables.log.groups.groups


def test_a_commit_that_makes_no_sense_does_not_end_it(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    known = load_snapshot(tables.dir)
    commit = table_path(tables.dir, ROUTE_CHANGES) / "_delta_log" / f"{1:020d}.json"
    commit.write_text('{"add":{}}')
    follower, told = follow(tables.dir, known)
    deadline = time.monotonic() + _DEADLINE_S
    while not follower.failure:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    commit.unlink()
    tables.log.register(a_registration())
    tables.commit()
    told.wait_for(tables.log)


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_another_table_in_its_place_makes_it_load_again_whatever_its_versions(
    tmp_path: Path, follow: Follow, commits: int
) -> None:
    tables, other = TablesOfLog(tmp_path / "a"), TablesOfLog(tmp_path / "b")
    for number in range(3):
        tables.log.tick()
        other.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
    other.commit()
    _, told = follow(tables.dir)
    told.wait_for(tables.log)
    place = table_path(tables.dir, ROUTE_CHANGES)
    place.rename(tmp_path / "aside")
    table_path(other.dir, ROUTE_CHANGES).rename(place)
    tables.log, tables.writer = other.log, tables.new_writer()
    for number in range(commits):
        tables.log.register(a_registration(f"10.0.1.{number}:1", broker_name=f"c{number}"))
        tables.commit()
    told.wait(lambda: told.table.groups == other.log.groups.groups)


def test_what_was_told_stays_where_the_table_is_gone(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    follower, told = follow(tables.dir)
    told.wait_for(tables.log)
    tables.dir.rename(tmp_path / "aside")
    deadline = time.monotonic() + _DEADLINE_S
    while "no table" not in follower.failure:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (told.reloads, told.table.groups) == (1, tables.log.groups.groups)
    (tmp_path / "aside").rename(tables.dir)
    told.wait(lambda: told.reloads == 2)
    assert follower.failure == ""


def test_what_the_job_says_of_itself_comes_with_its_commits(follow: Follow, tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    follower, told = follow(tables.dir)
    told.wait(lambda: told.reloads == 1)
    tables.log.register(a_registration())
    figures = JobFigures(started_ms=5, at_ms=7, records=1, dead_letters=2)
    tables.writer.write(tables.rows_from(0), {0: 1}, 1, encode_job_figures(figures))
    told.wait_for(tables.log)
    assert follower.job == figures
    tables.log.tick()
    tables.commit()  # by a job that says nothing of itself
    told.wait_for(tables.log)
    assert follower.job == figures


def test_a_commit_of_another_table_makes_it_load_again(tmp_path: Path, follow: Follow) -> None:
    """Where nothing else tells: in an object store there is no inode that would be another one."""
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    known = load_snapshot(tables.dir)
    follower, told = follow(tables.dir, replace(known, table_id="of a table that is no more"))
    tables.log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    told.wait(lambda: told.reloads == 1)
    told.wait_for(tables.log)
    assert told.changes == []
    assert follower.table_id == known.table_id
