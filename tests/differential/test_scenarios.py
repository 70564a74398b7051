"""Scenarios for every request code and rule: the Java NameServer and namesrv-stream give the same answers."""

from collections.abc import Iterator

import pytest

from tests.differential.pair import Pair
from tests.differential.runner import Confirmations, Runner
from tests.differential.scenario import Scenario
from tests.differential.scenarios import ALL


@pytest.fixture(scope="module")
def confirmations(pair: Pair) -> Iterator[Confirmations]:
    waiting = Confirmations(pair)
    yield waiting
    waiting.confirm()


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.name) for scenario in ALL])
def test_answers_equal_javas(pair: Pair, confirmations: Confirmations, scenario: Scenario) -> None:
    runner = Runner(pair, scenario)
    try:
        runner.run()
    except BaseException:
        runner.close()
        raise
    confirmations.add(runner)
