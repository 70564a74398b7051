"""Medians, spreads and quotients of benchmark runs."""

import json
from pathlib import Path

import pytest

from tests.bench.figures import Figure, Spread, compared
from tests.bench.report import write_results


def test_spread_is_median_minimum_and_maximum() -> None:
    assert Spread.of([3, 1, 10]) == Spread(3, 1, 10)


def test_quotients_are_computed_from_figures_of_the_same_round() -> None:
    """In the second round the machine was twice as slow for both contenders."""
    assert Spread.of_quotients([20, 10], [10, 5]) == Spread(2, 2, 2)


def test_quotient_of_zero_is_infinite() -> None:
    assert Spread.of_quotients([1], [0]).median == float("inf")


def test_quotients_of_unequal_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Spread.of_quotients([1, 2], [1])


def test_whether_a_goal_is_met_depends_on_the_measured_figure_and_the_quotients() -> None:
    runs = {"ours": [30.0, 40.0], "java": [10.0, 10.0]}
    figure = compared(
        "row", "queries", runs, "ours", ["java"], goal="≥ 3", is_met=lambda _, quotients: quotients[0].median >= 3
    )
    assert figure.is_met
    assert figure.quotients == {"java": Spread(3.5, 3, 4)}
    assert figure.values["java"] == Spread(10, 10, 10)


def test_peer_that_did_not_run_has_no_quotient() -> None:
    assert compared("row", "queries", {"ours": [1.0]}, "ours", ["java"]).quotients == {}


def test_results_are_json_with_one_figure_per_line(tmp_path: Path) -> None:
    figures = [Figure("row", name, {"ours": Spread.of([1 / 3])}, digits=1) for name in ("a", "b")]
    write_results(tmp_path / "bench" / "results.json", {"cores": 2}, {"rounds": 5}, figures)
    text = (tmp_path / "bench" / "results.json").read_text(encoding="utf-8")
    written = json.loads(text)
    assert (written["machine"], written["plan"]) == ({"cores": 2}, {"rounds": 5})
    assert [figure["name"] for figure in written["figures"]] == ["a", "b"]
    assert written["figures"][0]["values"]["ours"]["median"] == 0.3333
    assert sum(line.startswith('    {"row"') for line in text.splitlines()) == 2
