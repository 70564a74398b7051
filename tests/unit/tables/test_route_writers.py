"""Rows are committed once; progress is committed also without rows."""

import errno
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

from namesrv_stream.route.events import TopicDeleted
from namesrv_stream.route.fold.folded_log import Place
from namesrv_stream.table_errors import TableDamaged, TableSchemaMismatch, TablesTakenOver
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, decode_changes
from namesrv_stream.tables.delta.commit import LAST_CHECKPOINT, commit_name
from namesrv_stream.tables.delta.open_table import open_delta
from namesrv_stream.tables.layout import ROUTE_CHANGES, app_id
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter
from namesrv_stream.tables.snapshot import read_tables
from namesrv_stream.tables.storage import Folder, Storage
from tests.support.builders import S1, a_registration
from tests.support.tables import TOPIC_ID, TablesOfLog


def test_a_batch_delivered_twice_is_written_once(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    assert tables.commit() > 0
    rows, offsets = tables.rows_from(0), tables.reached()
    assert tables.writer.write(rows, offsets, 7).num_rows == 0
    assert tables.new_writer().write(rows, offsets, 7).num_rows == 0
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def test_a_batch_with_other_limits_after_a_restart_adds_only_new_rows(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    new = tables.log.say(TopicDeleted(S1, "TopicTest", None))
    written = tables.new_writer().write(tables.rows_from(0), tables.reached(), 0)
    assert written.num_rows == len(new)
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def test_progress_without_rows_is_a_commit_without_files(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.tick()
    tables.commit()
    table = DeltaTable(tables.dir / ROUTE_CHANGES)
    assert table.transaction_version(app_id(TOPIC_ID, 0)) == 1
    assert table.file_uris() == []
    assert read_tables(tables.storage).next_offsets == {0: 1}


def test_progress_without_rows_is_committed_at_most_once_per_interval(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    writer = ChangesWriter(tables.storage, progress_interval_ms=3_600_000)
    tables.log.tick()
    writer.write(tables.rows_from(0), {0: Place(1)}, 0)
    assert writer.committed == {0: 0}
    tables.log.register(a_registration())
    writer.write(tables.rows_from(0), {0: Place(2)}, 1)
    assert writer.committed == {0: 2}


def test_commits_continue_during_a_compaction(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    _commit_brokers(tables, 5)
    DeltaTable(tables.dir / ROUTE_CHANGES).optimize.compact()
    tables.log.register(a_registration("10.0.1.1:1", broker_name="after"))
    tables.commit()
    rows = read_tables(tables.storage)
    assert decode_changes(rows.changes) == tables.log.output.changes
    assert rows.next_offsets == {0: 6}


def test_the_first_of_two_jobs_to_commit_continues_and_the_other_writes_nothing(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    other = tables.new_writer()
    assert other.write(tables.rows_from(0), {0: Place(1)}, 9).num_rows > 0
    with pytest.raises(TablesTakenOver) as caught:
        tables.commit()
    assert caught.value.exit_code == 1
    assert len(list((tables.dir / ROUTE_CHANGES).glob("*.parquet"))) == 1
    tables.log.register(a_registration("10.0.1.1:1", broker_name="after"))
    other.write(tables.rows_from(1), {0: Place(2)}, 10)
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def test_a_job_that_was_frozen_before_its_commit_writes_no_row_twice(tmp_path: Path) -> None:
    """The other job has already written its rows and has continued far beyond them."""
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    frozen, held = tables.writer, tables.rows_from(0)
    tables.writer = tables.new_writer()
    _commit_brokers(tables, 5)
    with pytest.raises(TablesTakenOver):
        frozen.write(held, {0: Place(1)}, 1)
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def test_one_of_two_jobs_that_fold_the_same_records_exits(tmp_path: Path) -> None:
    """Their offsets are equal, so the progress alone does not distinguish them."""
    tables = TablesOfLog(tmp_path)
    tables.log.tick()
    first, second = tables.new_writer(), tables.new_writer()
    nothing = tables.rows_from(1)
    first.write(nothing, {0: Place(1)}, 1)
    with pytest.raises(TablesTakenOver):
        second.write(nothing, {0: Place(1)}, 1)


def test_own_commit_with_a_lost_answer_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store made the commit but answered that it existed already; an OPTIMIZE of another program followed."""
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())

    def made_and_optimized(folder: Folder, name: str, content: bytes) -> None:
        monkeypatch.undo()
        folder.create(name, content)
        DeltaTable(tables.dir / ROUTE_CHANGES).optimize.compact()
        raise FileExistsError(name)

    monkeypatch.setattr(Folder, "create", made_and_optimized)
    tables.commit()
    tables.log.register(a_registration("10.0.1.1:1", broker_name="after"))
    tables.commit()
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


@pytest.mark.parametrize("is_hint_there", [True, False])
def test_job_suspended_until_the_log_was_cleaned_up_ends(tmp_path: Path, is_hint_there: bool) -> None:
    """The file names of its next versions are free again."""
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    frozen, held = tables.writer, tables.rows_from(0)
    tables.writer = tables.new_writer()
    _commit_brokers(tables, 4)
    _clean_up(tables.changes, range(4), is_hint_there=is_hint_there)
    _assert_refused(tables, frozen, held)


@pytest.mark.parametrize(("is_hint_there", "gone"), [(True, 4), (False, 2)])
def test_job_suspended_between_check_and_commit_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_hint_there: bool, gone: int
) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    frozen, held = tables.writer, tables.rows_from(0)
    tables.writer = tables.new_writer()

    def slept(folder: Folder, name: str, content: bytes) -> None:
        monkeypatch.undo()
        _commit_brokers(tables, 4)
        _clean_up(tables.changes, range(gone), is_hint_there=is_hint_there)
        folder.create(name, content)

    monkeypatch.setattr(Folder, "create", slept)
    _assert_refused(tables, frozen, held)


def test_a_table_that_was_restored_meanwhile_gets_no_gap_in_its_log(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    for number in range(3):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
        if number == 0:
            shutil.copytree(tables.dir, tmp_path / "backup")
    shutil.rmtree(tables.dir)
    (tmp_path / "backup").rename(tables.dir)
    tables.log.register(a_registration("10.0.1.1:1", broker_name="after"))
    with pytest.raises(TablesTakenOver):
        tables.commit()
    assert decode_changes(read_tables(tables.storage).changes) == [
        c for c in tables.log.output.changes if c.offset == 0
    ]


def test_a_table_that_was_rebuilt_meanwhile_is_not_written(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.tick()
    tables.commit()
    shutil.rmtree(tables.dir)
    prepare_tables(tables.settings, TOPIC_ID)
    tables.log.register(a_registration())
    with pytest.raises(TablesTakenOver):
        tables.commit()
    assert DeltaTable(tables.dir / ROUTE_CHANGES).version() == 0


def test_a_table_whose_log_was_removed_is_not_written(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    log = tables.dir / ROUTE_CHANGES / "_delta_log"
    for file in log.iterdir():
        file.unlink()
    tables.log.register(a_registration())
    with pytest.raises(TableSchemaMismatch, match="does not exist any more"):
        tables.commit()
    assert list(log.iterdir()) == []


@pytest.mark.parametrize("change", [lambda table: table.restore(2), lambda table: table.delete("offset = 2")])
def test_rows_changed_by_another_program_end_the_writer_and_are_repaired(
    tmp_path: Path, change: Callable[[DeltaTable], object]
) -> None:
    tables = TablesOfLog(tmp_path)
    _commit_brokers(tables, 4)
    change(DeltaTable(tables.dir / ROUTE_CHANGES))
    tables.log.register(a_registration("10.0.1.1:1", broker_name="after"))
    with pytest.raises(TableDamaged, match="changes rows"):
        tables.commit()
    [done] = prepare_tables(tables.settings, TOPIC_ID)
    assert "changes rows" in done
    tables.writer = tables.new_writer()
    tables.commit()
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def test_a_table_that_was_partitioned_meanwhile_is_not_written(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    table = DeltaTable(tables.dir / ROUTE_CHANGES)
    write_deltalake(
        table, CHANGES_SCHEMA.empty_table(), mode="overwrite", schema_mode="overwrite", partition_by=["kind"]
    )
    tables.log.register(a_registration())
    with pytest.raises(TableSchemaMismatch, match="it is partitioned by kind"):
        tables.commit()


def test_a_table_that_was_upgraded_meanwhile_is_not_written(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    table = tables.dir / ROUTE_CHANGES
    DeltaTable(table).alter.add_feature(TableFeatures.AppendOnly, allow_protocol_versions_increase=True)
    tables.log.register(a_registration())
    with pytest.raises(TableSchemaMismatch):
        tables.commit()
    assert not list(table.glob("*.parquet"))


def test_a_commit_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TablesOfLog(tmp_path)
    table = tables.dir / ROUTE_CHANGES
    before = set(table.rglob("*"))
    tables.log.register(a_registration())

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", no_space)
        with pytest.raises(OSError, match="No space"):
            tables.commit()
    assert set(table.rglob("*")) == before
    tables.commit()
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def test_commit_has_the_same_metadata_as_one_of_delta_rs(tmp_path: Path) -> None:
    """Other readers take numbers, statistics and times from the log."""
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    written = tables.commit()
    table = DeltaTable(tables.dir / ROUTE_CHANGES)
    [file] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (file["num_records"], file["min.offset"], file["max.seq"]) == (written, 0, written - 1)
    assert file["null_count.at_ms"] == 0
    assert file["size_bytes"] == (tables.dir / ROUTE_CHANGES / file["path"]).stat().st_size
    [newest] = table.history(1)
    assert (newest["operation"], newest["operationParameters"]["mode"]) == ("WRITE", "Append")
    assert newest["engineInfo"].startswith("namesrv-stream/")


def _commit_brokers(tables: TablesOfLog, brokers: int) -> None:
    """Register brokers, with a commit for each."""
    for number in range(brokers):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()


def _clean_up(table: Storage, versions: Iterable[int], *, is_hint_there: bool) -> None:
    """Clean up as a day later: the newest version has a checkpoint, and older commits are removed."""
    open_delta(table).create_checkpoint()
    for name in [commit_name(version) for version in versions] + ([] if is_hint_there else [LAST_CHECKPOINT]):
        table.remove(name)


def _assert_refused(tables: TablesOfLog, writer: ChangesWriter, held: pa.Table) -> None:
    with pytest.raises(TablesTakenOver):
        writer.write(held, {0: Place(1)}, 1)
    tables.log.register(a_registration("10.0.1.1:1", broker_name="after"))
    tables.commit()
    paths = {str(path) for path in (tables.dir / ROUTE_CHANGES).glob("*.parquet")}
    assert paths == set(open_delta(tables.changes).file_uris())
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes
