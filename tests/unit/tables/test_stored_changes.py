"""Ranges of ``route_changes``, and the existing versions of ``route_state``."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from namesrv_stream.tables.change_rows import decode_changes
from namesrv_stream.tables.layout import ROUTE_STATE
from namesrv_stream.tables.storage import Folder
from namesrv_stream.tables.stored_changes import KeptState, KeptStates, StoredChanges
from tests.support.builders import a_registration
from tests.support.tables import TablesOfLog


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> TablesOfLog:
    """Five registrations, each committed and covered by a version of ``route_state`` (offsets 1 to 5)."""
    tables = TablesOfLog(tmp_path_factory.mktemp("written"))
    for number in range(5):
        tables.log.register(a_registration(f"10.0.0.{number}:1", number), after_ms=1_000)
        tables.commit()
        tables.compact()
    return tables


@pytest.fixture
def tables(written: TablesOfLog, tmp_path: Path) -> TablesOfLog:
    return written.copied(tmp_path)


def _offset(kept: KeptState | None) -> int | None:
    return None if kept is None else kept.fold_state.next_offset


def test_rows_of_a_range_come_in_log_order(tables: TablesOfLog) -> None:
    stored = StoredChanges.open(tables.storage)
    assert stored is not None
    expected = [row for row in tables.log.output.changes if 1 <= row.offset < 4]
    assert decode_changes(stored.rows(0, 1, 4)) == expected
    assert stored.rows(0, 4, 4).num_rows == 0
    assert stored.rows(1, 0, 9).num_rows == 0


def test_covered_offsets_and_age_are_returned(tables: TablesOfLog) -> None:
    stored = StoredChanges.open(tables.storage)
    assert stored is not None
    assert (stored.next_offsets, stored.newest_at_ms) == ({0: 5}, tables.log.now_ms)


def test_missing_table_has_no_states(tmp_path: Path) -> None:
    assert StoredChanges.open(Folder(tmp_path)) is None
    assert KeptStates(Folder(tmp_path)).newest(0) is None
    assert KeptStates(Folder(tmp_path)).oldest(0) is None


@pytest.mark.parametrize(("at_most", "expected"), [(0, None), (1, 1), (3, 3), (5, 5), (9, 5)])
def test_the_newest_state_at_or_before_an_offset_is_found(
    tables: TablesOfLog, at_most: int, expected: int | None
) -> None:
    assert _offset(KeptStates(tables.storage).newest(0, at_most)) == expected


@pytest.mark.parametrize(("at_least", "expected"), [(0, 1), (1, 1), (3, 3), (5, 5), (6, None)])
def test_the_oldest_state_at_or_after_an_offset_is_found(
    tables: TablesOfLog, at_least: int, expected: int | None
) -> None:
    assert _offset(KeptStates(tables.storage).oldest(0, at_least)) == expected


def test_a_state_has_the_rows_of_its_offset(tables: TablesOfLog) -> None:
    kept = KeptStates(tables.storage).newest(0, 2)
    assert kept is not None
    assert max(kept.live["offset"].to_pylist()) == 1
    assert KeptStates(tables.storage).newest(1) is None


def test_versions_with_removed_files_are_ignored(tables: TablesOfLog) -> None:
    path = tables.dir / ROUTE_STATE
    kept = {f["path"] for v in (4, 5) for f in pa.table(DeltaTable(path, version=v).get_add_actions()).to_pylist()}
    for file in path.glob("*.parquet"):
        if file.name not in kept:
            file.unlink()
    states = KeptStates(tables.storage)
    assert _offset(states.oldest(0)) == 4
    assert _offset(states.newest(0, 4)) == 4
    assert states.newest(0, 3) is None


def test_versions_with_a_removed_log_are_ignored(tables: TablesOfLog) -> None:
    path = tables.dir / ROUTE_STATE
    DeltaTable(path).create_checkpoint()
    for version in range(4):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    assert _offset(KeptStates(tables.storage).oldest(0)) == 5
