"""Ten power cuts in one run, and a hundred damaged files; tests/extra/test_power_cuts.py tests many more.

A failure prints the seed and the cut. In its folder, ``cut`` is the state after the power cut, and ``data`` is the
state after a server and the job have started on it.
"""

import os
import shutil
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from tests.power_cut.disk import Disk, read_image
from tests.power_cut.flips import HealthyTables
from tests.power_cut.recording import Recording

_SEED: Final = int(os.environ.get("POWER_CUT_SEED", "1"))
_CUTS: Final = 10
_DAMAGES: Final = 100
_DAMAGES_A_TEST: Final = 20


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A run of the workload."""
    return Recording(tmp_path_factory.mktemp("run"), _SEED)


@pytest.fixture(scope="module")
def healthy_tables(tmp_path_factory: pytest.TempPathFactory) -> HealthyTables:
    """Tables that the job has written."""
    return HealthyTables(tmp_path_factory.mktemp("healthy"), _SEED)


def test_trace_contains_all_operations_of_the_run(recording: Recording) -> None:
    disk = Disk()
    for operation in recording.operations:
        disk.apply(operation)
    assert disk.image() == read_image(recording.data_dir)


def test_run_creates_many_files_of_every_kind(recording: Recording) -> None:
    made = recording.names_made()
    assert made[".json"] > 50
    assert made[".checkpoint.parquet"] > 5
    assert made["_last_checkpoint"] > 5
    assert {row.cause for row in recording.truth.rows} > {"registered", "expired", "unregistered", "kv_put"}


@pytest.mark.parametrize("number", range(_CUTS))
def test_nothing_is_lost_or_wrong_after_a_power_cut(recording: Recording, number: int, tmp_path: Path) -> None:
    cut = recording.cuts(_CUTS)[number]
    findings = recording.findings_after(cut, tmp_path)
    assert not findings, "\n".join([f"{cut}; see {tmp_path}", *map(str, findings)])
    shutil.rmtree(tmp_path)


def test_cuts_find_losses_if_nothing_is_synced(recording: Recording, tmp_path: Path) -> None:
    cuts = recording.cuts(_CUTS)
    assert any(recording.findings_after(cut, tmp_path / str(cut.position), syncs_count=False) for cut in cuts)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("begin", range(0, _DAMAGES, _DAMAGES_A_TEST))
def test_no_damaged_file_leads_to_a_wrong_route(healthy_tables: HealthyTables, begin: int, tmp_path: Path) -> None:
    damages = islice(healthy_tables.damages(_DAMAGES), begin, begin + _DAMAGES_A_TEST)
    failures = healthy_tables.failures(damages, tmp_path)
    assert not failures, "\n".join([f"seed {_SEED}", *failures])
