"""Tables are created once, for one topic; damaged ones are reset to their newest valid version."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.transaction import Transaction

from namesrv_stream.errors import ConfigError
from namesrv_stream.table_errors import TableDamaged, TableSchemaMismatch
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, STATE_SCHEMA, decode_changes
from namesrv_stream.tables.delta.commit import LAST_CHECKPOINT, checkpoint_name, commit_name
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE, app_id
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.snapshot import load_snapshot, read_tables
from namesrv_stream.tables.stored_changes import StoredChanges
from tests.support.builders import a_registration
from tests.support.tables import TOPIC_ID, TablesOfLog, settings_in


def _tables(tmp_path: Path, commits: int = 5) -> TablesOfLog:
    tables = TablesOfLog(tmp_path)
    _commit(tables, commits)
    return tables


def _commit(tables: TablesOfLog, commits: int) -> None:
    for _ in range(commits):
        number = len(tables.log.records)
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()


def _repaired(tables: TablesOfLog) -> list[str]:
    done = prepare_tables(tables.settings, TOPIC_ID)
    tables.writer = tables.new_writer()
    return done


def _assert_whole(tables: TablesOfLog) -> None:
    """Assert that lost rows were folded again, and that no row is duplicated."""
    tables.commit()
    stored = StoredChanges.open(tables.storage)
    assert stored is not None
    assert decode_changes(stored.rows(0, 0, 1_000)) == tables.log.output.changes
    assert load_snapshot(tables.storage).table.groups == tables.log.groups.groups


def test_new_tables_have_the_protocol_that_every_engine_reads(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    prepare_tables(settings, "topic")
    for name in (ROUTE_CHANGES, ROUTE_STATE):
        protocol = DeltaTable(settings.data.tables_dir / name).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert prepare_tables(settings, "topic") == []


def test_tables_of_another_topic_are_refused(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    prepare_tables(settings, "one")
    with pytest.raises(ConfigError) as refused:
        prepare_tables(settings, "two")
    assert refused.value.key == "namesrv_stream.topic_id"


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content[:-20], lambda content: b"\x00" * 900])
def test_torn_commits_at_the_end_are_set_aside(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    tables = _tables(tmp_path)
    for version in (4, 5):
        file = tables.changes.path / commit_name(version)  # type: ignore[attr-defined]
        file.write_bytes(damage(file.read_bytes()))
    assert load_snapshot(tables.storage).next_offsets == {0: 3}, "a server answers from the newest valid version"
    [done] = _repaired(tables)
    assert commit_name(5) in done or commit_name(4) in done
    assert "back at version 3" in done
    _assert_whole(tables)


def test_a_hint_that_names_a_torn_checkpoint_is_set_aside(tmp_path: Path) -> None:
    tables = _tables(tmp_path)
    tables.writer.table.checkpoint()
    _commit(tables, 2)
    (tables.dir / ROUTE_CHANGES / checkpoint_name(5)).write_bytes(b"")
    done = _repaired(tables)
    assert any(checkpoint_name(5) in text for text in done)
    assert not tables.changes.exists(LAST_CHECKPOINT)
    assert tables.writer.committed == {0: 7}
    _assert_whole(tables)


@pytest.mark.parametrize("later_commits", [0, 2])
def test_an_altered_checkpoint_is_set_aside_and_nothing_else(tmp_path: Path, later_commits: int) -> None:
    tables = _tables(tmp_path)
    tables.writer.table.checkpoint()
    _commit(tables, 1)
    version = tables.writer.table.version
    tables.writer.table.checkpoint()
    _commit(tables, later_commits)
    path = tables.dir / ROUTE_CHANGES / checkpoint_name(version)
    path.write_bytes(path.read_bytes().replace(b"broker_addr", b"broyer_addr", 1))
    [done] = _repaired(tables)
    assert checkpoint_name(version) in done
    assert tables.writer.committed == {0: 6 + later_commits}
    _assert_whole(tables)


@pytest.mark.parametrize("size", [0, 300])
def test_a_truncated_data_file_removes_its_commit_and_later_ones(tmp_path: Path, size: int) -> None:
    tables = _tables(tmp_path)
    newest = max((tables.dir / ROUTE_CHANGES).glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    with newest.open("r+b") as file:
        file.truncate(size)
    [done] = _repaired(tables)
    assert newest.name in done
    _assert_whole(tables)


def test_a_commit_whose_transaction_was_altered_is_set_aside(tmp_path: Path) -> None:
    tables = _tables(tmp_path)
    commit = tables.dir / ROUTE_CHANGES / commit_name(3)
    commit.write_bytes(commit.read_bytes().replace(b'-0","version"', b'-0","versiom"', 1))
    [done] = _repaired(tables)
    assert commit_name(3) in done
    assert "back at version 2," in done
    _assert_whole(tables)


def test_damaged_file_of_an_old_commit_is_repaired_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("namesrv_stream.tables.delta.table_version._EACH_TRIED", 12)
    tables = _tables(tmp_path, 20)
    before = set((tables.dir / ROUTE_CHANGES).glob("*.parquet"))
    _commit(tables, 1)
    [damaged] = set((tables.dir / ROUTE_CHANGES).glob("*.parquet")) - before
    _commit(tables, 14)
    damaged.write_bytes(b"")
    [done] = _repaired(tables)
    assert damaged.name in done
    assert "back at version 19," in done  # 16 before the newest
    _assert_whole(tables)


def test_a_table_whose_first_commit_is_torn_is_created_again(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    (tables.dir / ROUTE_CHANGES / commit_name(0)).write_bytes(b"")
    [done] = _repaired(tables)
    assert "no version of it is intact" in done
    _commit(tables, 1)
    _assert_whole(tables)


def test_a_table_without_a_valid_version_is_not_repaired_and_needs_a_rebuild(tmp_path: Path) -> None:
    tables = _tables(tmp_path)
    tables.writer.table.checkpoint()
    for version in range(6):
        (tables.dir / ROUTE_CHANGES / commit_name(version)).unlink()
    (tables.dir / ROUTE_CHANGES / checkpoint_name(5)).write_bytes(b"PAR1")
    (tables.dir / ROUTE_CHANGES / commit_name(6)).write_bytes(b"{")
    with pytest.raises(TableSchemaMismatch, match=r"no version is intact: .*namesrv-stream rebuild") as refused:
        prepare_tables(tables.settings, TOPIC_ID)
    assert refused.value.exit_code == 2


def test_a_damaged_route_state_is_reset_to_its_previous_version(tmp_path: Path) -> None:
    tables = _tables(tmp_path, 2)
    tables.compact()
    _commit(tables, 2)
    tables.compact()
    newest = max((tables.dir / ROUTE_STATE).glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    assert read_tables(tables.storage).state.fold_states[0].next_offset == 2
    [done] = _repaired(tables)
    assert newest.name in done
    assert read_tables(tables.storage).damage is None
    _assert_whole(tables)


def _as_first_release(tables: TablesOfLog, name: str) -> None:
    """Rewrite a table as version 0.1.0 did: rows by delta-rs, and no metadata of the writer."""
    path = tables.dir / name
    rows = DeltaTable(path).to_pyarrow_table()
    configuration = DeltaTable(path).metadata().configuration
    shutil.rmtree(path)
    schema = CHANGES_SCHEMA if name == ROUTE_CHANGES else STATE_SCHEMA
    table = DeltaTable.create(path, schema, configuration=configuration, raise_if_key_not_exists=False)
    covered = [Transaction(app_id(TOPIC_ID, 0), tables.writer.committed[0])] if name == ROUTE_CHANGES else []
    half = rows.num_rows // 2
    properties = CommitProperties(app_transactions=covered)
    if name == ROUTE_STATE:
        write_deltalake(table, rows, mode="overwrite", commit_properties=properties)
        return
    for part in (rows.slice(0, half), rows.slice(half)):
        write_deltalake(table, part, mode="append", commit_properties=properties)


def test_tables_of_version_0_1_0_are_used_as_they_are(tmp_path: Path) -> None:
    tables = _tables(tmp_path, 2)
    tables.compact()
    for name in (ROUTE_CHANGES, ROUTE_STATE):
        _as_first_release(tables, name)
    assert _repaired(tables) == []
    assert tables.writer.committed == {0: 2}
    _commit(tables, 2)
    tables.compact()
    _assert_whole(tables)
    assert _repaired(tables) == []


def test_an_altered_byte_in_rows_that_no_state_covers_is_found_at_the_start(tmp_path: Path) -> None:
    tables = _tables(tmp_path, 2)
    tables.compact()
    _commit(tables, 2)
    newest = max((tables.dir / ROUTE_CHANGES).glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    [done] = _repaired(tables)
    assert newest.name in done
    _assert_whole(tables)


def test_missing_route_state_is_not_taken_for_a_new_table(tmp_path: Path) -> None:
    tables = _tables(tmp_path, 2)
    tables.compact()
    shutil.rmtree(tables.dir / ROUTE_STATE)
    with pytest.raises(TableDamaged, match="route_state: _delta_log is missing"):
        load_snapshot(tables.storage)


def test_unfinished_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    tables = _tables(tmp_path, 1)
    for folder in (tables.dir / ROUTE_CHANGES, tables.dir / ROUTE_CHANGES / "_delta_log"):
        (folder / ".began.1.tmp").write_bytes(b"x")
    assert _repaired(tables) == []
    assert not list((tables.dir / ROUTE_CHANGES).rglob("*.tmp"))
