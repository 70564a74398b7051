"""The availability objective and its error budget."""

import pytest

from namesrv_stream.history.database import Row
from tests.support.report_figures import DAY_MS, MONDAY_MS, a_session, ask


def test_the_budget_of_a_month_of_three_nines_is_43_minutes() -> None:
    end_ms = MONDAY_MS + 30 * DAY_MS
    row = total([a_session(MONDAY_MS, end_ms - 10 * 60_000)], end_ms, 0.999)
    assert row["budget_ms"] == pytest.approx(43.2 * 60_000)
    assert row["budget_left_ms"] == pytest.approx(33.2 * 60_000)
    assert row["budget_left"] == pytest.approx(33.2 / 43.2)


def test_exceeded_budget_has_a_negative_rest() -> None:
    missed = total([a_session(MONDAY_MS, MONDAY_MS + 700)], MONDAY_MS + 1_000, 0.9)
    assert missed["budget_left"] == pytest.approx(-2)
    assert not missed["met"]
    assert total([a_session(MONDAY_MS, MONDAY_MS + 901)], MONDAY_MS + 1_000, 0.9)["met"]


def test_empty_period_uses_no_budget() -> None:
    row = total([a_session(MONDAY_MS + 1_000)], MONDAY_MS + 1_000, 0.9)
    assert (row["known_ms"], row["budget_left"], row["met"]) == (0, None, True)


def total(sessions: list[Row], until_ms: int, objective: float) -> Row:
    """The figures of all brokers."""
    return ask("clusters", sessions, MONDAY_MS, until_ms, objective=objective)[-1]
