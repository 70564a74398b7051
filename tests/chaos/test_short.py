"""A chaos test of a minute: every kind of fault once, and a verdict. `make chaos` is the long variant."""

import os
from pathlib import Path

import pytest

from tests.chaos.environment import Scale
from tests.chaos.fault_plan import short_plan
from tests.chaos.report import text_of
from tests.chaos.run import Outcome, run

_SEED = int(os.environ.get("CHAOS_SEED", "1"))


@pytest.mark.timeout(1_200)
def test_faults_cause_no_false_expiry_no_missing_expiry_and_no_lost_row(
    tmp_path: Path, outcomes: list[Outcome]
) -> None:
    scale = Scale()
    outcome = run(tmp_path / "run", scale, _SEED, short_plan(_SEED, scale.timeout_s))
    outcomes.append(outcome)
    assert outcome.verdict.findings == [], text_of(outcome)
    figures = outcome.verdict.figures
    # Without faults and expiries, the verdict would mean nothing.
    assert figures.deaths
    assert figures.expiries > 0
    assert figures.lives > scale.size.brokers
