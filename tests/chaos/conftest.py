"""Prints the figures of all runs at the end of the output, also of passed ones."""

import logging

import pytest

from tests.chaos.report import text_of
from tests.chaos.run import Outcome

_outcomes: list[Outcome] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests."""
    for item in items:
        item.add_marker(pytest.mark.chaos)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of the runs."""
    for outcome in _outcomes:
        terminalreporter.section("chaos")
        terminalreporter.write_line(text_of(outcome))


@pytest.fixture
def outcomes() -> list[Outcome]:
    """Collect the outcomes of runs for the end of the output."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return _outcomes
