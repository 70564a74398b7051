"""The checks after a power cut find every kind of fault, and nothing in correct tables."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from namesrv_stream.settings import Settings
from namesrv_stream.tables.change_rows import FOLD_STATE_KIND
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from tests.power_cut import product
from tests.power_cut.made_up_log import made_up_log
from tests.power_cut.truth import Truth
from tests.power_cut.verdict import findings_of_end, findings_of_job, findings_of_server
from tests.support.table_edits import drop_rows, rewrite_rows

_LOG = made_up_log(1, 40)
_TRUTH = Truth(_LOG)
_BEGINNING = dict.fromkeys(_LOG, 0)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of tables that contain the whole log."""
    folder = tmp_path_factory.mktemp("written")
    assert findings_of_job(product.settings_in(folder), _LOG, _BEGINNING) == []
    return folder


@pytest.fixture
def settings(written: Path, tmp_path: Path) -> Settings:
    """Tables that contain the whole log."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return product.settings_in(tmp_path)


def _kinds(settings: Settings) -> set[str]:
    return {finding.kind for finding in findings_of_end(settings, _TRUTH)}


def test_complete_tables_have_no_finding(settings: Settings) -> None:
    assert _kinds(settings) == set()


def test_a_missing_row_is_found(settings: Settings) -> None:
    drop_rows(settings.data.tables_dir, pc.field("offset") == 0)
    assert _kinds(settings) == {"route_changes: row is missing"}


def test_duplicate_row_is_found(settings: Settings) -> None:
    path = settings.data.tables_dir / ROUTE_CHANGES
    write_deltalake(path, DeltaTable(path).to_pyarrow_table().slice(0, 1), mode="append")
    assert _kinds(settings) == {"route_changes: row is there twice"}


def test_altered_row_is_found(settings: Settings) -> None:
    rewrite_rows(settings.data.tables_dir, ROUTE_CHANGES, "detail", "another", pc.field("offset") == 0)
    assert _kinds(settings) == {"route_changes: row differs"}


def test_a_wrong_answer_is_found(settings: Settings) -> None:
    is_queue = pc.field("kind") == "queue_data"
    assert rewrite_rows(settings.data.tables_dir, ROUTE_STATE, "perm", 1, is_queue) > 0
    assert {"a server answers wrongly", "route_state: row differs"} <= _kinds(settings)


def test_a_wrong_fold_state_is_found(settings: Settings) -> None:
    is_state = pc.field("kind") == FOLD_STATE_KIND
    assert rewrite_rows(settings.data.tables_dir, ROUTE_STATE, "state", json.dumps({"leases": []}).encode(), is_state)
    assert _kinds(settings) == {"route_state: a fold state differs"}


def test_tables_that_end_early_are_found(settings: Settings) -> None:
    log = settings.data.tables_dir / ROUTE_CHANGES / "_delta_log"
    for path in (*sorted(log.glob("*.json"))[-2:], log / "_last_checkpoint", *log.glob("*.checkpoint.parquet")):
        path.unlink()
    (finding, *_) = findings_of_server(settings, _TRUTH, durable={1: len(_LOG[1]) + 1})
    assert finding.kind == "a server has lost what was durable"


@pytest.mark.parametrize("find", [findings_of_server, findings_of_end])
def test_a_reader_that_fails_is_found(settings: Settings, find: Callable[[Settings, Truth], list[object]]) -> None:
    for path in (settings.data.tables_dir / ROUTE_STATE / "_delta_log").iterdir():
        path.write_bytes(b"")
    assert find(settings, _TRUTH)


def test_a_job_that_does_not_start_is_found(settings: Settings) -> None:
    past_the_end = {partition: len(records) + 1 for partition, records in _LOG.items()}
    (finding,) = findings_of_job(settings, _LOG, past_the_end)
    assert finding.kind == "the job does not start"


def test_the_expected_rows_are_many_and_of_two_partitions() -> None:
    assert len(_TRUTH.rows) > 50
    assert pa.array([row.partition for row in _TRUTH.rows]).unique().to_pylist() == [0, 1]
