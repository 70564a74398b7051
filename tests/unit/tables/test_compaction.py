"""``route_state`` agrees with the changes, however often it is rewritten; joining files changes nothing."""

import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import TablesTakenOver
from namesrv_stream.tables.change_rows import decode_changes
from namesrv_stream.tables.compaction import clean_up, join_small_files
from namesrv_stream.tables.history_files import HistoryMark, encode_mark
from namesrv_stream.tables.layout import ROUTE_ARCHIVE, ROUTE_CHANGES, ROUTE_STATE, removed_app_id
from namesrv_stream.tables.route_writers import StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow, load_snapshot, read_tables
from tests.support.builders import BEGIN_MS, Log, a_registration
from tests.support.examples import examples
from tests.support.strategies_route import Entry, logs
from tests.support.table_edits import write_commit
from tests.support.tables import TablesOfLog

_DAY_MS = 86_400_000


def _write(tables: TablesOfLog, entries: list[Entry], *, compact_each: int) -> None:
    for number, entry in enumerate(entries, start=1):
        tables.log.append(entry.value, entry.after_ms)
        if number % compact_each == 0:
            tables.commit()
            tables.compact()
    tables.commit()


@settings(max_examples=examples(15))
@given(logs(), st.integers(3, 12))
def test_state_and_changes_lead_to_the_folds_groups_wherever_it_was_compacted(
    entries: list[Entry], compact_each: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tables = TablesOfLog(Path(folder))
        _write(tables, entries, compact_each=compact_each)
        snapshot = load_snapshot(tables.storage)
        assert snapshot.table.groups == tables.log.groups.groups
        assert snapshot.next_offsets == {0: len(entries)}


def _tables_with_history(folder: Path) -> TablesOfLog:
    tables = TablesOfLog(folder)
    for number in range(10):
        tables.log.register(a_registration(registration_hash=f"hash {number}", timeout_ms=5_000 + number))
        tables.commit()
    return tables


def test_route_state_has_one_row_for_each_existing_key_and_the_fold_state(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    tables.compact()
    rows = read_tables(tables.storage)
    assert rows.state.fold_states[0].content == encode_state(tables.log.state)
    assert rows.changes.num_rows == 0
    kinds = rows.state.live["kind"].to_pylist()
    assert kinds.count("broker_live") == 1
    assert kinds.count("queue_data") == 2
    assert not any(rows.state.live["gone"].to_pylist())


def test_older_state_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    tables.compact()
    newest = tables.log
    tables.log = Log()
    tables.compact()
    assert read_tables(tables.storage).state.fold_states[0].next_offset == newest.state.next_offset


def test_joined_files_hold_the_same_rows(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    join_small_files(tables.writer.table, 11, 1 << 20)
    table = DeltaTable(tables.dir / ROUTE_CHANGES)
    assert len(table.file_uris()) == 10
    join_small_files(tables.writer.table, 10, 1 << 20)
    table.update_incremental()
    assert len(table.file_uris()) == 1
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def _without_history(ours: Settings) -> Settings:
    return ours.model_copy(update={"history": ours.history.model_copy(update={"enabled": False})})


def _clean_up(tables: TablesOfLog, ours: Settings) -> None:
    clean_up(ours, tables.writer.table, StateWriter(tables.storage).table)


def _oldest_after_clean_up(tables: TablesOfLog, ours: Settings, after_ms: int) -> int:
    """Let time pass, commit and cover everything; returns the lowest ``at_ms`` after a clean-up."""
    tables.log.tick(after_ms)
    tables.log.change_settings(default_timeout_ms=7_000)
    tables.commit()
    tables.compact()
    _clean_up(tables, ours)
    rows = DeltaTable(tables.dir / ROUTE_CHANGES).to_pyarrow_table()
    return int(pc.min(rows["at_ms"]).as_py())


def test_rows_that_the_history_has_not_read_are_kept(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    assert _oldest_after_clean_up(tables, tables.settings, 36 * _DAY_MS) == BEGIN_MS


def test_rows_that_the_history_never_reads_are_removed_after_a_while(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    assert _oldest_after_clean_up(tables, tables.settings, 39 * _DAY_MS) == tables.log.now_ms


def test_rows_that_the_history_has_read_are_removed(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    seen = encode_mark(HistoryMark("t-opic", "", {0: 5}))
    write_commit((tables.dir / ROUTE_ARCHIVE), 0, {"commitInfo": {"userMetadata": seen}})
    _oldest_after_clean_up(tables, tables.settings, 32 * _DAY_MS)
    changes = DeltaTable(tables.dir / ROUTE_CHANGES)
    assert pc.min(changes.to_pyarrow_table()["offset"]).as_py() == 5
    assert changes.transaction_version(removed_app_id("t-opic", 0)) == 5


def test_rows_past_their_retention_are_removed_and_routes_stay(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    tables.compact()
    before = load_snapshot(tables.storage).table.groups
    tables.log.tick(32 * _DAY_MS)
    tables.log.change_settings(default_timeout_ms=7_000)
    tables.commit()
    tables.compact()
    _clean_up(tables, _without_history(tables.settings))
    rows = DeltaTable(tables.dir / ROUTE_CHANGES).to_pyarrow_table()
    assert pc.min(rows["at_ms"]).as_py() == tables.log.now_ms
    assert load_snapshot(tables.storage).table.groups.keys() == before.keys()
    assert len(DeltaTable(tables.dir / ROUTE_STATE).file_uris()) == 1


def test_rows_that_no_route_state_covers_stay_however_old(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    tables.compact()
    tables.log.register(a_registration("10.0.9.9:1", broker_name="uncovered"))
    tables.commit()
    tables.log.tick(40 * _DAY_MS)
    tables.log.change_settings(default_timeout_ms=7_000)
    tables.commit()
    _clean_up(tables, _without_history(tables.settings))
    snapshot = load_snapshot(tables.storage)
    assert "uncovered" in snapshot.table.groups
    assert snapshot.table.groups == tables.log.groups.groups


def test_without_a_route_state_no_row_is_removed(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    tables.log.tick(40 * _DAY_MS)
    tables.log.change_settings(default_timeout_ms=7_000)
    tables.commit()
    _clean_up(tables, _without_history(tables.settings))
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def test_files_of_the_joined_size_do_not_count_as_small(tmp_path: Path) -> None:
    tables = _tables_with_history(tmp_path)
    join_small_files(tables.writer.table, 10, 1)
    assert len(DeltaTable(tables.dir / ROUTE_CHANGES).file_uris()) == 10


@pytest.mark.parametrize("is_first", [False, True])
def test_route_state_made_from_an_outdated_one_is_refused(tmp_path: Path, is_first: bool) -> None:
    """A job that was frozen while another continued would write it."""
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    if not is_first:
        tables.compact()
    frozen = StateWriter(tables.storage)
    rows = read_tables(tables.storage)
    tables.log.register(a_registration("10.0.0.2:1", broker_name="b2"))
    tables.commit()
    tables.compact()
    with pytest.raises(TablesTakenOver):
        frozen.replace(rows.state.live, {0: FoldStateRow(1, 1, b"{}")})
    assert read_tables(tables.storage).state.fold_states[0].next_offset == 2
