"""The objective and its error budget."""

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.history.report.objective import Objective, parse_objective


@pytest.mark.parametrize("text", ["99.9", "99.9%", " 99.9 "])
def test_an_objective_is_per_cent(text: str) -> None:
    assert parse_objective(text).share == pytest.approx(0.999)
    assert str(parse_objective(text)) == "99.9%"


@pytest.mark.parametrize("text", ["0", "100", "-1", "nan", "inf", "many", "", "99,9"])
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--slo"):
        parse_objective(text)


def test_the_budget_of_a_month_of_three_nines_is_43_minutes() -> None:
    month_ms = 30 * 86_400_000
    objective = Objective(0.999)
    assert objective.budget_ms(month_ms) == pytest.approx(43.2 * 60_000)
    assert objective.left_ms(month_ms, month_ms - 10 * 60_000) == pytest.approx(33.2 * 60_000)
    assert objective.left_share(month_ms, month_ms - 10 * 60_000) == pytest.approx(33.2 / 43.2)


def test_more_than_the_budget_is_below_nothing_left() -> None:
    objective = Objective(0.9)
    assert objective.left_share(1_000, 700) == pytest.approx(-2)
    assert not objective.is_met(1_000, 700)
    assert objective.is_met(1_000, 901)


def test_of_no_time_nothing_is_missed() -> None:
    assert Objective(0.9).left_share(0, 0) is None
    assert Objective(0.9).is_met(0, 0)
