"""A fixed set of seeds finds nothing, planted faults are found, and a seed always produces the same run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.__main__ import run_all
from tests.simulation.costly_peers import COSTLY_PEERS
from tests.simulation.faults import TEMPOS
from tests.simulation.planted import ALL_PLANTS, find
from tests.simulation.simulation import Shape, simulate

_SEEDS: Final = range(1, 13)
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
#: Each is found by its first seeds, in a few seconds.
_QUICK: Final = (
    "heartbeats do not renew a lease",
    "acknowledgements of changes get lost",
    "M5 a second server with the same id is not refused",
)


@pytest.mark.timeout(300)
def test_a_fixed_set_of_seeds_finds_nothing() -> None:
    outcomes = list(run_all(_SEEDS, Shape(duration_s=300), os.cpu_count() or 1))
    assert [(outcome.seed, outcome.failures) for outcome in outcomes if outcome.failures] == []


@pytest.mark.timeout(120)
def test_costly_peers_change_nothing_for_others_even_while_the_job_is_stopped() -> None:
    kinds = (*COSTLY_PEERS, "brokers die", "job frozen", "job slow")
    outcome = simulate(4, Shape(6, 240, kinds, quiet_s=60, tempo=TEMPOS[0], scale=1))
    assert outcome.failures == []
    assert outcome.faults.keys() == set(kinds)
    assert outcome.figures["requests refused"] > 900


@pytest.mark.timeout(120)
def test_a_seed_has_the_same_trace_in_every_process(tmp_path: Path) -> None:
    traces = []
    for hash_seed in ("1", "2"):
        file = tmp_path / hash_seed
        command = [sys.executable, "-m", "tests.simulation", "--seed", "4", "--seconds", "100", "--trace", str(file)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run(command, cwd=_REPOSITORY, env=environment, check=True, capture_output=True)
        traces.append(file.read_bytes())
    assert len(traces[0]) > 100_000
    assert traces[0] == traces[1]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", _QUICK)
def test_planted_faults_are_found(name: str) -> None:
    plant = next(plant for plant in ALL_PLANTS if plant.name == name)
    _, outcome, _ = find(plant, seeds=3, seconds=200)
    assert outcome is not None
