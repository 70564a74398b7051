"""The follower reports each commit once and in order, and reloads if the log does not suffice."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.events import TopicDeleted
from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.compaction import join_small_files
from namesrv_stream.tables.delta.commit import commit_name
from namesrv_stream.tables.job_commits import JobFigures, encode_job_figures
from namesrv_stream.tables.layout import ROUTE_CHANGES
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.snapshot import Snapshot, load_snapshot
from namesrv_stream.tables.snapshot_follower import SnapshotFollower
from namesrv_stream.tables.storage import Folder
from tests.support.builders import S1, Log, a_registration
from tests.support.processes import wait_until
from tests.support.tables import TOPIC_ID, TablesOfLog

_DEADLINE_S = 20.0


class Received:
    """The reports of a follower, applied as by a server."""

    def __init__(self, known: Snapshot | None = None) -> None:
        self.table = known.table if known else RouteTable()
        self.next_offsets: dict[int, int] = dict(known.next_offsets) if known else {}
        self.changes: list[RouteChange] = []
        self.reloads = self.empty_commits = 0
        self._changed = threading.Condition()

    def on_reload(self, snapshot: Snapshot) -> None:
        with self._changed:
            self.table, self.next_offsets = snapshot.table, dict(snapshot.next_offsets)
            self.reloads += 1
            self._changed.notify_all()

    def on_commit(self, changes: list[RouteChange], next_offsets: Mapping[int, int]) -> None:
        with self._changed:
            reducer.apply(self.table, changes)
            self.changes += changes
            self.empty_commits += not changes and not next_offsets
            self.next_offsets.update(next_offsets)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, _DEADLINE_S)

    def wait_for(self, log: Log) -> None:
        """Wait until it has reported a whole log."""
        self.wait(lambda: self.next_offsets.get(0) == log.state.next_offset)
        assert self.table.groups == log.groups.groups


Follow = Callable[..., tuple[SnapshotFollower, Received]]


@pytest.fixture
def follow() -> Iterator[Follow]:
    started: list[SnapshotFollower] = []

    def start(
        tables_dir: Path, known: Snapshot | None = None, interval_ms: int = 3
    ) -> tuple[SnapshotFollower, Received]:
        received = Received(known)
        follower = SnapshotFollower(
            Folder(tables_dir), interval_ms, received.on_reload, received.on_commit, known=known
        )
        started.append(follower)
        follower.start()
        return follower, received

    yield start
    for follower in started:
        follower.stop()


def test_each_commit_is_reported_with_its_progress(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    _, received = follow(tables.dir)
    received.wait(lambda: received.reloads == 1)
    first = tables.log.register(a_registration())
    tables.commit()
    second = tables.log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    received.wait_for(tables.log)
    assert received.changes == first + second
    assert received.reloads == 1


def test_a_large_commit_is_reported_in_slices_and_its_version_with_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("namesrv_stream.tables.snapshot_follower._ROWS_AT_ONCE", 1)
    tables = TablesOfLog(tmp_path)
    known = load_snapshot(tables.storage)
    records = [tables.log.register(a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}")) for n in range(3)]
    tables.commit()
    slices: list[tuple[list[RouteChange], Mapping[int, int], int]] = []
    follower = SnapshotFollower(
        Folder(tables.dir),
        3,
        lambda _: None,
        lambda rows, next_offsets: slices.append((rows, next_offsets, follower.version - known.version)),
        known=known,
    )
    follower.start()
    wait_until(lambda: len(slices) == 3, _DEADLINE_S, "three slices")
    follower.stop()
    offsets = [record[0].offset + 1 for record in records]
    assert slices == [(records[n], {0: offsets[n]}, n == 2) for n in range(3)]


def test_a_commit_of_this_machine_is_reported_at_once_at_any_interval(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    interval_s = 60
    _, received = follow(tables.dir, load_snapshot(tables.storage), interval_s * 1000)
    began_s = time.monotonic()
    for number in range(10):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
        received.wait_for(tables.log)
    assert time.monotonic() - began_s < interval_s, "the follower waited for an interval"


def test_progress_without_rows_is_reported(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    _, received = follow(tables.dir)
    tables.log.tick()
    tables.commit()
    received.wait_for(tables.log)
    assert received.changes == []


def test_tables_created_after_the_start_are_found(tmp_path: Path, follow: Follow) -> None:
    follower, received = follow(tmp_path / "tables")
    received.wait(lambda: received.reloads == 1)
    assert follower.version == -1
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    received.wait_for(tables.log)


def test_commits_that_the_caller_already_has_are_not_reported_again(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    _, received = follow(tables.dir, load_snapshot(tables.storage))
    new = tables.log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    received.wait_for(tables.log)
    assert (received.changes, received.reloads) == (new, 0)


def test_joining_files_reports_no_change(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    tables.log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    follower, received = follow(tables.dir)
    received.wait_for(tables.log)
    join_small_files(tables.writer.table, 2, 1 << 20)
    new = tables.log.register(a_registration("10.0.0.2:1", broker_name="b2"))
    tables.commit()
    received.wait_for(tables.log)
    assert (received.changes, received.reloads) == (new, 1)
    assert follower.version == 4


def test_a_version_that_was_cleaned_up_makes_the_follower_reload(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    known = load_snapshot(tables.storage)
    for number in range(3):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
    folder = tables.dir / ROUTE_CHANGES
    DeltaTable(folder).create_checkpoint()
    (folder / "_delta_log" / f"{1:020d}.json").unlink()
    _, received = follow(tables.dir, known)
    received.wait_for(tables.log)
    assert received.reloads == 1


def test_a_missing_data_file_makes_the_follower_reload(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    known = load_snapshot(tables.storage)
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    for path in (tables.dir / ROUTE_CHANGES).glob("*.parquet"):
        path.unlink()
    _, received = follow(tables.dir, known)
    received.wait_for(tables.log)
    assert received.reloads == 1


def test_rows_removed_by_retention_make_the_follower_reload(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    _, received = follow(tables.dir)
    received.wait_for(tables.log)
    DeltaTable(tables.dir / ROUTE_CHANGES).delete("at_ms > 0")
    received.wait(lambda: received.reloads == 2)
    assert received.table.groups == tables.log.groups.groups


def test_invalid_commit_does_not_end_the_follower(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    known = load_snapshot(tables.storage)
    commit = (tables.dir / ROUTE_CHANGES) / "_delta_log" / f"{1:020d}.json"
    commit.write_text('{"add":{}}')
    follower, received = follow(tables.dir, known)
    deadline = time.monotonic() + _DEADLINE_S
    while not follower.failure:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    commit.unlink()
    tables.log.register(a_registration())
    tables.commit()
    received.wait_for(tables.log)


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_another_table_at_the_same_place_makes_the_follower_reload_whatever_its_versions(
    tmp_path: Path, follow: Follow, commits: int
) -> None:
    tables, other = TablesOfLog(tmp_path / "a"), TablesOfLog(tmp_path / "b")
    for number in range(3):
        tables.log.tick()
        other.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
    other.commit()
    _, received = follow(tables.dir)
    received.wait_for(tables.log)
    place = tables.dir / ROUTE_CHANGES
    place.rename(tmp_path / "aside")
    (other.dir / ROUTE_CHANGES).rename(place)
    tables.log, tables.writer = other.log, tables.new_writer()
    for number in range(commits):
        tables.log.register(a_registration(f"10.0.1.{number}:1", broker_name=f"c{number}"))
        tables.commit()
    received.wait(lambda: received.table.groups == other.log.groups.groups)


def test_reported_rows_stay_when_the_table_is_removed(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    follower, received = follow(tables.dir)
    received.wait_for(tables.log)
    tables.dir.rename(tmp_path / "aside")
    deadline = time.monotonic() + _DEADLINE_S
    while "does not exist any more" not in follower.failure:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (received.reloads, received.table.groups) == (1, tables.log.groups.groups)
    (tmp_path / "aside").rename(tables.dir)
    received.wait(lambda: received.reloads == 2)
    assert follower.failure == ""


def test_figures_of_the_job_are_reported_with_its_commits(follow: Follow, tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    follower, received = follow(tables.dir)
    received.wait(lambda: received.reloads == 1)
    tables.log.register(a_registration())
    figures = JobFigures(started_ms=5, at_ms=7, records=1, dead_letters=2)
    tables.writer.write(tables.rows_from(0), tables.reached(), 1, encode_job_figures(figures))
    received.wait_for(tables.log)
    assert follower.job == figures
    tables.log.tick()
    tables.commit()  # by a job that writes no figures
    received.wait_for(tables.log)
    assert follower.job == figures


def test_a_commit_of_another_table_makes_the_follower_reload(tmp_path: Path, follow: Follow) -> None:
    """In an object store, which has no inodes, only the id shows that it is another table."""
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    known = load_snapshot(tables.storage)
    follower, received = follow(tables.dir, replace(known, table_id="of a table that is no more"))
    tables.log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    received.wait(lambda: received.reloads == 1)
    received.wait_for(tables.log)
    assert received.changes == []
    assert follower.table_id == known.table_id


def _register(tables: TablesOfLog, *numbers: int) -> None:
    for number in numbers:
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"), after_ms=1)


def _commit_up_to(tables: TablesOfLog, end: int) -> None:
    begin = tables.writer.committed[0]
    changes = [change for change in tables.log.output.changes if begin <= change.offset < end]
    last = tables.log.records[end - 1]
    place = Place(end, fingerprint(last.at_ms, last.value))
    tables.writer.write(pa.Table.from_batches([encode_changes(changes)]), {0: place}, 50)


def _restore_in_place(folder: Path, backup: Path) -> None:
    for file in [path for path in folder.rglob("*") if path.is_file()]:
        if not (backup / file.relative_to(folder)).exists():
            file.unlink()


def _remove_and_copy(folder: Path, backup: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)


def _follow_restored_tables(
    tmp_path: Path, follow: Follow, restore: Callable[[Path, Path], None]
) -> tuple[TablesOfLog, SnapshotFollower, Received]:
    """Follow tables with four brokers, then restore the tables that had one of them."""
    tables = TablesOfLog(tmp_path)
    folder, backup = tables.dir / ROUTE_CHANGES, tmp_path / "backup"
    _register(tables, 0)
    tables.commit()
    shutil.copytree(folder, backup)
    for number in (1, 2, 3):
        _register(tables, number)
        tables.commit()
    follower, received = follow(tables.dir)
    received.wait_for(tables.log)
    restore(folder, backup)
    return tables, follower, received


@pytest.mark.parametrize("restore", [_restore_in_place, _remove_and_copy])
@pytest.mark.parametrize("cuts", [(3, 5, 6, 7), (2, 3, 4, 5, 6, 7), (7,)])
def test_a_restored_table_with_other_commits_makes_the_follower_reload(
    tmp_path: Path, follow: Follow, restore: Callable[[Path, Path], None], cuts: tuple[int, ...]
) -> None:
    """The job folds the same log again in other batches, so the same versions have other content."""
    tables, _, received = _follow_restored_tables(tmp_path, follow, restore)
    tables.writer = tables.new_writer()
    _register(tables, 7, 8, 9)
    for end in cuts:
        _commit_up_to(tables, end)
    received.wait_for(tables.log)
    tables.log.tick()
    tables.commit()
    received.wait_for(tables.log)


@pytest.mark.parametrize("restore", [_restore_in_place, _remove_and_copy])
def test_routes_in_memory_are_kept_until_the_log_is_folded_again(
    tmp_path: Path, follow: Follow, restore: Callable[[Path, Path], None]
) -> None:
    tables, follower, received = _follow_restored_tables(tmp_path, follow, restore)
    wait_until(lambda: "were set back" in follower.failure, _DEADLINE_S, "the follower notices the restore")
    tables.writer = tables.new_writer()
    _commit_up_to(tables, 3)
    wait_until(lambda: received.empty_commits, _DEADLINE_S, "the follower reads that the job folds the log again")
    assert (received.reloads, received.table.groups) == (1, tables.log.groups.groups)
    _commit_up_to(tables, 4)
    received.wait(lambda: received.reloads == 2)
    received.wait_for(tables.log)
    assert follower.failure == ""


def test_tables_that_were_set_back_are_reported_if_kafka_lost_the_reported_rows(tmp_path: Path, follow: Follow) -> None:
    tables, follower, received = _follow_restored_tables(tmp_path, follow, _remove_and_copy)
    wait_until(lambda: "were set back" in follower.failure, _DEADLINE_S, "the follower notices the restore")
    assert follower.progress == tables.reached()
    follower.forget()
    received.wait(lambda: received.next_offsets == {0: 1})
    assert follower.failure == ""


def test_rows_of_records_that_kafka_lost_do_not_stay(tmp_path: Path, follow: Follow) -> None:
    """The tables are restored to a state before the loss. The log then gets other records at the same offsets."""
    tables = TablesOfLog(tmp_path / "a")
    _register(tables, 0)
    tables.commit()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    _register(tables, 1, 2, 3)
    tables.commit()
    follower, received = follow(tables.dir)
    received.wait_for(tables.log)
    shutil.rmtree(tables.dir / ROUTE_CHANGES)
    shutil.copytree(tmp_path / "b" / "tables" / ROUTE_CHANGES, tables.dir / ROUTE_CHANGES)
    wait_until(lambda: "were set back" in follower.failure, _DEADLINE_S, "the follower notices the restore")
    later = tables.log.now_ms + 1_000
    other = TablesOfLog(tmp_path / "b")
    _register(other, 0)
    other.log.append(other.log.records[0].value, later)
    tables.log, tables.writer = other.log, tables.new_writer()
    _register(tables, 7)
    tables.commit()
    received.wait_for(tables.log)


def test_a_restore_by_another_program_is_not_followed(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    for number in range(4):
        _register(tables, number)
        tables.commit()
    follower, received = follow(tables.dir)
    received.wait_for(tables.log)
    DeltaTable(tables.dir / ROUTE_CHANGES).restore(2)
    received.wait(lambda: received.reloads == 2)
    assert "changes rows" in follower.failure
    assert received.table.groups == tables.log.groups.groups
    prepare_tables(tables.settings, TOPIC_ID)
    tables.writer = tables.new_writer()
    _register(tables, 9)
    tables.commit()
    received.wait_for(tables.log)


def test_newest_valid_version_of_a_damaged_table_is_reported_until_its_repair(tmp_path: Path, follow: Follow) -> None:
    tables = TablesOfLog(tmp_path)
    for number in range(3):
        _register(tables, number)
        tables.commit()
    (tables.dir / ROUTE_CHANGES / commit_name(3)).write_bytes(b"")
    follower, received = follow(tables.dir)
    received.wait(lambda: received.next_offsets == {0: 2})
    assert commit_name(3) in follower.failure
    prepare_tables(tables.settings, TOPIC_ID)
    tables.writer = tables.new_writer()
    tables.commit()
    received.wait_for(tables.log)
    assert follower.failure == ""
