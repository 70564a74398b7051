"""Power cuts in several runs, and 2,000 damaged files; tests/power_cut explains the output of a failure."""

import shutil
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from tests.power_cut.flips import HealthyTables
from tests.power_cut.recording import Recording

_SEEDS: Final = range(11, 16)
_CUTS: Final = 60
_CUTS_A_TEST: Final = 10
_DAMAGES: Final = 400
_DAMAGES_A_TEST: Final = 50


@pytest.fixture(scope="module")
def recording_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Recording]:
    """Return the run of a seed, which is recorded once."""
    return cache(lambda seed: Recording(tmp_path_factory.mktemp(f"run-{seed}"), seed))


@pytest.fixture(scope="module")
def healthy_tables_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], HealthyTables]:
    """Return the tables of a seed, which are written once."""
    return cache(lambda seed: HealthyTables(tmp_path_factory.mktemp(f"healthy-{seed}"), seed))


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("begin", range(0, _CUTS, _CUTS_A_TEST))
def test_nothing_is_lost_or_wrong_after_a_power_cut(
    recording_of: Callable[[int], Recording], seed: int, begin: int, tmp_path: Path
) -> None:
    recording = recording_of(seed)
    failures = []
    for cut in recording.cuts(_CUTS)[begin : begin + _CUTS_A_TEST]:
        place = tmp_path / str(cut.position)
        if findings := recording.findings_after(cut, place):
            failures.append("\n  ".join([f"{cut}; see {place}", *map(str, findings)]))
        else:
            shutil.rmtree(place)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("begin", range(0, _DAMAGES, _DAMAGES_A_TEST))
def test_no_damaged_file_leads_to_a_wrong_route(
    healthy_tables_of: Callable[[int], HealthyTables], seed: int, begin: int, tmp_path: Path
) -> None:
    tables = healthy_tables_of(seed)
    damages = islice(tables.damages(_DAMAGES), begin, begin + _DAMAGES_A_TEST)
    failures = tables.failures(damages, tmp_path)
    assert not failures, "\n".join([f"seed {seed}", *failures])
